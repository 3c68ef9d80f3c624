"""Changes of the status of groups over a past time: the rules applied at each of many moments."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from streaming.common.arrays import Index, Mask, from_numbers, from_texts, no_rows, numbers_or
from streaming.common.keys import KEY_NAMES, Numbering, firsts, key_codes, numbered, ranks
from streaming.common.pieces import take
from streaming.common.timestamps import to_timestamps
from streaming.lag.habits import ASKED, Waits
from streaming.lag.health import PARTITION_HEALTH, facts, status_numbers, with_columns
from streaming.lag.health_rules import (
    OK,
    STATUSES,
    STOPPED,
    UNKNOWN,
    HealthRules,
    Judged,
    ends_before,
    judge,
    waits_of,
)
from streaming.lag.log_ranges import LAG, lag_of
from streaming.lag.runs import CommitRuns
from streaming.lag.samples import NONE, Samples, may_be_same_id
from streaming.model.schemas import KEY, TIMESTAMP

STATUS_CHANGES: Final = pa.schema(
    [
        ("at", TIMESTAMP),  # the first moment with this status
        KEY[0],
        ("status", pa.string()),
        ("status_before", pa.string()),  # null: the first known status of the time
        *KEY[1:],  # the deciding partition
        ("committed_offset", pa.int64()),
        *list(LAG)[:3],
        *list(PARTITION_HEALTH)[1:],
    ]
)
"""A change of the status of a group. The columns from topic on are those of the deciding partition."""

_OF_DECIDING: Final = pa.schema(
    [field for field in STATUS_CHANGES if field.name not in ("at", "status_before", *KEY_NAMES)]
)

AskHabits = Callable[[pa.Table], Waits]
"""Returns the waits of n positions (schema `ASKED`). A key may have several rows: one for each last
commit."""


class Members(Protocol):
    """The members of groups at any moment (ms) of the time, and the statuses they explain."""

    @property
    def keys(self) -> pa.Table:
        """All partitions (columns `KEY_NAMES`) that any member had in the time, with duplicates."""

    def had_since(self, rows: pa.Table, moments: Index) -> Index:
        """Return since when (ms) members have had n partitions (columns `KEY_NAMES`) at n moments (ms);
        `NONE`: no member has the partition."""

    def reasons(self, rows: pa.Table, moments: Index, statuses: Index) -> Index:
        """Return the reasons (numbers of `REASONS`) that explain the statuses (numbers of `STATUSES`) of n
        positions (columns `KEY`, `LAG` without the lag time, commit_timestamp) at n moments (ms); `NONE`:
        members explain nothing."""

    def of_uncommitted(self, rows: pa.Table, moments: Index) -> pa.Table:
        """Return the columns `PARTITION_HEALTH` at n moments (ms) of n partitions (columns `KEY` and
        log_end_offset) that members have and that have no committed offset."""


_AT_ONCE: Final = 1_000_000  # pairs of a position and a moment in one portion: it bounds memory


def status_changes(
    commits: pa.Table,
    samples: pa.Table,
    *,
    moments: Index,
    max_age_ms: int,
    rules: HealthRules | None = None,
    habits: AskHabits | None = None,
    members: Members | None = None,
) -> tuple[pa.Table, pa.Table]:
    """Return the changes of the status of groups at m moments (int64 ms, ascending; schema `STATUS_CHANGES`),
    in the order of time, and the positions that had a status at any of these moments (schema `KEY`).

    `commits` (schema `COMMITS`) and `samples` cover the whole time and enough before it to fill a window;
    where they begin too late, the first status is UNKNOWN. At each moment only commits and samples up to it
    count. A group without positions has no status: the next one it has is compared with the last before.
    `habits` returns how positions usually pause, and is called only for those that would be STOPPED.
    `members` explain statuses, and add the partitions that they have without a committed offset.
    """
    rules = rules or HealthRules()
    nothing = STATUS_CHANGES.empty_table(), no_rows(pa.schema(KEY))
    if not len(moments):
        return nothing
    sampled = Samples.of(samples)
    runs, keys_of = CommitRuns.of(commits, sampled, until=int(moments[-1]), max_age_ms=max_age_ms)
    if members is not None:
        keys_of = _with_others(keys_of, members.keys)
    if not len(keys_of):
        return nothing
    by_group = np.argsort(numbered(keys_of["group"])[0], kind="stable")
    codes, groups = numbered(take(keys_of, by_group)["group"])
    places = sampled.places.codes_of(keys_of)[by_group]
    starts = np.searchsorted(codes, np.arange(len(groups)))
    held = np.full(len(groups), NONE, np.int64)
    in_order = np.argsort(np.lexsort((ranks(keys_of["topic"]), numbers_or(keys_of["partition"], 0))))
    waits = _LastWaits(runs, keys_of, habits)
    found, is_judged = [STATUS_CHANGES.empty_table()], np.zeros(len(by_group), np.bool_)
    for portion in _portions(moments, len(by_group)):
        at, keys = np.repeat(portion, len(by_group)), np.tile(by_group, len(portion))
        keys_at = _KeysAt(keys_of, keys, np.tile(places, len(portion)), at)
        judgements = [_judge_committed(keys_at, runs, sampled, max_age_ms, rules, waits, members)]
        if members is not None:
            is_bare = np.ones(len(keys), np.bool_)
            is_bare[judgements[0].numbers] = False
            judgements.append(_judge_uncommitted(keys_at, is_bare, sampled, max_age_ms, members))
        view = _View(keys_at, judgements)
        statuses = view.ranks.reshape(len(portion), -1)
        is_judged |= (statuses != NONE).any(axis=0)
        for row, worst in enumerate(np.maximum.reduceat(statuses, starts, axis=1)):
            changed = np.flatnonzero((worst != NONE) & (worst != held))
            if len(changed):
                own = (row * len(codes) + np.flatnonzero(codes == group) for group in changed)
                deciding = [view.deciding(keys_of_group, in_order) for keys_of_group in own]
                found.append(view.rows(np.array(deciding), held[changed]))
                held[changed] = worst[changed]
    return pa.concat_tables(found), take(keys_of, by_group[is_judged])


@dataclass(frozen=True)
class _KeysAt:
    """Keys at moments (n int64 each): indexes into `keys_of`, place codes among the samples, moments (ms).
    The keys of the runs are the first in `keys_of`."""

    keys_of: pa.Table
    keys: Index
    places: Index
    at: Index

    def at_some(self, numbers: Index) -> "_KeysAt":
        return _KeysAt(self.keys_of, self.keys[numbers], self.places[numbers], self.at[numbers])

    @property
    def named(self) -> pa.Table:
        return take(self.keys_of, self.keys)


@dataclass(frozen=True)
class _Judgements:
    """The judgement of m of n keys at moments: `numbers` of these keys, `statuses` and `lags` (`NONE`: not
    known), m int64 each. `rows_of` returns the rows (schema `_OF_DECIDING`) of some of the m."""

    numbers: Index
    statuses: Index
    lags: Index
    rows_of: Callable[[Index], pa.Table]


def _judge_committed(
    keys_at: _KeysAt,
    runs: CommitRuns,
    samples: Samples,
    max_age_ms: int,
    rules: HealthRules,
    waits: "_LastWaits",
    members: Members | None,
) -> _Judgements:
    """Judge the keys that had a committed offset at their moment."""
    with_run = np.flatnonzero(keys_at.keys < len(runs.starts) - 1)
    lasts = runs.last_until(keys_at.keys[with_run], keys_at.at[with_run])
    is_there = (lasts != NONE) & ~np.append(runs.is_removed, np.False_)[lasts]
    numbers, lasts = with_run[is_there], lasts[is_there]
    own = keys_at.at_some(numbers)
    newest, is_known = _newest(samples, own, max_age_ms)
    sampled_at, ends = np.append(samples.at, 0)[newest], np.append(samples.ends, 0)[newest]
    held = runs.written_until(own.keys, sampled_at)  # as of the sample: see `lag_time`
    is_known &= (held != NONE) & np.append(runs.is_readable, np.False_)[held]
    for commits in lasts, held:
        is_known &= may_be_same_id(samples.ids_of(newest), np.append(runs.topic_ids, NONE)[commits])
    offsets = np.append(runs.offsets, 0)[held]
    lags = lag_of(ends, offsets)
    before = ends_before(samples, own.places, own.at, rules)

    def judged_by(some: Index, waits: Waits) -> Judged:
        return judge(
            runs,
            lasts[some],
            own.at[some],
            lags=from_numbers(lags[some], is_known[some]),
            ends_before=before[some],
            waits=waits,
            is_current=np.ones(len(some), np.bool_),
            rules=rules,
        )

    as_sampled = waits_of(runs, lasts, samples, own.places, own.at, max_age_ms, rules)
    judged = judged_by(np.arange(len(lasts)), as_sampled)
    stopped = np.flatnonzero(judged.statuses == STOPPED)
    if waits.are_asked and len(stopped):
        judged = judged.replaced(stopped, judged_by(stopped, waits.of(lasts[stopped])))
    bad = np.flatnonzero(~np.isin(judged.statuses, (OK, UNKNOWN)))
    if members is not None and len(bad):
        columns = {
            "lag": from_numbers(lags[bad], is_known[bad]),
            "log_end_offset": from_numbers(ends[bad], is_known[bad]),
            "ends_as_of": to_timestamps(from_numbers(sampled_at[bad])),
            "commit_timestamp": to_timestamps(from_numbers(runs.at[lasts[bad]])),
        }
        some = own.at_some(bad)
        rows = with_columns(some.named, pa.table(columns))
        judged = judged.with_reasons(bad, members.reasons(rows, some.at, judged.statuses[bad]))

    def rows_of(some: Index) -> pa.Table:
        columns = dict(zip(PARTITION_HEALTH.names, facts(runs, judged.at(some)), strict=True))
        columns |= {
            "committed_offset": columns["last_offset"],
            "offset_as_of_ends": from_numbers(offsets[some], is_known[some]),
            "log_end_offset": from_numbers(ends[some], is_known[some]),
            "lag": from_numbers(lags[some], is_known[some]),
        }
        return pa.table([columns[name] for name in _OF_DECIDING.names], schema=_OF_DECIDING)

    return _Judgements(numbers, judged.statuses, np.where(is_known, lags, NONE), rows_of)


def _judge_uncommitted(
    keys_at: _KeysAt, is_bare: Mask, samples: Samples, max_age_ms: int, members: Members
) -> _Judgements:
    """Judge the keys without a committed offset whose partitions members had at their moment."""
    is_theirs = Numbering.of(members.keys, KEY_NAMES)[0].codes_of(keys_at.keys_of) != NONE
    numbers = np.flatnonzero(is_bare & is_theirs[keys_at.keys])
    own = keys_at.at_some(numbers)
    numbers = numbers[members.had_since(own.named, own.at) != NONE]
    own = keys_at.at_some(numbers)
    newest, is_known = _newest(samples, own, max_age_ms)
    ends = from_numbers(np.append(samples.ends, 0)[newest], is_known)
    health = members.of_uncommitted(own.named.append_column("log_end_offset", ends), own.at)
    columns = {field.name: pa.nulls(len(numbers), field.type) for field in _OF_DECIDING}
    columns |= {"log_end_offset": ends, **{name: health[name] for name in health.column_names}}
    rows = pa.table([columns[name] for name in _OF_DECIDING.names], schema=_OF_DECIDING)
    lags = np.full(len(numbers), NONE, np.int64)
    return _Judgements(numbers, status_numbers(health), lags, lambda some: take(rows, some))


def _newest(samples: Samples, keys_at: _KeysAt, max_age_ms: int) -> tuple[Index, Mask]:
    """Return the newest samples of n places at moments (numbers, or `NONE`), and whether each is young
    enough."""
    newest = samples.newest_until(keys_at.places, keys_at.at)
    return newest, (newest != NONE) & (keys_at.at - np.append(samples.at, 0)[newest] <= max_age_ms)


class _View:
    """The judgements of all keys at moments. `ranks` are their statuses (n int64; `NONE`: neither a
    committed offset nor a member that has the partition)."""

    def __init__(self, keys_at: _KeysAt, judgements: Sequence[_Judgements]) -> None:
        self._keys_at, self._judgements = keys_at, judgements
        self.ranks = np.full(len(keys_at.keys), NONE, np.int64)
        self._lags, self._places = self.ranks.copy(), self.ranks.copy()
        first = 0
        for one in judgements:
            self.ranks[one.numbers], self._lags[one.numbers] = one.statuses, one.lags
            self._places[one.numbers] = first + np.arange(len(one.numbers))
            first += len(one.numbers)

    def deciding(self, own: Index, in_order: Index) -> int:
        """Return the number of the deciding key of a group at a moment, in the order of `group_health`:
        worst status, largest lag, first `in_order`."""
        order = np.lexsort((in_order[self._keys_at.keys[own]], -self._lags[own], -self.ranks[own]))
        return int(own[order[0]])

    def rows(self, numbers: Index, before: Index) -> pa.Table:
        """Return rows (schema `STATUS_CHANGES`) for m numbers of keys at moments; `before` are the
        previous statuses of their groups (`NONE`: none)."""
        own = self._keys_at.at_some(numbers)
        columns = dict(zip(KEY_NAMES, own.named.columns, strict=True))
        deciding = self._rows_of(self._places[numbers])
        columns |= {name: deciding[name] for name in deciding.column_names}
        columns |= {
            "at": to_timestamps(from_numbers(own.at)),
            "status_before": from_texts(STATUSES).take(from_numbers(np.maximum(before, 0), before != NONE)),
        }
        return pa.table([columns[name] for name in STATUS_CHANGES.names], schema=STATUS_CHANGES)

    def _rows_of(self, places: Index) -> pa.Table:
        found, orders, first = [_OF_DECIDING.empty_table()], [], 0
        for one in self._judgements:
            some = np.flatnonzero((places >= first) & (places < first + len(one.numbers)))
            found.append(one.rows_of(places[some] - first))
            orders.append(some)
            first += len(one.numbers)
        return take(pa.concat_tables(found), np.argsort(np.concatenate(orders)))


def _with_others(keys: pa.Table, others: pa.Table) -> pa.Table:
    """Append the keys of `others` that are not in `keys` (n distinct ones), each once."""
    both = pa.concat_tables([keys, others])
    return take(both, firsts(key_codes(both.columns)))


class _LastWaits:
    """The waits after commits, by the numbers of these; answers of `ask` are cached."""

    def __init__(self, runs: CommitRuns, keys_of: pa.Table, ask: AskHabits | None) -> None:
        self._runs, self._keys_of, self._ask = runs, keys_of, ask
        self._is_known = np.zeros(len(runs.at), np.bool_)
        self._waits = Waits.unknown(len(runs.at))

    @property
    def are_asked(self) -> bool:
        return self._ask is not None

    def of(self, lasts: Index) -> Waits:
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
