"""The archive of the classes that the job's JVM loads.

With an archive (Java's application class data sharing) a JVM maps about 20,000 classes into memory, instead
of unpacking, parsing and verifying each. `python -m streaming.demo.training` creates it by a run of the job,
for one Java and one class path: its name has a digest of both, and its size. The JVM checks again that it
matches, and starts without an archive that does not.
"""

import hashlib
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from streaming.jvm.java import find_java, java_version, said_of_version
from streaming.jvm.ownership import refuse_foreign

TRIED: Final = 17
"""The Java release that archives were tested with; others start without one."""

IN_PLACE: Final = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
"""Map the archive at its original address. By default Java picks another one, and rewrites every page."""

_OF_OPTIONS: Final = re.compile(r"^(?:NOTE: )?Picked up .*\n|, \w+ mode\b.*", re.MULTILINE)
"""What `java -version` says of options, such as those in JDK_JAVA_OPTIONS: they make it no other Java."""

_KEPT: Final = 3  # archives of 180 MB each: also those of other checkouts or of the release before


def archive_options(jars: Path) -> list[str]:
    """Return the JVM options that use the archive; none without a matching archive."""
    archive = find_archive(jars)
    return [] if archive is None else [*IN_PLACE, f'"-XX:SharedArchiveFile={archive}"']


def find_archive(jars: Path) -> Path | None:
    """Return the matching archive if it is complete: a truncated one would crash the JVM.

    Its modification time becomes the current time, so that archives in use are kept (`put_in_place`). Raises
    `ForeignFileError` if others may write it.
    """
    name = archive_name(jars)
    found = [] if name is None else jars.parent.glob(f"{name}-*.jsa")
    with suppress(OSError):  # another installation may be removing it
        for file in found:
            if file.name == _with_size(name or "", file):
                refuse_foreign([file], "archive of classes")
                with suppress(OSError):  # the cache may be another user's, or read-only
                    os.utime(file)
                return file
    return None


def archiving_options(file: Path) -> list[str]:
    """Return the JVM options that write an archive when the JVM ends, which takes about ten seconds."""
    return [f'"-XX:ArchiveClassesAtExit={file}"']


def archive_name(jars: Path) -> str | None:
    """Return the beginning of the archive's name, `classes-<digest>`; None for another Java release."""
    digest = digest_of(_class_path(jars))
    return digest and f"classes-{digest}"


def digest_of(class_path: Iterable[Path]) -> str | None:
    """Return a digest of Java and jars for the name of an archive; None for another Java release.

    It is of the output of `java -version`, whatever its options are, and of path, size and modification time
    of every jar.
    """
    java = find_java()
    if java_version(java) != TRIED:
        return None
    digest = hashlib.sha256(_OF_OPTIONS.sub("", said_of_version(java)).encode())
    for jar in class_path:
        stat = jar.stat()
        digest.update(f"\n{jar} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:8]


def put_in_place(made: Path, cache: Path, name: str) -> Path:
    """Move an archive to its final name in the cache, which ends with its size; keep only the few archives
    that were used or made last.

    It is synced to the disk first, and then renamed in one step. Returns its path.
    """
    made.chmod(0o444)  # readable for all users of the cache, like jars
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
    pyspark = importlib.util.find_spec("pyspark")  # importing it would take half a second
    if pyspark is not None and pyspark.origin is not None:
        yield from sorted((Path(pyspark.origin).parent / "jars").glob("*.jar"))
