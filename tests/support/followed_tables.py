"""The tables of a `World` at a moment, in memory: what views read of them, without Delta."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from sampled_logs import CROSSED, SAMPLES, timed
from watched_groups import Key, World

from streaming.assessment.assess import Facts, Terms, assess
from streaming.assessment.owners import with_assigned
from streaming.common.arrays import no_rows
from streaming.lag.health_rules import HealthRules
from streaming.lag.runs import COMMITS
from streaming.model.completeness import Completeness
from streaming.model.progress import PartitionProgress, Progress
from streaming.model.schemas import GROUPS, OFFSETS, PAUSES
from streaming.tables.feed import GROUPS_OVER_TIME
from streaming.tables.log_ends import TOPICS_OVER_TIME

BEFORE = [("offset_before", pa.int64()), ("topic_id_before", pa.string())]
COMMITTED = pa.schema([*COMMITS, ("sequence", pa.int64()), *BEFORE])
_NULL = dict.fromkeys(OFFSETS.names)
KEY_OF = ("group", "topic", "partition")


@dataclass
class FollowedTables:
    """All that a world commits and samples, of which is told what was there by `now` (ms). History begins at
    `kept_since` (ms)."""

    world: World
    now: int = 0
    kept_since: int = 0
    groups_since: dict[int, dict[str, Any]] = field(default_factory=dict)
    """How all groups are from a moment (ms) on."""
    asked_for_pauses: list[Sequence[str] | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._commits: dict[Key, list[dict[str, Any]]] = {}
        for number, (key, offset, at, written_at) in enumerate(self.world.commits):
            own = self._commits.setdefault(key, [])
            own.append(
                {
                    **dict(zip(KEY_OF, key, strict=True)),
                    "committed_offset": offset,
                    "committed_at": at,
                    "written_at": written_at,
                    "is_removed": False,
                    "topic_id": None,
                    "sequence": number,
                    "offset_before": own[-1]["committed_offset"] if own else None,
                    "topic_id_before": None,
                    "before_at": own[-1]["committed_at"] if own else None,
                }
            )
        self._written = {key: [row["written_at"] for row in own] for key, own in self._commits.items()}
        self._samples: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for row in sorted(self.world.samples, key=lambda one: one["sampled_at"]):
            self._samples.setdefault((row["topic"], row["partition"]), []).append(row)
        self._sampled = {place: [row["sampled_at"] for row in own] for place, own in self._samples.items()}
        self._ends = {place: [row["log_end"] for row in own] for place, own in self._samples.items()}

    # --- what is read of them ------------------------------------------------------------------------------

    def commits(
        self,
        groups: Sequence[str] | None = None,
        *,
        since: int,
        until: int | None = None,
        in_order: bool = True,
    ) -> pa.Table:
        return timed(list(self._rows(groups, since, until)), COMMITTED)

    def commit_pieces(
        self, groups: Sequence[str] | None = None, *, since: int, until: int | None = None
    ) -> Iterator[pa.Table]:
        rows = self.commits(groups, since=since, until=until, in_order=False)
        return (rows.slice(start, 7) for start in range(0, len(rows), 7))

    def pauses(self, groups: Sequence[str] | None = None, *, since: int, longer_than_ms: int) -> pa.Table:
        self.asked_for_pauses.append(groups)
        rows = [
            row
            for row in self._rows(groups, max(since, self.kept_since), None)
            if row["before_at"] is None or row["committed_at"] - row["before_at"] > longer_than_ms
        ]
        return timed(rows, PAUSES)

    def whole_since(self) -> int | None:
        return self.kept_since or None

    def newest_ends(self, topics: Collection[str] | None, *, as_of: int, within_ms: int) -> pa.Table:
        return self.ends_between(topics, since=as_of, until=as_of, within_ms=within_ms)

    def ends_between(
        self, topics: Collection[str] | None, *, since: int, until: int, within_ms: int
    ) -> pa.Table:
        rows = list[dict[str, Any]]()
        for place, own in self._samples.items():
            if topics is None or place[0] in topics:
                stop = bisect_right(self._sampled[place], min(until, self.now))
                first = max(0, bisect_right(self._sampled[place], since) - 1)
                rows += [row for row in own[first:stop] if row["sampled_at"] >= since - within_ms]
        return timed(rows, SAMPLES)

    def offset_times(self, positions: pa.Table, *, as_of: int) -> pa.Table:
        found = []
        for row in positions.to_pylist():
            place, between = (row["topic"], row["partition"]), dict.fromkeys(CROSSED.names)
            own = self._samples.get(place, [])
            stop = bisect_right(self._sampled.get(place, []), min(as_of, self.now))
            if row["committed_offset"] is None:
                found.append(between)
                continue
            above = bisect_right(self._ends.get(place, []), row["committed_offset"], 0, stop)
            if above:
                between |= {"below_at": own[above - 1]["sampled_at"], "below_end": own[above - 1]["log_end"]}
            if above < stop:
                between |= {"above_at": own[above]["sampled_at"], "above_end": own[above]["log_end"]}
            found.append(between)
        return timed(found, CROSSED)

    def offsets(self) -> pa.Table:
        rows = []
        for key, own in self._commits.items():
            number = bisect_right(self._written[key], self.now)
            if number:
                at = own[number - 1]["committed_at"]
                rows.append({**_NULL, **own[number - 1], "commit_timestamp": at, "source_partition": 0})
        return timed(rows, OFFSETS)

    def groups(self, groups: Sequence[str] | None = None) -> pa.Table:
        return self.groups_before(groups, until=self.now)

    def groups_before(self, groups: Sequence[str] | None, *, until: int) -> pa.Table:
        since = max((at for at in self.groups_since if at <= until), default=None)
        rows = [] if since is None else self._groups_at(since, groups)
        return timed([row for row in rows if row["members"] is not None], GROUPS)

    def groups_over_time(self, groups: Sequence[str] | None, *, since: int, until: int) -> pa.Table:
        rows = [
            {**row, "written_at": at}
            for at in sorted(self.groups_since)
            for row in self._groups_at(at, groups)
            if at <= until
        ]
        return timed(rows, GROUPS_OVER_TIME)

    def _groups_at(self, since: int, groups: Sequence[str] | None) -> list[dict[str, Any]]:
        known, now = sorted({name for some in self.groups_since.values() for name in some}), self.groups_since
        said = {"source_timestamp": since, "source_partition": 0}
        return [
            {**dict.fromkeys(GROUPS.names), "group": name, **said, **now[since].get(name, {})}
            for name in known
            if groups is None or name in groups
        ]

    def topics_over_time(self, topics: Collection[str] | None, *, as_of: int) -> pa.Table:
        return no_rows(TOPICS_OVER_TIME)

    @property
    def completeness(self) -> Completeness:
        read = {0: PartitionProgress(position=1, loaded=True)}
        return Completeness(progress=Progress(heartbeat=self.now, partitions=read), moment=self.now)

    def _rows(self, groups: Sequence[str] | None, since: int, until: int | None) -> Iterator[dict[str, Any]]:
        for key, own in self._commits.items():
            if groups is None or key[0] in groups:
                times = self._written[key]
                until = self.now if until is None else min(until, self.now)
                yield from own[bisect_left(times, since) : bisect_right(times, until)]

    # --- what views say of them ----------------------------------------------------------------------------

    def assessed(self, now: int, rules: HealthRules | None = None, **more: Any) -> pa.Table:
        """Return what every view says of the positions at a moment (ms)."""
        self.now = now
        facts, terms = Facts(lag=True, lag_time=True, health=True), Terms(rules=rules or HealthRules())
        rows = with_assigned(self.offsets(), self.groups(), self, now)
        return assess(self, rows, facts, moment=now, terms=terms, **more)

    def judged(self, now: int, rules: HealthRules | None = None, **more: Any) -> list[dict[str, Any]]:
        """Return the same as rows."""
        found: list[dict[str, Any]] = self.assessed(now, rules, **more).to_pylist()
        return found
