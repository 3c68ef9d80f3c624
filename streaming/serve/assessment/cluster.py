"""A cluster that is served: its tables, their newest snapshot, and the assessment of that."""

from dataclasses import dataclass
from typing import Final, Self

from streaming.lag.health_rules import HealthRules
from streaming.serve.assessment.complete import is_ready
from streaming.serve.assessment.refresher import Refresher
from streaming.serve.memory.reading import Counting
from streaming.serve.memory.tailer import Tailer
from streaming.settings.model import Settings
from streaming.tables.tables import Tables

_NOT_READ: Final = "not read yet"


@dataclass(frozen=True, eq=False, kw_only=True)
class ServedCluster:
    """A cluster by its name (empty: the only one, which is not named), and its own settings.

    `tailer` and `refresher` are threads that are not started.
    """

    name: str
    settings: Settings
    tables: Tables
    tailer: Tailer
    refresher: Refresher

    @classmethod
    def of(cls, name: str, settings: Settings, *, counters: Counting | None = None) -> Self:
        """Return the cluster of the tables at `[tables] root` of its settings; `counters` None: none."""
        held, where = settings.tables, f"cluster {name}: " if name else ""
        tables = Tables(held.root, held.storage_options, held.complete_within_ms)
        tailer = Tailer(tables, counters=counters, where=where)
        refresher = Refresher(
            tables,
            lambda: tailer.current,
            health=HealthRules.of(settings.health),
            expiry=settings.expiry,
            where=where,
        )
        return cls(name=name, settings=settings, tables=tables, tailer=tailer, refresher=refresher)

    def failures(self) -> list[str]:
        """Return the errors of the last reading of the tables; before the first one, that there was none."""
        poll = self.tailer.last_poll
        return [_NOT_READ] if poll is None else list(poll.failures)

    def is_ready(self, now: int) -> bool:
        """Return whether the tables can be read, and the job is alive at a moment (ms)."""
        within_ms = self.settings.tables.complete_within_ms
        return not self.failures() and is_ready(self.tailer.current, now=now, within_ms=within_ms)
