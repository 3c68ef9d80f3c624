"""Where files are: those of `conf/`, in a checkout and in an installed wheel, and what a setting names."""

from pathlib import Path


def conf_dir() -> Path:
    """Return the directory of the configuration files.

    A wheel carries them as `streaming/conf`; a checkout has them beside the packages.
    """
    packages = Path(__file__).resolve().parents[1]
    packaged = packages / "conf"
    return packaged if packaged.is_dir() else packages.parent / "conf"


def whole_path(location: str) -> str:
    """Return the whole path of a folder or file; a URL as it is.

    >>> whole_path("/srv/lake"), whole_path("s3://lake/offsets")
    ('/srv/lake', 's3://lake/offsets')
    """
    return location if "://" in location else str(Path(location).absolute())


def is_closed(folder: str) -> bool:
    """Tell whether a folder is there, or may be, that this user may not look into."""
    try:
        next(Path(folder).iterdir(), None)
    except (OSError, ValueError) as error:
        return isinstance(error, PermissionError)
    return False
