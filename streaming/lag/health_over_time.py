"""How the health of groups has changed: the rules applied to every moment of a past time."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.common.arrays import Index, from_numbers
from streaming.common.keys import KEY_NAMES, numbered
from streaming.common.pieces import take
from streaming.common.timestamps import to_timestamps
from streaming.lag.health import PARTITION_HEALTH, facts
from streaming.lag.log_ends import LAG, lag_of
from streaming.lag.rules import STATUSES, HealthRules, Judged, ends_before, judge
from streaming.lag.runs import Runs
from streaming.lag.samples import NONE, Samples
from streaming.model.schemas import KEY, TIMESTAMP

STATUS_CHANGES: Final = pa.schema(
    [
        ("at", TIMESTAMP),  # the first of the moments at which it was so
        KEY[0],
        ("status", pa.string()),
        ("status_before", pa.string()),  # null: the first one known in that time
        *KEY[1:],  # the partition that decided
        ("committed_offset", pa.int64()),
        *list(LAG)[:3],
        *list(PARTITION_HEALTH)[1:],
    ]
)
"""A change of the status of a group, with the facts of the partition that decided."""

_AT_ONCE: Final = 1_000_000  # positions that are judged at a time


def status_changes(
    commits: pa.Table,
    samples: pa.Table,
    *,
    moments: Index,
    max_age_ms: int,
    rules: HealthRules | None = None,
) -> pa.Table:
    """Return how the status of groups changed from moment to moment (m int64 ms, sorted; schema
    `STATUS_CHANGES`), in the order of time.

    `commits` (schema `COMMITS`) and `samples` are those of the whole time and of so long before it as makes
    windows: where they begin too late, the first status is UNKNOWN. Only what was known at a moment counts
    for it. A group without positions has no status; the last one it had stands until it has another.
    """
    rules = rules or HealthRules()
    if not len(commits) or not len(moments):
        return STATUS_CHANGES.empty_table()
    sampled = Samples.of(samples)
    runs, keys_of = Runs.of(commits, sampled, until=int(moments[-1]), max_age_ms=max_age_ms)
    by_group = np.argsort(numbered(keys_of["group"])[0], kind="stable")
    codes, groups = numbered(take(keys_of, by_group)["group"])
    places = sampled.places.codes_of(keys_of)[by_group]
    starts = np.searchsorted(codes, np.arange(len(groups)))
    held = np.full(len(groups), NONE, np.int64)
    found = [STATUS_CHANGES.empty_table()]
    for portion in _portions(moments, len(by_group)):
        at, keys = np.repeat(portion, len(by_group)), np.tile(by_group, len(portion))
        view = _View(runs, sampled, keys, np.tile(places, len(portion)), at, max_age_ms, rules)
        ranks = view.ranks.reshape(len(portion), -1)
        for row, worst in enumerate(np.maximum.reduceat(ranks, starts, axis=1)):
            changed = np.flatnonzero((worst != NONE) & (worst != held))
            if len(changed):
                own = (row * len(codes) + np.flatnonzero(codes == group) for group in changed)
                deciding = [view.deciding(keys_of_group) for keys_of_group in own]
                found.append(view.rows(keys_of, np.array(deciding), held[changed]))
                held[changed] = worst[changed]
    return pa.concat_tables(found)


class _View:
    """The positions of keys at moments, judged: those that were there."""

    def __init__(
        self,
        runs: Runs,
        samples: Samples,
        keys: Index,
        places: Index,
        at: Index,
        max_age_ms: int,
        rules: HealthRules,
    ) -> None:
        self._runs, self._keys, self._at = runs, keys, at
        lasts = runs.last_until(keys, at)
        self._present = np.flatnonzero((lasts != NONE) & ~runs.is_removed[lasts])
        self._lasts = lasts[self._present]
        now, own = at[self._present], places[self._present]
        newest = samples.newest_until(own, now)
        sampled_at, ends = np.append(samples.at, 0)[newest], np.append(samples.ends, 0)[newest]
        held = runs.written_until(keys[self._present], sampled_at)  # by the sample, not since
        is_known = (newest != NONE) & (now - sampled_at <= max_age_ms) & (held != NONE)
        is_known &= runs.is_readable[held]
        self._ends, self._is_known = ends, is_known
        self._held = runs.offsets[held]
        lags = lag_of(ends, self._held)
        self._judged = judge(
            runs,
            self._lasts,
            now,
            lags=from_numbers(lags, is_known),
            ends_before=ends_before(samples, own, now, rules),
            is_current=np.ones(len(own), np.bool_),
            rules=rules,
        )
        self.ranks = np.full(len(keys), NONE, np.int64)
        self.ranks[self._present] = self._judged.statuses
        self._numbers = np.full(len(keys), NONE, np.int64)
        self._numbers[self._present] = np.arange(len(self._present))
        self._lags = np.full(len(keys), NONE, np.int64)
        self._lags[self._present] = np.where(is_known, lags, NONE)

    def deciding(self, own: Index) -> int:
        """Return which of a group's keys at a moment decides: the worst, and of these the furthest behind."""
        return int(own[np.lexsort((-self._lags[own], -self.ranks[own]))[0]])

    def rows(self, keys_of: pa.Table, numbers: Index, before: Index) -> pa.Table:
        """Return rows (schema `STATUS_CHANGES`) of some of the keys at moments; `before` are the statuses
        that their groups had."""
        own = self._numbers[numbers]
        judged = self._judged
        some = Judged(
            judged.reasons[own],
            judged.windows[own],
            judged.lasts[own],
            judged.turns[own],
            judged.is_pace_known[own],
        )
        names = pa.array(STATUSES, pa.string())
        columns = dict(zip(PARTITION_HEALTH.names, facts(self._runs, some), strict=True))
        keys = take(keys_of, self._keys[numbers])
        is_known = self._is_known[own]
        columns |= {name: keys[name] for name in KEY_NAMES}
        columns |= {
            "at": to_timestamps(from_numbers(self._at[numbers])),
            "status_before": names.take(from_numbers(np.maximum(before, 0), before != NONE)),
            "committed_offset": columns["last_offset"],
            "offset_as_of_ends": from_numbers(self._held[own], is_known),
            "log_end_offset": from_numbers(self._ends[own], is_known),
            "lag": from_numbers(self._lags[numbers], is_known),
        }
        return pa.table([columns[name] for name in STATUS_CHANGES.names], schema=STATUS_CHANGES)


def _portions(moments: Index, keys: int) -> Iterator[Index]:
    size = max(1, _AT_ONCE // max(1, keys))
    for start in range(0, len(moments), size):
        yield moments[start : start + size]
