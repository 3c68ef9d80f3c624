"""Where the files of `conf/` are, in a checkout and in an installed wheel."""

from pathlib import Path


def conf_dir() -> Path:
    """Return the directory of the configuration files.

    A wheel carries them as `streaming/conf`; a checkout has them beside the packages.
    """
    here = Path(__file__).resolve().parent
    packaged = here / "conf"
    return packaged if packaged.is_dir() else here.parent / "conf"
