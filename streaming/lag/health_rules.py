"""The rules of the health of positions: Burrow's rules, on a window of time.

A position is judged by its window: the commits of the ten minutes (`window_ms`) before its last commit, and
older ones until there are three (`min_commits`). Commits within the same tenth of the window count as one,
because a burst shows no pace. A growing lag needs less: a fifth of the window, if three samples saw it. The
first rule that holds decides:

1. The lag is now at most `min_lag`: OK.
2. Nothing was committed for longer than the window and than its commits took, and records have waited for
   that long, and for longer than is usual (`streaming.lag.habits`): STOPPED.
3. The offset is below an earlier one of the window, and has been for `rewind_after_ms`: REWOUND.
4. The lag was at most `min_lag` at a commit of the window: OK.
5. All offsets of the window are equal: STALLED.
6. The lag never fell from one sample to the next, and was larger in the middle of the window, and at its last
   commit, than at its first: WARNING; else OK.

Burrow compares lags at commits, which depend on when it last read the log ends. Here lags are compared as of
samples. The lag at a commit is taken from the straight line between the samples before and after it: with the
older sample, groups that are less behind than the time between two samples would seem caught up. What cannot
be known is UNKNOWN, before any rule that needs it.
"""

from dataclasses import dataclass, fields, replace
from typing import Final, Protocol, Self

import numpy as np
import pyarrow as pa

from streaming.common.arrays import Index, Mask, numbers_or, to_mask
from streaming.common.times import DAY_MS, MINUTE_MS
from streaming.lag.habits import Waits, behind
from streaming.lag.log_ranges import lag_of
from streaming.lag.runs import CommitRuns, counted
from streaming.lag.samples import NONE, Samples

STATUSES: Final = ("OK", "UNKNOWN", "WARNING", "STOPPED", "STALLED", "REWOUND")
"""The statuses of a position or a group, the worst last."""

OK, UNKNOWN, WARNING, STOPPED, STALLED, REWOUND = range(len(STATUSES))

TOO_FEW_COMMITS: Final = ("too few commits", "commits span too short a time")
"""The reasons for which `with_health` reads older commits."""

REASONS: Final = (
    ("caught up", OK),
    ("caught up recently", OK),
    ("catching up", OK),
    ("keeps pace", OK),
    ("usual pause", OK),
    # from members (`streaming.assessment.explained`)
    ("group does not subscribe to the topic", OK),
    ("unread records may be transaction markers", UNKNOWN),
    ("newer commits may be unread", UNKNOWN),
    ("newest commit could not be read", UNKNOWN),
    ("log end unknown", UNKNOWN),
    ("beyond the log end", UNKNOWN),
    ("log end was unknown at the last commit", UNKNOWN),
    *((reason, UNKNOWN) for reason in TOO_FEW_COMMITS),
    ("lag was not known at every commit", UNKNOWN),
    ("lag never fell", WARNING),
    ("no commits, records waiting", STOPPED),
    ("commits do not advance", STALLED),
    ("moved back", REWOUND),
    # of partitions that members have and that have no committed offset (`judge_uncommitted`)
    ("no committed offset yet", UNKNOWN),
    ("no committed offset, log has records", WARNING),
    ("no committed offset, records waiting", STOPPED),
)
"""The reasons in words, each with its status. The number of a reason is its index."""

(
    _CAUGHT_UP,
    _WAS_CAUGHT_UP,
    _CATCHING_UP,
    _KEEPS_PACE,
    _PAUSES,
    NOT_SUBSCRIBED,
    MAY_BE_MARKERS,
    _NOT_READ,
    _UNREADABLE,
    _NO_END,
    _BEYOND_END,
    _END_WAS_UNKNOWN,
    _TOO_FEW,
    _TOO_SHORT,
    _LAG_WAS_UNKNOWN,
    _NEVER_FELL,
    _SILENT,
    _NOT_ADVANCING,
    _MOVED_BACK,
    _NOT_YET,
    _NONE_OF_THERE,
    _NONE_AND_WAITING,
) = range(len(REASONS))

STATUS_OF: Final = np.array([status for _, status in REASONS])
"""The status of each reason, by the number of the reason."""

_ROUNDED: Final = 1  # ends between samples are whole numbers
_POINTS: Final = 10  # a window has ten parts, as Burrow's has ten commits
_SEEN_FOR: Final = 2  # number of these parts for which the lag has to grow


class HealthLimits(Protocol):
    """The settings `[health]`."""

    @property
    def window_ms(self) -> int: ...

    @property
    def min_commits(self) -> int: ...

    @property
    def min_lag(self) -> int: ...


@dataclass(frozen=True)
class HealthRules:
    """The parameters of the rules (times in ms)."""

    window_ms: int = 10 * MINUTE_MS
    min_commits: int = 3
    min_lag: int = 1
    """Transaction markers leave consumers that commit explicitly at lag 1 for ever."""
    rewind_after_ms: int = MINUTE_MS
    """After a rebalance, members repeat some offsets and soon pass them: that is no rewind."""
    long_silence_ms: int = DAY_MS
    """A position with too few commits to know its pace is STOPPED after this long without commits."""

    @classmethod
    def of(cls, settings: HealthLimits) -> Self:
        return cls(window_ms=settings.window_ms, min_commits=settings.min_commits, min_lag=settings.min_lag)


@dataclass(frozen=True)
class Judged:
    """The judgements of m positions (m int64 each). `reasons` are numbers of `REASONS`. `windows`, `lasts`
    and `turns` are numbers of commits: the first and the last of each window, and the one that went back
    (`NONE`: none did)."""

    reasons: Index
    windows: Index
    lasts: Index
    turns: Index
    is_pace_known: Mask
    """Whether enough commits are known to know how often the group commits."""

    @property
    def statuses(self) -> Index:
        """The statuses, as indexes into `STATUSES`."""
        statuses: Index = STATUS_OF[self.reasons]
        return statuses

    def at(self, numbers: Index) -> Self:
        return type(self)(*(getattr(self, field.name)[numbers] for field in fields(self)))

    def replaced(self, numbers: Index, other: Self) -> Self:
        """Return a copy with the judgements of `other` at `numbers`."""
        both = {field.name: getattr(self, field.name).copy() for field in fields(self)}
        for name, values in both.items():
            values[numbers] = getattr(other, name)
        return type(self)(**both)

    def with_reasons(self, numbers: Index, reasons: Index) -> Self:
        """Return a copy with other reasons at `numbers` (`NONE`: keep the reason)."""
        own = self.reasons.copy()
        own[numbers] = np.where(reasons == NONE, own[numbers], reasons)
        return replace(self, reasons=own)


def judge(
    runs: CommitRuns,
    lasts: Index,
    moments: Index,
    *,
    lags: pa.Array | pa.ChunkedArray,
    ends_before: Index,
    waits: Waits,
    is_current: Mask,
    rules: HealthRules,
) -> Judged:
    """Apply the rules to m positions, each at its moment (ms).

    `lasts` are the numbers of their newest commits by then, `lags` the lags at the moment (null: not known),
    `ends_before` the log ends a window earlier (`NONE`: not known). `waits` are those of the m positions.
    """
    keys = runs.codes[lasts]
    last_at, last_offset = runs.at[lasts], runs.offsets[lasts]
    chains, stops = runs.chains[lasts], lasts + 1
    in_time = np.maximum(runs.first_since(keys, last_at - rules.window_ms), chains)
    windows, has_enough = _at_least(runs, lasts, in_time, rules)
    windows = np.minimum(windows, lasts)  # the stretch of an unreadable commit begins after it

    pace = np.where(
        has_enough, np.maximum(last_at - runs.at[windows], rules.window_ms), rules.long_silence_ms
    )
    is_silent = moments - last_at > pace
    is_too_long = moments - np.maximum(last_at, waits.since) > np.maximum(pace, waits.usual)
    is_pause = is_silent & ~is_too_long & (waits.usual > 0)
    is_silent &= is_too_long
    is_waited_for = lag_of(ends_before, last_offset) > rules.min_lag
    turns = _turns(runs, windows, lasts)
    is_rewound = (turns != NONE) & (moments - runs.at[turns] >= rules.rewind_after_ms)

    def within(mask: Mask) -> Index:
        count = counted(mask)
        number: Index = count[stops] - count[windows]
        return number

    followed = np.clip(runs.followed_until(keys, moments), windows, stops)
    low = counted((runs.lags != NONE) & (runs.lags <= rules.min_lag))
    was_low = low[followed] > low[windows]
    was_unknown = within(~runs.is_sampled) > 0
    is_equal = runs.unmoved_since[lasts] <= windows
    falls, seen = _falls(runs, windows, lasts, moments, rules)
    # a commit before the window shows the offset at its start; without one, half a window has to be known
    is_whole = (in_time > chains) | (last_at - runs.at[windows] >= rules.window_ms // 2)

    keeps = _keeps_pace(runs, windows, followed)
    # a growing lag is visible earlier than the pace of commits
    grows = ~is_equal & ~was_unknown & ~keeps & (falls == 0) & (seen >= max(2, rules.min_commits))
    grows &= moments - runs.at[windows] >= rules.window_ms * _SEEN_FOR // _POINTS

    conditions = _of_now(lags, runs.is_readable[lasts], is_current, rules) | {
        _SILENT: is_silent & (ends_before != NONE) & is_waited_for,
        _END_WAS_UNKNOWN: is_silent & (ends_before == NONE),
        _MOVED_BACK: is_rewound,
        _WAS_CAUGHT_UP: was_low,
        _CATCHING_UP: ~is_equal & (falls > 0),
        _PAUSES: is_pause & ~is_equal & ~(has_enough & is_whole & ~was_unknown),
        _NEVER_FELL: grows,
        _TOO_FEW: ~has_enough,
        _TOO_SHORT: ~is_whole,
        _LAG_WAS_UNKNOWN: was_unknown | (~is_equal & (seen < rules.min_commits)),
        _NOT_ADVANCING: is_equal,
        _KEEPS_PACE: keeps,
    }
    reasons = np.select(list(conditions.values()), list(conditions), _NEVER_FELL)
    return Judged(reasons, windows, lasts, np.where(is_rewound, turns, NONE), has_enough)


def reasons_at_rest(
    *, lags: pa.Array | pa.ChunkedArray, is_readable: Mask, is_current: Mask, rules: HealthRules
) -> Index:
    """Return the reasons (numbers of `REASONS`) of m positions that are not behind: their lag is at most
    `min_lag` or not known (null). `judge` returns the same for them, whatever they committed before."""
    conditions = _of_now(lags, is_readable, is_current, rules)
    reasons: Index = np.select(list(conditions.values()), list(conditions))
    return reasons


def _of_now(
    lags: pa.Array | pa.ChunkedArray, is_readable: Mask, is_current: Mask, rules: HealthRules
) -> dict[int, Mask]:
    """Return the reasons that precede all rules about older commits, in order, with the positions that
    have them."""
    lag = numbers_or(lags, 0)
    return {
        _NOT_READ: ~is_current,
        _UNREADABLE: ~is_readable,
        _NO_END: ~to_mask(lags.is_valid()),
        _BEYOND_END: lag < 0,
        _CAUGHT_UP: lag <= rules.min_lag,
    }


def judge_uncommitted(
    *,
    starts: Index,
    ends: Index,
    ends_before: Index,
    came_since: Mask,
    owned_at: Index,
    moments: Index,
    is_current: Mask,
    rules: HealthRules,
) -> Index:
    """Return the reasons (numbers of `REASONS`) of m partitions that members have and that have no committed
    offset.

    `starts` and `ends` are their log start and log end offsets, `ends_before` the log ends a window earlier,
    `owned_at` is since when (ms) the group is known to have the partition (all: `NONE` if not known). A
    consumer that begins at the log end, and commits only what it reads, rightly commits nothing for older
    records. So records certainly wait only where some came since the group has had the partition
    (`came_since`).
    """
    is_known = (starts != NONE) & (ends != NONE)
    is_owned = (owned_at != NONE) & (moments - owned_at >= rules.window_ms)
    is_there = (ends_before != NONE) & (lag_of(ends_before, starts) > rules.min_lag)
    conditions = {
        _NOT_READ: ~is_current,
        _NO_END: ~is_known,
        _NOT_YET: ~is_owned | ~is_there,
        _NONE_AND_WAITING: came_since,
    }
    reasons: Index = np.select(list(conditions.values()), list(conditions), _NONE_OF_THERE)
    return reasons


def ends_before(samples: Samples, places: Index, moments: Index, rules: HealthRules) -> Index:
    """Return the log ends of m places one window before each moment (ms), `NONE` where not known. The end
    of one log never falls, so later ends are no smaller."""
    newest = samples.newest_until(places, moments)
    before = samples.newest_until(places, moments - rules.window_ms)
    ends: Index = np.where(samples.is_same_log(before, newest), np.append(samples.ends, 0)[before], NONE)
    return ends


def waits_of(
    runs: CommitRuns,
    lasts: Index,
    samples: Samples,
    places: Index,
    moments: Index,
    max_age_ms: int,
    rules: HealthRules,
) -> Waits:
    """Return since when records wait for m positions, from the samples of their places, without usual
    pauses."""
    offsets = runs.offsets[lasts]
    since = samples.passed_at(places, moments, behind(offsets, rules.min_lag), max_age_ms)
    return Waits(since, np.zeros(len(lasts), np.int64))


def _at_least(runs: CommitRuns, lasts: Index, in_time: Index, rules: HealthRules) -> tuple[Index, Mask]:
    """Return the first commits of windows that hold at least `min_commits` commits, and whether each window
    does.

    Of the commits within the same tenth of the window the last counts, and the newest commit always does.
    """
    step = max(1, rules.window_ms // _POINTS)
    counts = np.append(runs.at[:-1] // step != runs.at[1:] // step, np.zeros(min(1, len(runs.at)), np.bool_))
    counts &= np.append(runs.is_follower[1:], np.zeros(min(1, len(runs.at)), np.bool_))
    numbers, before = np.flatnonzero(counts), counted(counts)
    wanted = before[lasts] - (rules.min_commits - 1)  # the number of the oldest of these points
    oldest = np.append(numbers, 0)[np.clip(wanted, 0, max(0, len(numbers) - 1))]
    has_enough = (wanted >= before[runs.chains[lasts]]) | (rules.min_commits <= 1)
    oldest = lasts if rules.min_commits <= 1 else np.where(has_enough, oldest, runs.chains[lasts])
    return np.minimum(in_time, oldest), has_enough


def _turns(runs: CommitRuns, windows: Index, lasts: Index) -> Index:
    """Return the number of the commit with which each position went back for good; `NONE`: it did not.

    It is the commit after the last one with the highest offset of the window, unless that is the newest
    commit.
    """
    turns = np.full(len(lasts), NONE, np.int64)
    fell = counted(runs.steps < 0)
    some = np.flatnonzero(fell[lasts + 1] - fell[windows] > 0)
    if not len(some):
        return turns
    lengths = lasts[some] - windows[some] + 1
    begins = np.append(0, np.cumsum(lengths))[:-1]
    numbers = np.arange(lengths.sum()) + np.repeat(windows[some] - begins, lengths)
    offsets = runs.offsets[numbers]
    highest = np.maximum.reduceat(offsets, begins)
    is_highest = offsets == np.repeat(highest, lengths)
    last_highest = np.maximum.reduceat(np.where(is_highest, numbers, NONE), begins)
    turns[some] = np.where(last_highest < lasts[some], last_highest + 1, NONE)
    return turns


def _keeps_pace(runs: CommitRuns, windows: Index, stops: Index) -> Mask:
    """Return for m positions whether the lag at the last commit of the window, or in its middle, is no larger
    than at the first, among the commits before a stop whose lag is known. (The middle counts because a
    rebalance is no loss of pace.)

    This depends neither on the times of samples nor on how long they follow after a commit.
    """
    is_known = runs.lags != NONE
    lags, at, before = np.append(runs.lags[is_known], 0), np.append(runs.at[is_known], 0), counted(is_known)
    first, last = before[windows], before[stops] - 1
    halfway = (runs.at[windows] + at[last]) // 2
    middle = np.clip(before[runs.first_since(runs.codes[windows], halfway)], first, last)
    most = lags[np.minimum(first, len(lags) - 1)] + _ROUNDED
    keeps: Mask = (last > first) & ((lags[last] <= most) | ((middle > first) & (lags[middle] <= most)))
    return keeps


def _falls(
    runs: CommitRuns, windows: Index, lasts: Index, moments: Index, rules: HealthRules
) -> tuple[Index, Index]:
    """Count how often the lag of each position fell within its window from one sample to the next, and the
    commits whose lag a later sample shows.

    After a pause longer than a window the lag fell if the job consumed half of the records that had arrived:
    jobs that run now and then leave about the same lag each time.
    """
    is_seen = runs.lags_after != NONE
    numbers, before = np.flatnonzero(is_seen), counted(is_seen)
    lags, chains = runs.lags_after[numbers], runs.chains[numbers]
    fell = np.append(False, (lags[1:] < lags[:-1]) & (chains[1:] == chains[:-1]))[: len(lags)]
    waits = np.append(0, np.diff(runs.at))[: len(runs.at)]
    is_run = runs.is_follower & (waits > rules.window_ms) & (runs.lags_after <= runs.lags_before // 2)
    fell |= is_run[numbers]
    count = counted(fell)
    first = before[windows]
    is_later = is_seen[lasts] & (runs.after_at[lasts] > moments)  # no sample has seen the newest commit yet
    stop = before[lasts + 1] - is_later
    falls = count[stop] - count[np.minimum(first + 1, stop)]
    return np.where(stop > first, falls, 0), stop - first
