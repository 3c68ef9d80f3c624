"""How the brokers of the tests start: with an archive of their classes, for half the processor time.

It is what `streaming.jvm.class_archive` is for the job. The first broker on a machine makes it, in the jar
cache, for one Java and one set of jars. A JVM that it does not match starts without it.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from streaming.demo.local_broker import LocalBroker
from streaming.jvm.class_archive import IN_PLACE, archiving_options, digest_of

_QUICK: Final = ("-XX:+UseSerialGC", "-XX:-UsePerfData")
"""One collector thread, and no counters for `jps`: little memory is in use, for seconds."""


@cache
def java_options(jars: Path) -> Sequence[str]:
    """Return the options of a broker's JVM; make the archive if there is none."""
    archive = _archive_of(jars)
    if archive is not None and not archive.exists():
        _make(jars, archive)
    return (*_QUICK, *archive_options(jars))


def archive_options(jars: Path) -> Sequence[str]:
    """Return the options of a JVM whose class path begins with a broker's jars; none without an archive."""
    archive = _archive_of(jars)
    if archive is None or not archive.exists():
        return ()
    return (*IN_PLACE, f"-XX:SharedArchiveFile={archive}")


def _archive_of(jars: Path) -> Path | None:
    digest = digest_of(sorted(jars.glob("*.jar")))
    return None if digest is None else jars.parent / f"{jars.name}-{digest}.jsa"


def _make(jars: Path, archive: Path) -> None:
    """Run a broker whose JVM writes its classes when it ends. Others may do so at the same time."""
    with TemporaryDirectory(dir=jars.parent, prefix=".broker-") as directory:
        made = Path(directory, "classes.jsa")
        options = [*_QUICK, *(option.strip('"') for option in archiving_options(made))]
        with LocalBroker(Path(directory, "broker"), jars=jars, java_options=options):
            pass
        made.replace(archive)
