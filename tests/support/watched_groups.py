"""Groups that commit while records come and ends are sampled, and plain loops that judge them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa
from sampled_logs import Log, newest_of, offset_times_of, sample_table, timed

from streaming.common.times import MINUTE_MS
from streaming.lag.health_rules import HealthRules
from streaming.lag.lag_time import Ends, as_of_ends, with_lag
from streaming.lag.runs import COMMITS
from streaming.model.schemas import TIMESTAMP

MAX_AGE_MS = 5 * MINUTE_MS
POSITIONS = pa.schema([*list(COMMITS)[:4], ("commit_timestamp", TIMESTAMP)])
BEFORE = [("offset_before", pa.int64()), ("topic_id_before", pa.string())]
CHANGED = pa.schema([*COMMITS, *BEFORE, ("sequence", pa.int64())])

Key = tuple[str, str, int]


@dataclass
class World:
    """What groups committed, in the order of the log (None: not readable), and samples of ends.

    A commit has the time of its coordinator's clock, and then that of the job's, which samples ends, too.
    """

    commits: list[tuple[Key, int | None, int, int]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)

    def sampled(self, log: Log, since: int, until: int, every: int = MINUTE_MS) -> "World":
        self.samples += log.samples(range(since, until + 1, every))
        return self

    def committed(
        self, commits: Sequence[tuple[int | None, int]], key: Key = ("g", "t", 0), *, clock: int = 0
    ) -> "World":
        """Commit; the coordinator's clock is so far ahead of the job's (ms)."""
        self.commits += [(key, offset, at + clock, at) for offset, at in commits]
        return self

    def commits_until(self, now: int) -> list[dict[str, Any]]:
        return [
            {
                **_named(key),
                "committed_offset": offset,
                "committed_at": at,
                "written_at": written_at,
                "is_removed": False,
                "topic_id": None,
            }
            for key, offset, at, written_at in self.commits
            if written_at <= now
        ]

    def tables(self, now: int) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Return positions with lag, commits and samples as they were known at a moment."""
        commits = self.commits_until(now)
        last: dict[Key, dict[str, Any]] = {}
        before = []
        for row in commits:
            key = (row["group"], row["topic"], row["partition"])
            before.append(last.get(key, {}).get("committed_offset"))
            last[key] = row
        told = timed(commits, COMMITS)
        changes = told.append_column(CHANGED.field("offset_before"), pa.array(before, pa.int64()))
        changes = changes.append_column(CHANGED.field("topic_id_before"), pa.nulls(len(before), pa.string()))
        changes = changes.append_column(CHANGED.field("sequence"), pa.array(range(len(commits)), pa.int64()))
        rows = [{**row, "commit_timestamp": row["committed_at"]} for row in last.values()]
        samples = [row for row in self.samples if row["sampled_at"] <= now]
        newest, positions = sample_table(newest_of(samples)), timed(rows, POSITIONS)
        ends = Ends.of(positions, newest, np.full(len(rows), now), max_age_ms=MAX_AGE_MS)
        held = as_of_ends(positions, ends, changes)
        crossed = offset_times_of(samples, [tuple(row.values()) for row in held.to_pylist()])
        positions = with_lag(positions, ends, held, crossed)
        return positions, told, sample_table(samples)


def _named(key: Key) -> dict[str, Any]:
    return dict(zip(("group", "topic", "partition"), key, strict=True))


def judged_plainly(world: World, key: Key, now: int, rules: HealthRules) -> str:
    """Judge one position by loops over its commits and the samples of its log."""
    _, topic, partition = key
    commits = [row[1:] for row in world.commits if row[0] == key and row[-1] <= now]
    own = [(offset, at) for offset, at, _ in commits]
    samples = sorted(
        (row["sampled_at"], row["log_end"])
        for row in world.samples
        if (row["topic"], row["partition"]) == (topic, partition) and row["sampled_at"] <= now
    )
    if own[-1][0] is None:
        return "UNKNOWN"
    piece: list[tuple[int, int]] = []
    latest = 0
    for offset, at in own:
        latest = max(latest, at)
        piece = [] if offset is None else [*piece, (offset, latest)]

    def end_until(moment: int) -> tuple[int, int] | None:
        known = [one for one in samples if one[0] <= moment]
        return known[-1] if known else None

    last, last_at = piece[-1]
    newest = end_until(now)
    if newest is None or now - newest[0] > MAX_AGE_MS:
        return "UNKNOWN"
    by_then = [offset for offset, _, written_at in commits if written_at <= newest[0]]
    if not by_then or by_then[-1] is None:
        return "UNKNOWN"  # first committed since
    lag = newest[1] - by_then[-1]
    if lag < 0:
        return "UNKNOWN"
    if lag <= rules.min_lag:
        return "OK"

    in_time = [row for row in piece if row[1] >= last_at - rules.window_ms]
    step = rules.window_ms // 10
    window: list[tuple[int, int]] = []
    for row in reversed(piece):
        if row in in_time or len({at // step for _, at in window}) < rules.min_commits:
            window.insert(0, row)
    # of the commits within a step that was needed to have enough only the last counts
    needed = sorted({at // step for _, at in window})[-rules.min_commits :]
    window = [
        row
        for number, row in enumerate(window)
        if row in in_time
        or row[1] // step > needed[0]
        or (row[1] // step == needed[0] and all(at // step != needed[0] for _, at in window[number + 1 :]))
    ]
    has_enough = len(needed) == rules.min_commits
    silence = now - last_at
    limit = max(last_at - window[0][1], rules.window_ms) if has_enough else rules.long_silence_ms
    then = end_until(now - rules.window_ms)
    # records wait since the end, on a line between two samples, was beyond what may be left
    since, low = last_at, None
    for sampled_at, end in samples:
        if end - last > rules.min_lag:
            if low is not None:
                gap = sampled_at - low[0]
                back = int(gap * ((end - last - rules.min_lag - 1) / (end - low[1])))
                since = max(last_at, sampled_at - (back if gap <= MAX_AGE_MS else gap))
            break
        low = (sampled_at, end)
    if silence > limit and now - since > limit:
        if then is None:
            return "UNKNOWN"
        if then[1] - last > rules.min_lag:
            return "STOPPED"
    for number in range(1, len(window)):
        rest = [offset for offset, _ in window[number:]]
        if max(rest) < window[number - 1][0] and now - window[number][1] >= rules.rewind_after_ms:
            return "REWOUND"
    is_unsampled = False
    lags, measured = list[int](), list[int]()
    for offset, at in window:
        below = end_until(at)
        above = next((one for one in samples if one[0] >= at), None)
        if below is None or at - below[0] > MAX_AGE_MS:
            is_unsampled = True
        elif above is not None and above[0] - at <= MAX_AGE_MS:
            measured.append(at)
            share = Fraction(at - below[0], max(1, above[0] - below[0]))
            lags.append(max(0, ceil(below[1] + (above[1] - below[1]) * share) - offset))
    if any(one <= rules.min_lag for one in lags):
        return "OK"
    seen = []
    has_run = False
    places = range(len(piece) - len(window), len(piece))
    for row, place in zip(window, places, strict=True):
        following = piece[place + 1][1] if place + 1 < len(piece) else now + 1
        after = [one for one in samples if one[0] >= row[1]]
        if after and after[0][0] < following and after[0][0] - row[1] <= MAX_AGE_MS:
            seen.append(max(0, after[0][1] - row[0]))
            before = piece[place - 1] if len(seen) > 1 and place else row
            peak = end_until(row[1])
            if peak is not None and row[1] - peak[0] <= MAX_AGE_MS and row[1] - before[1] > rules.window_ms:
                has_run |= seen[-1] <= (peak[1] - before[0]) // 2
    is_equal = len({offset for offset, _ in window}) == 1
    if not is_equal and (has_run or any(later < earlier for earlier, later in pairwise(seen))):
        return "OK"
    halfway = (window[0][1] + measured[-1]) // 2 if measured else 0
    middle = next((number for number, at in enumerate(measured) if at >= halfway), 0)
    keeps_pace = any(lags[number] <= lags[0] + 1 for number in {middle, len(lags) - 1} - {0, -1})
    is_growing = not is_equal and not is_unsampled and not keeps_pace and len(seen) >= rules.min_commits
    if is_growing and now - window[0][1] >= rules.window_ms // 5:
        return "WARNING"
    is_young = len(in_time) == len(piece) and last_at - window[0][1] < rules.window_ms // 2
    if not has_enough or is_young:
        return "UNKNOWN"
    if is_unsampled or (not is_equal and len(seen) < rules.min_commits):
        return "UNKNOWN"
    if is_equal:
        return "STALLED"
    return "OK" if keeps_pace else "WARNING"
