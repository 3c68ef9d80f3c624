"""How far the job has come: what every commit to `changes` says about the source, in one JSON document.

It is committed together with the rows it speaks of, so rows and progress are never at odds.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, TypeVar

from streaming.model.errors import OtherFormatError
from streaming.model.totals import Totals, totals_from_document

T = TypeVar("T")

PROGRESS_FORMAT: Final = 4
"""Version of the document: it grows with every field or meaning that another release does not know."""


@dataclass(frozen=True)
class PartitionEnds:
    """Where one partition ends now: for readers of committed data, and for all others.

    `last_stable_offset` <= `high_watermark`; they differ while a transaction is open.
    """

    last_stable_offset: int
    high_watermark: int

    def at_least(self, position: int) -> "PartitionEnds":
        """Return the ends as they must be if there was something to read up to `position`."""
        return PartitionEnds(max(position, self.last_stable_offset), max(position, self.high_watermark))


@dataclass(frozen=True, kw_only=True)
class Reached:
    """Up to when (`as_of`, ms) everything that stood before an end of a partition has been read.

    A partition that is written to all the time is never read to its newest end. So of all ends seen one is
    the target; once the position has reached it, everything up to the time when it was the end is read.
    """

    as_of: int | None = None
    target: int | None = None
    target_at: int | None = None

    def with_end(self, end: int, position: int, now: int) -> "Reached":
        """Return it with the end as it is at `now` (ms)."""
        if position >= end:
            return Reached(as_of=now)
        return self if self.target is not None else replace(self, target=end, target_at=now)

    def with_position(self, position: int) -> "Reached":
        """Return it after reading to `position`."""
        is_reached = self.target is not None and position >= self.target
        return Reached(as_of=self.target_at) if is_reached else self

    @property
    def since(self) -> int | None:
        """From when on something may be unread (ms); None = no end was ever seen."""
        return self.target_at if self.as_of is None else self.as_of


@dataclass(frozen=True, kw_only=True)
class PartitionProgress:
    """How far one offsets partition has been read, and where it ended when the broker was last asked, or no
    lower than `position`: what was read proves that it ended no lower.

    `position` is the next source offset to read, from Spark's own offset log. `load_target` is the last
    stable offset seen when the job first started; once `position` has reached it the partition is `loaded`
    for good.

    `stable` tells up to when everything readable was read (below the last stable offset), and `whole` up to
    when everything that was in the log (below the high watermark): an open transaction hides the rest.

    `unanswered_since` (ms) is set while the partition's leader does not say where it ends; the ends are then
    those of before.
    """

    position: int = 0
    last_stable_offset: int | None = None
    high_watermark: int | None = None
    load_target: int | None = None
    loaded: bool = False
    held_back_since: int | None = None  # ms; since when the two ends differ and the lower stands still
    unanswered_since: int | None = None
    stable: Reached = Reached()
    whole: Reached = Reached()

    @property
    def behind(self) -> int | None:
        """How many source offsets lie between the position and the last stable offset; None = not known."""
        return None if self.last_stable_offset is None else max(0, self.last_stable_offset - self.position)

    def at(self, position: int, now: int | None = None) -> "PartitionProgress":
        """Return the progress after a batch that ended at `position` (at `now`, ms; None: not known)."""
        reached = max(position, self.position)
        moved = replace(
            self._with_ends_beyond(reached, now),
            position=reached,
            stable=self.stable.with_position(reached),
            whole=self.whole.with_position(reached),
        )
        return replace(moved, loaded=moved._is_loaded())

    def _with_ends_beyond(self, position: int, now: int | None) -> "PartitionProgress":
        """Move the known ends to `position` if it lies beyond: a transaction that held it back has ended."""
        if self.last_stable_offset is None or self.high_watermark is None:
            return self
        known = PartitionEnds(self.last_stable_offset, self.high_watermark)
        ends = known.at_least(position)
        if ends.last_stable_offset == known.last_stable_offset:
            return self
        is_held_back = self.held_back_since is not None and position < ends.high_watermark
        since = self.held_back_since if now is None else now
        return replace(self, **asdict(ends), held_back_since=since if is_held_back else None)

    def with_ends(self, ends: PartitionEnds, now: int) -> "PartitionProgress":
        """Return the progress with what the broker says about the partition's ends at `now` (ms)."""
        ends = ends.at_least(self.position)  # a batch may have gone on while the broker was asked
        is_held_back = ends.last_stable_offset < ends.high_watermark
        stands_still = is_held_back and ends.last_stable_offset == self.last_stable_offset
        since = self.held_back_since if stands_still and self.held_back_since is not None else now
        seen = replace(
            self,
            last_stable_offset=ends.last_stable_offset,
            high_watermark=ends.high_watermark,
            load_target=ends.last_stable_offset if self.load_target is None else self.load_target,
            held_back_since=since if is_held_back else None,
            unanswered_since=None,
            stable=self.stable.with_end(ends.last_stable_offset, self.position, now),
            whole=self.whole.with_end(ends.high_watermark, self.position, now),
        )
        return replace(seen, loaded=seen._is_loaded())

    def without_answer(self, now: int) -> "PartitionProgress":
        """Return the progress after the leader, asked at `now` (ms), has not answered."""
        return self if self.unanswered_since is not None else replace(self, unanswered_since=now)

    @property
    def as_shown(self) -> "PartitionProgress":
        """This progress, without its ends while the leader does not answer: they may have changed."""
        if self.unanswered_since is None:
            return self
        return replace(self, last_stable_offset=None, high_watermark=None)

    def _is_loaded(self) -> bool:
        return self.loaded or (self.load_target is not None and self.position >= self.load_target)


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long the brokers keep offsets, and how often they look for those that are due.

    `source` is `broker` or `setting`. Times are milliseconds; `read_at` is when this was last read,
    `known_since` since when every reading has given the same two values. `default_assignor` is what brokers
    have said beside it: the assignor of groups of the consumer protocol whose members chose none (None: they
    did not say).
    """

    retention_ms: int
    check_interval_ms: int
    source: str
    read_at: int
    known_since: int
    default_assignor: str | None = None

    def after(self, earlier: "Retention | None") -> "Retention":
        """Return this reading as the next one after `earlier`: the same values are known since then."""
        if earlier is None or (earlier.retention_ms, earlier.check_interval_ms) != (
            self.retention_ms,
            self.check_interval_ms,
        ):
            return self
        return replace(self, known_since=earlier.known_since)


@dataclass(frozen=True, kw_only=True)
class Rebuild:
    """The topic is being re-read from the beginning, and why; the tables do not change until that is done."""

    since: int  # ms
    reason: str


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What one commit to `changes` says beside its rows.

    `sequence` is that of the newest rows, `batch_time` when they were written, `heartbeat` when this was
    written. `retention` is what was last known of the brokers' settings, so that readers can tell what
    expires without asking a broker; None: they did not say. `topic_id` is that of the topic that was read;
    None: the brokers did not say. `generation` counts how often the topic was re-read from the beginning,
    `rebuild` says that this is being done; `state_format` is that of the state in the checkpoint.
    `fingerprint` is that of the newest batch's changes (`ShardResults`; None: there was none yet).
    `tombstones_kept_ms` is `delete.retention.ms` of the topic as last told. `batch_ms` is how long the last
    batch took that Spark has told of, which it does after the commit: the next one carries it (None: of none
    yet). `alerts_evaluated_at` is when the job last evaluated the alert rules (None: never). Times are
    milliseconds since 1970 (UTC).
    """

    query_id: str | None = None
    batch_id: int = -1
    sequence: int = 0
    batch_time: int | None = None
    heartbeat: int = 0
    topic: str = ""
    topic_id: str | None = None
    cluster_id: str | None = None
    generation: int = 0
    state_format: int = 1
    partitions: Mapping[int, PartitionProgress] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    retention: Retention | None = None
    rebuild: Rebuild | None = None
    fingerprint: str | None = None
    tombstones_kept_ms: int | None = None
    batch_ms: int | None = None
    alerts_evaluated_at: int | None = None

    def with_positions(self, positions: Mapping[int, int], now: int | None = None) -> "Progress":
        """Return the progress after a batch that ended at these positions (at `now`, ms; None: not known)."""
        moved = {
            partition: self.partitions.get(partition, PartitionProgress()).at(position, now)
            for partition, position in positions.items()
        }
        return replace(self, partitions={**self.partitions, **moved})

    @property
    def waiting(self) -> int:
        """How many source offsets lie between positions and last stable offsets, where known."""
        return sum(partition.behind or 0 for partition in self.partitions.values())

    def with_ends(self, ends: Mapping[int, PartitionEnds], now: int) -> "Progress":
        """Return the progress with the partitions' ends as the brokers, asked at `now` (ms), gave them."""
        seen = {
            partition: self.partitions.get(partition, PartitionProgress()).with_ends(end, now)
            for partition, end in ends.items()
        }
        return replace(self, partitions={**self.partitions, **seen})

    def with_answers(self, ends: Mapping[int, PartitionEnds], now: int) -> "Progress":
        """Return the progress with these ends, and with what is missing there as unanswered."""
        silent = {
            number: partition.without_answer(now)
            for number, partition in self.partitions.items()
            if number not in ends
        }
        return replace(self, partitions={**self.partitions, **silent}).with_ends(ends, now)

    def with_retention(self, retention: Retention | None) -> "Progress":
        """Return the progress with a new reading of the brokers' settings; None leaves what is known."""
        return self if retention is None else replace(self, retention=retention.after(self.retention))

    def to_json(self) -> str:
        """Write the document."""
        return json.dumps({"format": PROGRESS_FORMAT, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "Progress":
        """Read the document; raises `OtherFormatError` when another release wrote it."""
        document = json.loads(text)
        found = document.pop("format")
        if found != PROGRESS_FORMAT:
            raise OtherFormatError("progress in the tables", expected=PROGRESS_FORMAT, found=found)
        return cls(
            **{
                **document,
                "partitions": {
                    int(number): _partition(partition) for number, partition in document["partitions"].items()
                },
                "totals": totals_from_document(document["totals"]),
                "retention": _optional(Retention, document["retention"]),
                "rebuild": _optional(Rebuild, document["rebuild"]),
            }
        )


def _partition(document: Mapping[str, Any]) -> PartitionProgress:
    reached = {name: Reached(**document[name]) for name in ("stable", "whole")}
    return PartitionProgress(**{**document, **reached})


def _optional(kind: type[T], document: Mapping[str, Any] | None) -> T | None:
    return None if document is None else kind(**document)
