"""Collects the input of metrics from the parts of `serve`, for the HTTP listener."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Self

from streaming.alerts.rules import RULES
from streaming.common.times import now_ms
from streaming.lag.rules import HealthRules
from streaming.model.errors import OffsetlakeError
from streaming.serve.assessment.assessment import Assessment
from streaming.serve.assessment.complete import is_ready
from streaming.serve.assessment.counters import Counters
from streaming.serve.assessment.refresher import Refresher
from streaming.serve.kafka.listener import KafkaListener
from streaming.serve.memory.tailer import Tailer
from streaming.serve.metrics.exposition import Exposition, Format, Pieces, written
from streaming.serve.metrics.publisher import Publisher
from streaming.serve.metrics.source import KafkaCounts, MetricsSource
from streaming.serve.page.asked import PageCluster
from streaming.serve.page.pages import Pages
from streaming.serve.page.rate import CommitRate
from streaming.settings.model import Settings
from streaming.tables.tables import Tables

_log = logging.getLogger(__name__)

_RULES: Final = tuple(rule.id for rule in RULES)


class ServedMetrics(AbstractContextManager["ServedMetrics"]):
    """Builds metrics from a tailer of the tables within a `with` block (`http.app.Known`).

    `listeners` are the Kafka listeners.
    """

    def __init__(
        self,
        settings: Settings,
        tables: Tables,
        tailer: Tailer,
        *,
        listeners: Sequence[KafkaListener] = (),
    ) -> None:
        """Raises `MisuseError` for labels that no series can have."""
        self._settings, self._tables = settings, tables
        self._tailer, self._listeners = tailer, listeners
        self._refresher = Refresher(
            tables,
            lambda: tailer.current,
            health=HealthRules.of(settings.health),
            expiry=settings.expiry,
        )
        self.publisher = Publisher(self._source, Exposition(settings.metrics))
        self.pages = Pages([self._page_cluster()], has_login=bool(settings.serve.http.token_file))

    def is_ready(self) -> bool:
        """Return whether the tables can be read and the job is alive."""
        within_ms = self._settings.tables.complete_within_ms
        return not self._failures() and is_ready(self._tailer.current, now=now_ms(), within_ms=within_ms)

    def __enter__(self) -> Self:
        self._running = ExitStack()
        self._running.enter_context(self._refresher)
        self._running.enter_context(self.publisher)
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def _source(self, took_s: float | None) -> MetricsSource:
        assessment = self._refresher.current()
        return source_of(
            self._settings, self._tailer, assessment, kafka=_counts(self._listeners), took_s=took_s
        )

    def _page_cluster(self) -> PageCluster:
        rate, tailer = CommitRate(), self._tailer

        def commits_per_minute(now: int) -> float | None:
            counters = tailer.newest.counters
            return rate.per_minute(now, counters.commits_in_all) if isinstance(counters, Counters) else None

        return PageCluster(
            name="",
            settings=self._settings,
            tables=self._tables,
            snapshot=lambda: tailer.current,
            assessment=self._refresher.current,
            commits_per_minute=commits_per_minute,
            failures=self._failures,
        )

    def _failures(self) -> Sequence[str]:
        poll = self._tailer.last_poll
        return () if poll is None else list(poll.failures)


def metrics_once(settings: Settings, tables: Tables, style: Format) -> Pieces:
    """Return the present metrics, without counters over time.

    Raises `OffsetlakeError` if no topic was read into the tables yet.
    """
    exposition = Exposition(settings.metrics)
    tailer = Tailer(tables)
    tailer.poll()
    if not tailer.current.progress.partitions:
        raise OffsetlakeError(
            f"making metrics: expected tables at {tables.root} into which a topic was read, found none that "
            "can be read. Check --table-root, or start `offsetlake run` first."
        )
    refresher = Refresher(
        tables,
        lambda: tailer.current,
        health=HealthRules.of(settings.health),
        expiry=settings.expiry,
    )
    families = exposition.families(source_of(settings, tailer, refresher.make()))
    if lacks := exposition.admission.warning:
        _log.warning(lacks)
    return written(families, style)


def source_of(
    settings: Settings,
    tailer: Tailer,
    assessment: Assessment,
    *,
    kafka: KafkaCounts | None = None,
    took_s: float | None = None,
) -> MetricsSource:
    poll, newest = tailer.last_poll, tailer.newest
    return MetricsSource(
        now=now_ms(),
        version=_version(),
        snapshot=newest.snapshot,
        assessment=assessment,
        counters=newest.counters if isinstance(newest.counters, Counters) else None,
        settings=settings,
        failures=() if poll is None else list(poll.failures),
        kafka=kafka,
        took_s=took_s,
        rules=_RULES,
    )


def _counts(listeners: Sequence[KafkaListener]) -> KafkaCounts | None:
    if not listeners:
        return None
    return KafkaCounts(
        requests=_summed([one.requests() for one in listeners]),
        connections=sum(one.connections for one in listeners),
        closed=_summed([one.closed_connections() for one in listeners]),
    )


def _summed(counts: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    """Add up the counts of all listeners; all have the same names."""
    return {name: sum(one[name] for one in counts) for name in counts[0]}


def _version() -> str:
    try:
        return version("offsetlake")
    except PackageNotFoundError:  # a checkout that is not installed
        return "unknown"
