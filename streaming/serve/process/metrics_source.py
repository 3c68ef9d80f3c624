"""Collects the input of metrics from the parts of `serve`, for the HTTP listener."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import PackageNotFoundError, version
from time import monotonic
from types import MappingProxyType
from typing import Final, Self, TypeVar

from streaming.alerts.rules import RULES
from streaming.common.rate_limits import end_together
from streaming.common.times import now_ms
from streaming.model.errors import OffsetlakeError
from streaming.serve.assessment.assessment import Assessment
from streaming.serve.assessment.cluster import ServedCluster
from streaming.serve.assessment.counters import Counters
from streaming.serve.assessment.refresher import LONGEST_WAIT_S
from streaming.serve.kafka.listener import KafkaListener
from streaming.serve.memory.past import PastCounts
from streaming.serve.metrics.exposition import Exposition, Format, Pieces, written
from streaming.serve.metrics.publisher import Publisher
from streaming.serve.metrics.source import KafkaCounts, MetricsSource
from streaming.serve.page.asked import PageCluster
from streaming.serve.page.pages import Pages
from streaming.settings.model import Settings

_log = logging.getLogger(__name__)

_Counted = TypeVar("_Counted")

_RULES: Final = tuple(rule.id for rule in RULES)

NO_LISTENERS: Final[Mapping[str, Sequence[KafkaListener]]] = MappingProxyType({})


class ServedMetrics(AbstractContextManager["ServedMetrics"]):
    """Builds metrics of clusters, whose tables are followed, within a `with` block (`http.app.Known`).

    `listeners` are the Kafka listeners by name of their cluster. `past` returns the counts of past snapshots
    of the tables at a root (None: no listener answers about the past).
    """

    def __init__(
        self,
        settings: Settings,
        clusters: Sequence[ServedCluster],
        *,
        listeners: Mapping[str, Sequence[KafkaListener]] = NO_LISTENERS,
        past: Callable[[str], PastCounts] | None = None,
    ) -> None:
        """Raises `MisuseError` for labels that no series can have."""
        self._clusters, self._listeners, self._past = clusters, listeners, past
        exposition = Exposition(settings.metrics, [cluster.name for cluster in clusters])
        self.publisher = Publisher(self._sources, exposition)
        pages = [PageCluster.of(cluster) for cluster in clusters]
        self.pages = Pages(pages, has_login=bool(settings.serve.http.token_file))

    def readiness(self) -> Mapping[str, bool]:
        """Return whether the tables of each cluster can be read and its job is alive."""
        now = now_ms()
        return {cluster.name: cluster.is_ready(now) for cluster in self._clusters}

    def __enter__(self) -> Self:
        self._threads = [self.publisher, *(cluster.refresher for cluster in self._clusters)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        end_together(self._threads)

    def _sources(self, took_s: float | None) -> list[MetricsSource]:
        for cluster in self._clusters:  # so that all assess at the same time
            cluster.refresher.ask()
        until = monotonic() + LONGEST_WAIT_S
        return [
            source_of(
                cluster,
                cluster.refresher.current(until=until),
                kafka=_counts(
                    self._listeners.get(cluster.name, ()),
                    None if self._past is None else self._past(cluster.tables.root),
                ),
                took_s=took_s,
            )
            for cluster in self._clusters
        ]


def metrics_once(settings: Mapping[str, Settings], style: Format) -> Pieces:
    """Return the present metrics of clusters, by name the settings of each, without counters over time.

    Raises `OffsetlakeError` if no topic was read yet into the tables of any cluster.
    """
    exposition = Exposition(next(iter(settings.values())).metrics, settings)
    clusters = [ServedCluster.of(name, own) for name, own in settings.items()]
    for cluster in clusters:
        cluster.tailer.poll()
    if not any(cluster.tailer.current.progress.partitions for cluster in clusters):
        roots = " or ".join(cluster.tables.root for cluster in clusters)
        raise OffsetlakeError(
            f"making metrics: expected tables at {roots} into which a topic was read, found none that "
            "can be read. Check --table-root or [[serve.clusters]], or start `offsetlake run` first."
        )
    families = exposition.families(*(source_of(one, one.refresher.make()) for one in clusters))
    for name, lacks in exposition.lacks.items():
        if lacks:
            _log.warning(f"cluster {name}: {lacks}" if name else lacks)
    return written(families, style)


def source_of(
    cluster: ServedCluster,
    assessment: Assessment,
    *,
    kafka: KafkaCounts | None = None,
    took_s: float | None = None,
) -> MetricsSource:
    newest = cluster.tailer.newest
    return MetricsSource(
        now=now_ms(),
        version=_version(),
        snapshot=newest.snapshot,
        assessment=assessment,
        counters=newest.counters if isinstance(newest.counters, Counters) else None,
        settings=cluster.settings,
        failures=cluster.failures(),
        kafka=kafka,
        took_s=took_s,
        rules=_RULES,
        cluster=cluster.name,
    )


def _counts(listeners: Sequence[KafkaListener], past: PastCounts | None) -> KafkaCounts | None:
    if not listeners:
        return None
    return KafkaCounts(
        requests=_summed([one.counts.requests() for one in listeners]),
        software=_summed([one.counts.software() for one in listeners]),
        errors=_summed([one.counts.errors() for one in listeners]),
        connections=sum(one.connections for one in listeners),
        closed=_summed([one.counts.closed() for one in listeners]),
        past=past,
    )


def _summed(counts: Sequence[Mapping[_Counted, int]]) -> Mapping[_Counted, int]:
    """Add up the counts of all listeners."""
    summed = Counter[_Counted]()
    for one in counts:
        summed.update(one)
    return summed


def _version() -> str:
    try:
        return version("offsetlake")
    except PackageNotFoundError:  # a checkout that is not installed
        return "unknown"
