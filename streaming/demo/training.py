"""Creates the archive of classes for the job's JVM by running the job on a local broker.

    python -m streaming.demo.training

Without such an archive the job works as well, but starts five seconds later: a failure here is one line of
output, with exit code 0. It takes about 40 seconds and 180 MB; nothing if the archive exists.
"""

import sys
import tempfile
import time
from pathlib import Path

from streaming.jvm.class_archive import TRIED, archive_name, find_archive, put_in_place
from streaming.jvm.jars import ensure_jars
from streaming.model.errors import OffsetlakeError


def main() -> int:
    """Create the archive unless it exists, and print the result; return the exit code, which is 0."""
    started = time.monotonic()
    try:
        jars = ensure_jars("connector")
        name = archive_name(jars)
        if name is None:
            print(f"classes: no archive, which is for Java {TRIED} alone")
            return 0
        there = find_archive(jars)
        archive = there or make_archive(jars.parent, name)
    except (OffsetlakeError, OSError, ValueError) as error:
        print(f"classes: no archive, so starts take longer: {error}", file=sys.stderr)
        return 0
    how = "already there" if there else f"made in {time.monotonic() - started:.1f} s"
    print(f"classes: {archive} ({how})")
    return 0


def make_archive(cache: Path, name: str) -> Path:
    """Run the job with real consumer groups, and let its JVM write the loaded classes.

    Raises `OffsetlakeError` and `OSError`.
    """
    from streaming.demo.demo import (
        demo_settings,
        log_of_spark,
    )  # late: these load Spark and a Kafka client
    from streaming.demo.local_broker import LocalBroker
    from streaming.demo.traffic import DemoTraffic
    from streaming.job.run import archive_classes

    with tempfile.TemporaryDirectory(dir=cache, prefix=".training-") as directory:
        made = Path(directory, "classes.jsa")
        with (
            log_of_spark() as log,
            LocalBroker(Path(directory, "broker")) as broker,
            DemoTraffic(broker.bootstrap_servers),
        ):
            archive_classes(demo_settings(broker.bootstrap_servers, Path(directory), log), made)
        return put_in_place(made, cache, name)


if __name__ == "__main__":
    sys.exit(main())
