"""The job's progress in the source: one JSON document in every commit to `changes`.

It is committed together with its rows, so rows and progress always agree.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, TypeVar

from streaming.model.errors import OtherFormatError
from streaming.model.totals import Totals, totals_from_document

T = TypeVar("T")

PROGRESS_FORMAT: Final = 5
"""Version of the document: incremented with every field or meaning that another release does not know."""


@dataclass(frozen=True)
class PartitionEnds:
    """The current ends of one partition: for readers of committed data, and for all others.

    `last_stable_offset` <= `high_watermark`; they differ while a transaction is open.
    """

    last_stable_offset: int
    high_watermark: int

    def at_least(self, position: int) -> "PartitionEnds":
        """Return the ends raised to `position`, up to which records were readable."""
        return PartitionEnds(max(position, self.last_stable_offset), max(position, self.high_watermark))


@dataclass(frozen=True, kw_only=True)
class Reached:
    """The moment (`as_of`, ms) up to which everything before one of a partition's ends has been read.

    A partition that is written to all the time is never read to its newest end. So one of the ends seen is
    the target. Once the position reaches it, everything up to the time when it was the end is read.
    """

    as_of: int | None = None
    target: int | None = None
    target_at: int | None = None

    def with_end(self, end: int, position: int, now: int) -> "Reached":
        """Return it with the end seen at `now` (ms)."""
        if position >= end:
            return Reached(as_of=now)
        return self if self.target is not None else replace(self, target=end, target_at=now)

    def with_position(self, position: int) -> "Reached":
        """Return it after reading up to `position`."""
        is_reached = self.target is not None and position >= self.target
        return Reached(as_of=self.target_at) if is_reached else self

    @property
    def since(self) -> int | None:
        """The moment (ms) from which on something may be unread; None = no end was ever seen."""
        return self.target_at if self.as_of is None else self.as_of


@dataclass(frozen=True, kw_only=True)
class PartitionProgress:
    """The position in one offsets partition, and the ends at the last time the broker was asked. The ends are
    never below `position`: reading that far proves that the partition reaches it.

    `position` is the next source offset to read, from Spark's own offset log. `load_target` is the last
    stable offset seen when the job first started; once `position` has reached it, the partition stays
    `loaded`.

    `stable` is for everything readable (below the last stable offset), `whole` for everything in the log
    (below the high watermark): an open transaction hides the difference.

    `unanswered_since` (ms) is set while the partition's leader does not return its ends; they are then the
    last known ones.
    """

    position: int = 0
    last_stable_offset: int | None = None
    high_watermark: int | None = None
    load_target: int | None = None
    loaded: bool = False
    open_transaction_since: int | None = None  # ms; the lower end has not moved since
    unanswered_since: int | None = None
    stable: Reached = Reached()
    whole: Reached = Reached()

    @property
    def behind(self) -> int | None:
        """The number of source offsets between the position and the last stable offset; None = unknown."""
        return None if self.last_stable_offset is None else max(0, self.last_stable_offset - self.position)

    def at(self, position: int, now: int | None = None) -> "PartitionProgress":
        """Return the progress after a batch that ended at `position` (at `now`, ms; None: unknown)."""
        reached = max(position, self.position)
        moved = replace(
            self._with_ends_beyond(reached, now),
            position=reached,
            stable=self.stable.with_position(reached),
            whole=self.whole.with_position(reached),
        )
        return replace(moved, loaded=moved._is_loaded())

    def _with_ends_beyond(self, position: int, now: int | None) -> "PartitionProgress":
        """Raise the known ends to `position` if it is beyond: the transaction that held it back has ended."""
        if self.last_stable_offset is None or self.high_watermark is None:
            return self
        known = PartitionEnds(self.last_stable_offset, self.high_watermark)
        ends = known.at_least(position)
        if ends.last_stable_offset == known.last_stable_offset:
            return self
        is_held_back = self.open_transaction_since is not None and position < ends.high_watermark
        since = self.open_transaction_since if now is None else now
        return replace(self, **asdict(ends), open_transaction_since=since if is_held_back else None)

    def with_ends(self, ends: PartitionEnds, now: int) -> "PartitionProgress":
        """Return the progress with the ends that the broker returned at `now` (ms)."""
        ends = ends.at_least(self.position)  # a batch may have read on meanwhile
        is_held_back = ends.last_stable_offset < ends.high_watermark
        stands_still = is_held_back and ends.last_stable_offset == self.last_stable_offset
        since = (
            self.open_transaction_since if stands_still and self.open_transaction_since is not None else now
        )
        seen = replace(
            self,
            last_stable_offset=ends.last_stable_offset,
            high_watermark=ends.high_watermark,
            load_target=ends.last_stable_offset if self.load_target is None else self.load_target,
            open_transaction_since=since if is_held_back else None,
            unanswered_since=None,
            stable=self.stable.with_end(ends.last_stable_offset, self.position, now),
            whole=self.whole.with_end(ends.high_watermark, self.position, now),
        )
        return replace(seen, loaded=seen._is_loaded())

    def without_answer(self, now: int) -> "PartitionProgress":
        """Return the progress after the leader did not answer at `now` (ms)."""
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
    """How long the brokers keep offsets, and how often they check for expired ones.

    `source` is `broker` or `setting`. Times are milliseconds; `read_at` is the time of this reading,
    `known_since` that of the first of the readings with the same two values. `default_assignor` was read
    together with them: the server assignor of consumer groups whose members chose none (None: unknown).
    """

    retention_ms: int
    check_interval_ms: int
    source: str
    read_at: int
    known_since: int
    default_assignor: str | None = None

    def after(self, earlier: "Retention | None") -> "Retention":
        """Return this reading as the successor of `earlier`: if the values are equal, `known_since` stays."""
        if earlier is None or (earlier.retention_ms, earlier.check_interval_ms) != (
            self.retention_ms,
            self.check_interval_ms,
        ):
            return self
        return replace(self, known_since=earlier.known_since)


@dataclass(frozen=True, kw_only=True)
class Rebuild:
    """The topic is being read again from the beginning; the tables do not change until that is done."""

    since: int  # ms
    reason: str


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress in one commit to `changes`.

    The newest rows have this `sequence` and `batch_time`; `heartbeat` is the time of this document.
    `retention` is the last reading of the brokers' settings, so that readers can compute expiry without
    asking a broker; None: unknown. `topic_id` is the id of the topic that was read; None: unknown.
    `generation` counts how often the topic was read again from the beginning; `rebuild` is set while that is
    being done. `state_format` is the format of the state in the checkpoint. `fingerprint` belongs to the
    changes of the newest batch (`ShardResults`; None: no batch yet). `tombstones_kept_ms` is the last known
    `delete.retention.ms` of the topic. `batch_ms` is the duration of the last batch that Spark has reported,
    which it does after the commit: the commit of the next batch has it (None: no batch yet).
    `alerts_evaluated_at` is the time of the job's last evaluation of the alert rules (None: never). Times
    are milliseconds since 1970 (UTC).
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
        """Return the progress after a batch that ended at these positions (at `now`, ms; None: unknown)."""
        moved = {
            partition: self.partitions.get(partition, PartitionProgress()).at(position, now)
            for partition, position in positions.items()
        }
        return replace(self, partitions={**self.partitions, **moved})

    @property
    def waiting(self) -> int:
        """The number of source offsets between positions and last stable offsets, where known."""
        return sum(partition.behind or 0 for partition in self.partitions.values())

    def with_ends(self, ends: Mapping[int, PartitionEnds], now: int) -> "Progress":
        """Return the progress with the ends that the brokers returned at `now` (ms)."""
        seen = {
            partition: self.partitions.get(partition, PartitionProgress()).with_ends(end, now)
            for partition, end in ends.items()
        }
        return replace(self, partitions={**self.partitions, **seen})

    def with_answers(self, ends: Mapping[int, PartitionEnds], now: int) -> "Progress":
        """Return the progress with these ends; partitions that are missing there are unanswered."""
        silent = {
            number: partition.without_answer(now)
            for number, partition in self.partitions.items()
            if number not in ends
        }
        return replace(self, partitions={**self.partitions, **silent}).with_ends(ends, now)

    def with_retention(self, retention: Retention | None) -> "Progress":
        """Return the progress with a new reading of the brokers' settings; None keeps the last one."""
        return self if retention is None else replace(self, retention=retention.after(self.retention))

    def with_reason_to_rebuild(self, reason: str | None, now: int) -> "Progress":
        """Return the progress with a rebuild as of `now` (ms); None, and a rebuild that it has, keep it."""
        if reason is None or self.rebuild is not None:
            return self
        return replace(self, rebuild=Rebuild(since=now, reason=reason))

    def to_json(self) -> str:
        return json.dumps({"format": PROGRESS_FORMAT, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "Progress":
        """Read the document; raises `OtherFormatError` if another release wrote it."""
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
