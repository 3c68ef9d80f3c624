"""How the health of groups has changed: the rules applied to every moment of a past time."""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.common.arrays import Index, from_numbers, numbers_or
from streaming.common.keys import KEY_NAMES, numbered, ranks
from streaming.common.pieces import take
from streaming.common.timestamps import to_timestamps
from streaming.lag.health import PARTITION_HEALTH, facts
from streaming.lag.log_ends import LAG, lag_of
from streaming.lag.pauses import ASKED, Waits
from streaming.lag.rules import STATUSES, STOPPED, HealthRules, Judged, ends_before, judge, waits_of
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

AskHabits = Callable[[pa.Table], Waits]
"""Gives the waits of positions (schema `ASKED`), a key as often as it has commits."""

_AT_ONCE: Final = 1_000_000  # positions that are judged at a time


def status_changes(
    commits: pa.Table,
    samples: pa.Table,
    *,
    moments: Index,
    max_age_ms: int,
    rules: HealthRules | None = None,
    habits: AskHabits | None = None,
) -> pa.Table:
    """Return how the status of groups changed from moment to moment (m int64 ms, sorted; schema
    `STATUS_CHANGES`), in the order of time.

    `commits` (schema `COMMITS`) and `samples` are those of the whole time and of so long before it as makes
    windows: where they begin too late, the first status is UNKNOWN. Only what was known at a moment counts
    for it. A group without positions has no status; the last one it had stands until it has another.
    `habits` are asked for how positions usually pause that would have stopped else.
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
    in_order = np.argsort(np.lexsort((ranks(keys_of["topic"]), numbers_or(keys_of["partition"], 0))))
    waits = _LastWaits(runs, keys_of, habits)
    found = [STATUS_CHANGES.empty_table()]
    for portion in _portions(moments, len(by_group)):
        at, keys = np.repeat(portion, len(by_group)), np.tile(by_group, len(portion))
        view = _View(runs, sampled, keys, np.tile(places, len(portion)), at, max_age_ms, rules, waits)
        statuses = view.ranks.reshape(len(portion), -1)
        for row, worst in enumerate(np.maximum.reduceat(statuses, starts, axis=1)):
            changed = np.flatnonzero((worst != NONE) & (worst != held))
            if len(changed):
                own = (row * len(codes) + np.flatnonzero(codes == group) for group in changed)
                deciding = [view.deciding(keys_of_group, in_order) for keys_of_group in own]
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
        waits: "_LastWaits",
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
        before = ends_before(samples, own, now, rules)

        def judged(some: Index, waits: Waits) -> Judged:
            return judge(
                runs,
                self._lasts[some],
                now[some],
                lags=from_numbers(lags[some], is_known[some]),
                ends_before=before[some],
                waits=waits,
                is_current=np.ones(len(some), np.bool_),
                rules=rules,
            )

        as_sampled = waits_of(runs, self._lasts, samples, own, now, max_age_ms, rules)
        self._judged = judged(np.arange(len(own)), as_sampled)
        stopped = np.flatnonzero(self._judged.statuses == STOPPED)
        if waits.are_asked and len(stopped):
            self._judged = self._judged.replaced(stopped, judged(stopped, waits.of(self._lasts[stopped])))
        self.ranks = np.full(len(keys), NONE, np.int64)
        self.ranks[self._present] = self._judged.statuses
        self._numbers = np.full(len(keys), NONE, np.int64)
        self._numbers[self._present] = np.arange(len(self._present))
        self._lags = np.full(len(keys), NONE, np.int64)
        self._lags[self._present] = np.where(is_known, lags, NONE)

    def deciding(self, own: Index, in_order: Index) -> int:
        """Return which of a group's keys at a moment decides, as `group_health` has it: the worst, of these
        the furthest behind, and of these the first one `in_order`."""
        order = np.lexsort((in_order[self._keys[own]], -self._lags[own], -self.ranks[own]))
        return int(own[order[0]])

    def rows(self, keys_of: pa.Table, numbers: Index, before: Index) -> pa.Table:
        """Return rows (schema `STATUS_CHANGES`) of some of the keys at moments; `before` are the statuses
        that their groups had."""
        own = self._numbers[numbers]
        some = self._judged.at(own)
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


class _LastWaits:
    """How long records wait and may wait after commits (by their numbers); what was asked for is held."""

    def __init__(self, runs: Runs, keys_of: pa.Table, ask: AskHabits | None) -> None:
        self._runs, self._keys_of, self._ask = runs, keys_of, ask
        self._is_known = np.zeros(len(runs.at), np.bool_)
        self._waits = Waits.unknown(len(runs.at))

    @property
    def are_asked(self) -> bool:
        """Whether anybody knows."""
        return self._ask is not None

    def of(self, lasts: Index) -> Waits:
        """Return those after m commits."""
        new = np.unique(lasts[~self._is_known[lasts]])
        if self._ask is not None and len(new):
            runs = self._runs
            columns = [
                *take(self._keys_of.select(KEY_NAMES), runs.codes[new]).columns,
                from_numbers(runs.offsets[new], runs.is_readable[new]),
                to_timestamps(from_numbers(runs.at[new])),
            ]
            found = self._ask(pa.table(columns, schema=ASKED))
            self._waits.since[new], self._waits.usual[new] = found.since, found.usual
            self._is_known[new] = True
        return self._waits.at(lasts)


def _portions(moments: Index, keys: int) -> Iterator[Index]:
    size = max(1, _AT_ONCE // max(1, keys))
    for start in range(0, len(moments), size):
        yield moments[start : start + size]
