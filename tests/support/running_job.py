"""Runs the real job in a test: on the shared Spark session, against a real broker, into real tables."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from logged import logged
from pyspark.sql import SparkSession

from streaming.brokers.broker import Broker
from streaming.job.follow import follow
from streaming.job.reading import TopicReader
from streaming.job.reporter import BatchReport, Reporter
from streaming.job.sole_writer import sole_writer
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables


@dataclass
class RunningJob:
    """A job with tables and a checkpoint of its own under `root`, which outlive each of its runs."""

    spark: SparkSession
    bootstrap: str
    root: Path
    topic: str = "__consumer_offsets"
    options: dict[str, object] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    reports: list[BatchReport] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        """The settings of the job."""
        return read_settings(
            options={
                "source.bootstrap_servers": self.bootstrap,
                "source.topic": self.topic,
                "tables.root": str(self.root / "tables"),
                "job.checkpoint": str(self.root / "checkpoint"),
                "job.trigger": "200ms",
                **self.options,
            }
        )

    @property
    def tables(self) -> Tables:
        """The tables of the job."""
        return Tables(self.settings.tables.root)

    def run_once(self) -> Tables:
        """Read to the present end of the topic and stop."""
        self.run(threading.Event(), once=True)
        return self.tables

    def run(self, stop: threading.Event, *, once: bool = False) -> None:
        """Run until `stop` is set."""
        with logged(into=self.said), self.reader(stop) as reader:
            follow(reader, once=once)

    @contextmanager
    def reader(
        self, stop: threading.Event, *, on_batch: Callable[[BatchReport], None] = lambda _report: None
    ) -> Iterator[TopicReader]:
        """Yield a new reader of the topic, the only writer of the tables, as at each start."""

        def report(report: BatchReport) -> None:
            self.reports.append(report)
            on_batch(report)

        broker = Broker(self.settings.source)
        facts = broker.wait_for_topic(lambda: False)
        assert facts is not None
        listener = Reporter(report, self.said.append)
        with sole_writer(self.settings, stop, waiting=lambda _text: nullcontext()) as name:
            yield TopicReader(self.spark, self.settings, broker, facts, listener, stop, name)
