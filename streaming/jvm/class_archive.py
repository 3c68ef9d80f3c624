"""Where the archive of the classes is that the JVM of the job loads, and whether it fits.

With an archive (Java's application class data sharing) a JVM maps some 20,000 classes into memory, instead
of unpacking, parsing and verifying each. `python -m streaming.demo.training` makes it by a run of the job,
for one Java and one class path: its name carries a digest of both, and its size. The JVM compares again what
it was made for, and starts without an archive that does not fit.
"""

import hashlib
import importlib.util
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from streaming.jvm.java import find_java, java_version, said_of_version
from streaming.jvm.ownership import refuse_foreign

TRIED: Final = 17
"""The release of Java that this was tried with; others start without an archive."""

_IN_PLACE: Final = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
"""Map the archive where it was made for: elsewhere, as Java does by itself, every page of it is rewritten."""

_KEPT: Final = 3  # archives of 180 MB each: those of other checkouts or of the release before


def archive_options(jars: Path) -> list[str]:
    """Return the options with which a JVM uses the archive of its classes, if there is one that fits."""
    archive = find_archive(jars)
    return [] if archive is None else [*_IN_PLACE, f'"-XX:SharedArchiveFile={archive}"']


def find_archive(jars: Path) -> Path | None:
    """Return the archive if it is there as a whole: a JVM would not survive one that was cut short.

    Raises `ForeignFileError` where others may write it.
    """
    name = archive_name(jars)
    found = [] if name is None else jars.parent.glob(f"{name}-*.jsa")
    with suppress(OSError):  # another set-up may be removing it
        for file in found:
            if file.name == _with_size(name or "", file):
                refuse_foreign([file], "archive of classes")
                return file
    return None


def archiving_options(file: Path) -> list[str]:
    """Return the options with which a JVM writes an archive when it ends: for some ten seconds."""
    return [f'"-XX:ArchiveClassesAtExit={file}"']


def archive_name(jars: Path) -> str | None:
    """Return how the name of the archive begins: `classes-<digest>`; None for another Java.

    The digest is of what `java -version` prints, and of the place, size and time of change of every jar.
    """
    java = find_java()
    if java_version(java) != TRIED:
        return None
    digest = hashlib.sha256(said_of_version(java).encode())
    for jar in _class_path(jars):
        stat = jar.stat()
        digest.update(f"\n{jar} {stat.st_size} {stat.st_mtime_ns}".encode())
    return f"classes-{digest.hexdigest()[:8]}"


def put_in_place(made: Path, cache: Path, name: str) -> Path:
    """Give an archive its name in the cache, which ends with its size; drop all but the newest few.

    It gets it in one step, and once it is on the disk. Returns where it is.
    """
    made.chmod(0o444)  # as jars, for all who use the cache
    with made.open("rb") as file:
        os.fsync(file.fileno())
    archive = made.replace(cache / _with_size(name, made))
    for old in sorted(cache.glob("classes-*.jsa"), key=lambda file: file.stat().st_mtime)[:-_KEPT]:
        old.unlink(missing_ok=True)
    return archive


def _with_size(name: str, file: Path) -> str:
    return f"{name}-{file.stat().st_size}.jsa"


def _class_path(jars: Path) -> Iterator[Path]:
    yield from sorted(jars.glob("*.jar"))
    pyspark = importlib.util.find_spec("pyspark")  # not imported: that takes half a second
    if pyspark is not None and pyspark.origin is not None:
        yield from sorted((Path(pyspark.origin).parent / "jars").glob("*.jar"))
