"""Where the files of `conf/` are, in a checkout and in an installed wheel."""

from pathlib import Path


def conf_dir() -> Path:
    """Return the directory of the configuration files.

    A wheel carries them as `streaming/conf`; a checkout has them beside the packages.
    """
    packages = Path(__file__).resolve().parents[1]
    packaged = packages / "conf"
    return packaged if packaged.is_dir() else packages.parent / "conf"
