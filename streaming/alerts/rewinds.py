"""Finds rewinds in new rows of `changes`, and waits until it is clear whether they last."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.alerts.rules.subjects import REWOUND_RULE, GroupPolicies
from streaming.alerts.rules.view import not_history, of_partitions
from streaming.common.arrays import Index, from_mask, numbers_or, to_mask, to_numbers
from streaming.common.timestamps import timestamp, to_milliseconds
from streaming.lag.health_rules import HealthRules
from streaming.lag.positions import topics_in
from streaming.lag.rewinds import WHO, lasting, with_who
from streaming.model.completeness import Completeness, read_until
from streaming.model.progress import Progress
from streaming.tables.feed import REWINDS
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables

REWOUND: Final = pa.schema([*REWINDS, *WHO])
"""A rewind that lasts, and who can have committed it."""


@dataclass(frozen=True)
class Awaited:
    """Undecided rewinds (schema `REWINDS`), among those up to the sequence `up_to` of `changes`."""

    up_to: int = 0
    rows: pa.Table = field(default_factory=REWINDS.empty_table)

    @property
    def mark(self) -> int:
        """The sequence up to which all rewinds are decided."""
        earliest: int | None = pc.min(self.rows["sequence"]).as_py()
        return self.up_to if earliest is None else min(self.up_to, earliest - 1)


class Rewinds:
    """Reads rewinds. Without new changes and undecided rewinds it reads nothing."""

    def __init__(self, tables: Tables, policies: GroupPolicies, health: HealthRules | None = None) -> None:
        self._tables = tables
        self._policies = policies
        self._after_ms = (health or HealthRules()).rewind_after_ms

    def read(
        self, completeness: Completeness, *, after: int, awaited: Awaited, at: Snapshot | None = None
    ) -> tuple[pa.Table, Awaited]:
        """Return the rewinds that last (schema `REWOUND`), and the undecided ones.

        Candidates are those `awaited` and those in changes after the sequence `after`. They are read from the
        snapshot `at` (None: one is opened if there is something to read).
        """
        progress, now, judged = completeness.progress, completeness.moment, completeness.complete
        after = max(after, awaited.up_to)
        is_new = after < progress.sequence and self._policies.has_on(REWOUND_RULE)
        can_decide = bool(len(of_partitions(awaited.rows, judged)))
        if not is_new and not can_decide:
            return REWOUND.empty_table(), Awaited(max(after, progress.sequence), awaited.rows)
        if at is not None:
            return self._divided(at, awaited.rows, judged, now, after=after)
        return self._tables.ask(lambda opened: self._divided(opened, awaited.rows, judged, now, after=after))

    def _divided(
        self, at: Snapshot, awaited: pa.Table, judged: frozenset[int], now: int, *, after: int
    ) -> tuple[pa.Table, Awaited]:
        found = at.rewinds(after=after, since=now - self._policies.settings.close_after_ms)
        found = self._policies.with_on(not_history(found, at.progress), REWOUND_RULE)
        is_news = pc.greater(awaited["written_at"], timestamp(now - self._policies.settings.close_after_ms))
        both = pa.concat_tables([awaited.filter(is_news), found])
        is_judged = to_mask(
            pc.is_in(both["source_partition"], value_set=pa.array(sorted(judged), pa.int32()))
        )
        some, others = both.filter(from_mask(is_judged)), both.filter(from_mask(~is_judged))
        if not len(some):
            return REWOUND.empty_table(), Awaited(at.progress.sequence, both)
        groups = pc.unique(some["group"]).to_pylist()
        since = int(numbers_or(to_milliseconds(some["written_at"]), 0).min())
        lasts, waiting = lasting(
            some,
            at.commits(groups, since=since),
            at.topics_over_time(topics_in(some), as_of=now),
            read_until=_read_until(some, at.progress, now),
            after_ms=self._after_ms,
        )
        rows = pa.concat_tables([waiting, others])
        groups = pc.unique(lasts["group"]).to_pylist()
        named = with_who(lasts, at.group_steps(groups)) if groups else REWOUND.empty_table()
        return named, Awaited(at.progress.sequence, rows)


def _read_until(rows: pa.Table, progress: Progress, now: int) -> Index:
    """Return the moment (ms) up to which all commits of the offsets partition of each of n rows are known."""
    known = {number: read_until(one, progress) for number, one in progress.partitions.items()}
    return np.array(
        [min(now, known.get(number, 0)) for number in to_numbers(rows["source_partition"])], np.int64
    )
