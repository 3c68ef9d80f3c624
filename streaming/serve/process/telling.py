"""What the HTTP door tells: metrics made of what `serve` knows."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Self

from streaming.alerts.rules import RULES
from streaming.common.times import now_ms
from streaming.lag.rules import HealthRules
from streaming.model.errors import OffsetlakeError
from streaming.serve.kafka.listener import Listener
from streaming.serve.metrics.exposition import Exposition, Format, Pieces, written
from streaming.serve.metrics.publisher import Publisher
from streaming.serve.metrics.source import KafkaCounts, Source
from streaming.serve.picture.follower import Follower
from streaming.serve.standing.complete import is_ready
from streaming.serve.standing.counters import Counters
from streaming.serve.standing.keeper import Keeper
from streaming.serve.standing.standing import Standing
from streaming.settings.model import Settings
from streaming.tables.tables import Tables

Say = Callable[[str], None]

_RULES: Final = tuple(rule.id for rule in RULES)


class Telling(AbstractContextManager["Telling"]):
    """Makes metrics within a `with` block, of what a follower of the tables has (`http.app.Known`).

    `listeners` are the Kafka doors, as they come.
    """

    def __init__(
        self,
        settings: Settings,
        tables: Tables,
        follower: Follower,
        warn: Say,
        *,
        listeners: Sequence[Listener] = (),
    ) -> None:
        """Raises `MisuseError` for labels that no series can have."""
        self._settings, self._follower, self._listeners = settings, follower, listeners
        self._keeper = Keeper(
            tables,
            lambda: follower.current,
            warn,
            health=HealthRules.of(settings.health),
            expiry=settings.expiry,
        )
        self.publisher = Publisher(self._source, Exposition(settings.metrics), warn)

    def is_ready(self) -> bool:
        """Tell whether the tables can be read, and the job is alive."""
        within_ms = self._settings.tables.complete_within_ms
        return not self._failures() and is_ready(self._follower.current, now=now_ms(), within_ms=within_ms)

    def __enter__(self) -> Self:
        self._running = ExitStack()
        self._running.enter_context(self._keeper)
        self._running.enter_context(self.publisher)
        return self

    def __exit__(self, *_: object) -> None:
        """End the threads that make metrics."""
        self._running.close()

    def _source(self, took_s: float | None) -> Source:
        standing = self._keeper.current()
        return source_of(
            self._settings, self._follower, standing, kafka=_counts(self._listeners), took_s=took_s
        )

    def _failures(self) -> Sequence[str]:
        look = self._follower.last_look
        return () if look is None else list(look.failures)


def metrics_once(settings: Settings, tables: Tables, style: Format, warn: Say) -> Pieces:
    """Return the metrics as they are now; without those that are counted over time.

    Raises `OffsetlakeError` where nothing was read, for then nothing can be said.
    """
    exposition = Exposition(settings.metrics)
    follower = Follower(tables, warn)
    follower.look()
    if not follower.current.progress.partitions:
        raise OffsetlakeError(
            f"making metrics: expected tables at {tables.root} into which a topic was read, found none that "
            "can be read. Check --table-root, or start `offsetlake run` first."
        )
    keeper = Keeper(
        tables,
        lambda: follower.current,
        warn,
        health=HealthRules.of(settings.health),
        expiry=settings.expiry,
    )
    families = exposition.families(source_of(settings, follower, keeper.make()))
    if lacks := exposition.admission.complaint:
        warn(lacks)
    return written(families, style)


def source_of(
    settings: Settings,
    follower: Follower,
    standing: Standing,
    *,
    kafka: KafkaCounts | None = None,
    took_s: float | None = None,
) -> Source:
    """Return what metrics are made from now."""
    look, newest = follower.last_look, follower.newest
    return Source(
        now=now_ms(),
        version=_version(),
        picture=newest.picture,
        standing=standing,
        counters=newest.tally if isinstance(newest.tally, Counters) else None,
        settings=settings,
        failures=() if look is None else list(look.failures),
        kafka=kafka,
        took_s=took_s,
        rules=_RULES,
    )


def _counts(listeners: Sequence[Listener]) -> KafkaCounts | None:
    if not listeners:
        return None
    return KafkaCounts(
        requests=_summed([one.requests() for one in listeners]),
        connections=sum(one.connections for one in listeners),
        closed=_summed([one.closed_connections() for one in listeners]),
    )


def _summed(counts: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    """Add up what listeners have counted, all by the same names."""
    return {name: sum(one[name] for one in counts) for name in counts[0]}


def _version() -> str:
    try:
        return version("offsetlake")
    except PackageNotFoundError:  # a checkout that nobody has installed
        return "unknown"
