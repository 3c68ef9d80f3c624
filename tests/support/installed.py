"""offsetlake as others install it: from a built wheel, beside the libraries of a dependency group."""

import os
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def build_wheel(folder: Path) -> Path:
    return Path(next(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])))


def install_for_readers(wheel: Path, site: Path) -> None:
    """Install a wheel into a folder, and links to the libraries of the group `serve`."""
    site.mkdir(parents=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for distribution in with_requirements(PYPROJECT["dependency-groups"]["serve"]):
        for name in sorted({file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}):
            site.joinpath(name).symlink_to(Path(str(distribution.locate_file(name))))


def with_requirements(required: Iterable[str]) -> Iterator[metadata.Distribution]:
    """Yield the installed distributions that requirements name, and those that these require."""
    waiting = [Requirement(one) for one in required]
    seen = set()
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if name in seen or (one.marker is not None and not one.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        distribution = metadata.distribution(name)
        yield distribution
        waiting += map(Requirement, distribution.requires or ())


def python_in(*sites: Path) -> list[str]:
    """Return the command of this Python without its libraries and without home; it imports from folders."""
    path = os.pathsep.join(map(str, sites))
    return ["/usr/bin/env", "HOME=", f"PYTHONPATH={path}", sys.executable, "-S", "-P"]


def command_in(*sites: Path) -> list[str]:
    """Return the command of an installation in the last of these folders."""
    return [*python_in(*sites), "-m", "offsetlake"]
