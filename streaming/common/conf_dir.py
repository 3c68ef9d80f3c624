"""Paths: of the files in `conf/`, in a checkout and in an installed wheel, and of locations in settings."""

from pathlib import Path


def conf_dir() -> Path:
    """Return the directory of the configuration files.

    In a wheel it is `streaming/conf`; in a checkout it is beside the packages.
    """
    packages = Path(__file__).resolve().parents[1]
    packaged = packages / "conf"
    return packaged if packaged.is_dir() else packages.parent / "conf"


def whole_path(location: str) -> str:
    """Return the absolute path of a folder or file; a URL unchanged.

    >>> whole_path("/srv/lake"), whole_path("s3://lake/offsets")
    ('/srv/lake', 's3://lake/offsets')
    """
    return location if "://" in location else str(Path(location).absolute())


def is_closed(folder: str) -> bool:
    """Return whether a folder that exists, or may exist, is not readable for this user."""
    try:
        next(Path(folder).iterdir(), None)
    except (OSError, ValueError) as error:
        return isinstance(error, PermissionError)
    return False
