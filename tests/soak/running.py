"""The broker, the groups and the real job of a soak, with all that they write under one folder."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import kafka_clients as kafka
from job_process import JobProcess

from streaming.brokers.broker import Broker
from streaming.demo.local_broker import LocalBroker
from streaming.jvm.jars import ensure_jars
from streaming.settings.reading import read_settings
from streaming.tables.tables import TablesMissingError
from tests.soak.traffic import Plan, begin
from tests.soak.watch import Watch

OFFSETS_PARTITIONS: Final = 50  # Kafka's default

_SETTINGS: Final = """
[alerts]
log = "off"
# One alert for all short-lived groups, as for those of the console consumer: nobody waits for them.
[[alerts.groups]]
pattern = "short-*"
treat = "summarize"
[spark]
log_file = "{directory}/spark.log"
"""
"""Else the defaults, as users have them."""

_LONG_S: Final = 300.0


@dataclass(frozen=True)
class Running:
    """A job that has read what was there when it started."""

    bootstrap: str
    job: JobProcess
    watch: Watch

    def wait_until_read(self) -> None:
        """Wait until the tables have all that has been committed; nobody may commit meanwhile."""
        kafka.wait_until(self._has_read_all, "the job to read all there is", timeout_s=_LONG_S)

    def stop(self) -> None:
        """Stop the job in good order."""
        assert self.job.stop() == 0, self.job.output[-2_000:]

    def _has_read_all(self) -> bool:
        self.job.check()
        source = read_settings(options={"source.bootstrap_servers": self.bootstrap}).source
        ends = Broker(source).ends(OFFSETS_PARTITIONS)
        try:
            partitions = self.job.tables.progress().partitions
        except TablesMissingError:
            return False
        positions = {number: partition.position for number, partition in partitions.items()}
        return positions == {number: end.last_stable_offset for number, end in ends.items()}


@contextmanager
def running(directory: Path, plan: Plan, overrides: Mapping[str, str | int]) -> Iterator[Running]:
    """Start a broker, commit what is there before the clock starts, and the real job; stop all at the end."""
    folder = directory / "job"
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    broker = LocalBroker(
        directory / "broker",
        offsets_partitions=OFFSETS_PARTITIONS,
        overrides=overrides,
        heap="1g",
        jars=ensure_jars("broker"),
    )
    with broker:
        bootstrap = broker.bootstrap_servers
        begin(bootstrap, plan, OFFSETS_PARTITIONS)
        environment = {
            "SPARK_LOCAL_DIRS": str(scratch),
            "JAVA_TOOL_OPTIONS": f"-Xlog:gc:file={folder}/gc.log",
        }
        job = JobProcess(folder, bootstrap, settings=_SETTINGS, environment=environment)
        job.start()
        try:
            run = Running(bootstrap, job, Watch(job))
            run.wait_until_read()
            yield run
        finally:
            job.kill()
