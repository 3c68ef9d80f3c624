"""How complete an answer is: the batch it reflects, and how far the offsets partitions were read."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import from_numbers, from_texts, numbers_or, to_mask, where
from streaming.common.partitions import offsets_partitions
from streaming.common.times import in_words, iso
from streaming.common.timestamps import to_milliseconds
from streaming.model.completeness import (
    BEHIND,
    COMPLETE_WITHIN_MS,
    LOADING,
    STALLED,
    UNANSWERED,
    Completeness,
    all_partitions,
)
from streaming.model.errors import OffsetlakeError
from streaming.model.progress import PartitionProgress, Progress
from streaming.settings.model import OFFSETS_TOPIC
from streaming.tables.progress_rows import Gap
from streaming.tables.snapshot import Snapshot

LOAD_IN_PROGRESS: Final = "COORDINATOR_LOAD_IN_PROGRESS"


class IncompleteError(OffsetlakeError):
    """An answer would be incomplete, or older than allowed."""


@dataclass(frozen=True, kw_only=True)
class AsOf:
    """The state of the tables that an answer reflects: the last batch up to `moment` (ms), and the offsets
    partitions involved.

    `completeness` has the moment. `gap` is the time without heartbeats around a past moment, if any.
    `log_ends_at` is when the log end offsets of its lag were read (None: the answer has no lag); with
    `is_sampled` also the time of the offsets from which the lag is counted. `why_no_lag` is the reason for a
    missing lag.
    """

    completeness: Completeness
    partitions: frozenset[int]
    gap: Gap | None = None
    is_past: bool = False
    log_ends_at: int | None = None
    is_sampled: bool = False
    why_no_lag: str | None = None

    @classmethod
    def of(
        cls,
        groups: Collection[str] | None,
        progress: Progress,
        *,
        now: int,
        within_ms: int = COMPLETE_WITHIN_MS,
    ) -> Self:
        """Return the state for an answer of `now` (ms) about groups (None: all)."""
        return cls(
            completeness=Completeness(progress=progress, moment=now, within_ms=within_ms),
            partitions=partitions_of(groups, progress),
        )

    @classmethod
    def at(cls, groups: Collection[str] | None, at: Snapshot) -> Self:
        """Return the state for an answer from a snapshot about groups (None: all)."""
        return cls(
            completeness=at.completeness,
            partitions=partitions_of(groups, at.progress),
            gap=at.gap,
            is_past=at.is_past,
        )

    @property
    def moment(self) -> int:
        return self.completeness.moment

    @property
    def progress(self) -> Progress:
        """The job's last progress before the moment."""
        return self.completeness.progress

    @cached_property
    def states(self) -> dict[int, str]:
        """The state of each offsets partition involved: see `Completeness.state`."""
        return {number: self.completeness.state(number) for number in sorted(self.partitions)}

    @property
    def loading(self) -> list[int]:
        """The offsets partitions involved that were not read to their end yet."""
        return self._in_state(LOADING)

    def _in_state(self, wanted: str) -> list[int]:
        return [number for number, state in self.states.items() if state == wanted]

    def of_loaded(self, rows: pa.Table) -> pa.Table:
        """Return the rows (with `source_partition`) of offsets partitions that were read to their end."""
        loaded = np.array(sorted(self.completeness.loaded), np.int32)
        return where(rows, to_mask(pc.is_in(rows["source_partition"], value_set=from_numbers(loaded))))

    @property
    def is_loading(self) -> bool:
        """Whether groups may be missing because the topic was not read to its end yet."""
        return not self.progress.partitions or bool(self.loading)

    @property
    def age_ms(self) -> int:
        """Age of the job's last commit or heartbeat at the moment."""
        return self.moment - self.progress.heartbeat

    @property
    def read_until(self) -> int:
        """The moment (ms) up to which every commit in these partitions was read; if their ends are unknown,
        the moment of the last progress."""
        return self.completeness.read_until(self.partitions)

    @property
    def is_last_known(self) -> bool:
        """Whether the states are from before the job fell silent, and may not be those at the moment."""
        return bool(self.progress.partitions) and self.completeness.is_silent

    def of_all_groups(self) -> Self:
        """Return a copy for an answer that involves every offsets partition."""
        return replace(self, partitions=partitions_of(None, self.progress))

    @property
    def is_partial(self) -> bool:
        """Whether any offsets partition, involved or not, was not read to its end yet: names may be
        missing."""
        return not self.progress.partitions or bool(self.completeness.loading)

    def with_log_ends(self, asked_at: int) -> Self:
        """Return a copy for an answer with log end offsets requested from brokers at a moment (ms)."""
        return replace(self, log_ends_at=asked_at)

    def with_sampled_ends(self, rows: pa.Table, max_age_ms: int) -> Self:
        """Return a copy for rows with `ends_as_of`: `log_ends_at` is the oldest sample not older than
        `max_age_ms`; older samples are not used for lag."""
        if not len(rows):
            return self
        sampled = numbers_or(to_milliseconds(rows["ends_as_of"]), -1)
        newest = int(sampled.max())
        if newest < 0:
            return replace(self, why_no_lag="no log end offsets of these topics have been sampled")
        if newest < self.moment - max_age_ms:
            age = in_words(self.moment - newest)
            why = f"the newest log end offsets are of {iso(newest, 'seconds')}, {age} before"
            return replace(self, why_no_lag=why)
        oldest = int(sampled[sampled >= self.moment - max_age_ms].min())
        return replace(self, log_ends_at=oldest, is_sampled=True)

    def loading_of(self, groups: Collection[str] | None) -> dict[str | None, str]:
        """Return the error of each named group whose offsets partition is still loading."""
        if groups is None or not self.is_loading:
            return {}
        loading = set(self.loading)
        return {
            group: LOAD_IN_PROGRESS
            for group in groups
            if not self.progress.partitions or partitions_of([group], self.progress) & loading
        }

    def caveats(self) -> list[str]:
        """Return the remarks to print with the answer: how it is incomplete, and how old it is."""
        return [*self.shortcomings(), *self.silence(), *self._false_lag()]

    def shortcomings(self) -> list[str]:
        """Return how the answer may differ from the broker's; empty if it is complete."""
        behind, stalled = self._in_state(BEHIND), self._in_state(STALLED)
        found = []
        rebuild = self.progress.rebuild
        if rebuild is not None:
            found.append(
                f"a rebuild has been in progress since {iso(rebuild.since)}, because {rebuild.reason}; "
                "the tables do not change until it is complete"
            )
        if not self.progress.partitions:
            found.append(f"{LOAD_IN_PROGRESS}: nothing has been read yet")
        elif self.loading:
            found.append(
                f"{LOAD_IN_PROGRESS}: offsets partitions {_listed(self.loading)} are still being read"
            )
        if behind:
            found.append(f"offsets partitions {_listed(behind)} are behind: newer commits are not read yet")
        if stalled:
            found.append(
                f"offsets partitions {_listed(stalled)} are stalled: "
                "an open transaction holds back newer commits"
            )
        found += self._unanswered()
        if self.gap is not None:
            found.append(str(self.gap))
        return found

    def _unanswered(self) -> list[str]:
        unanswered = self._in_state(UNANSWERED)
        if not unanswered:
            return []
        return [
            f"the brokers have not answered for offsets partitions {_listed(unanswered)} since "
            f"{iso(self.completeness.read_until(unanswered))}: commits after that are not known"
        ]

    def silence(self) -> list[str]:
        """Return a remark if the job's last heartbeat is old; empty if it is not, or if the job never
        started.

        (Of past moments only longer gaps are kept: `shortcomings` has them.)
        """
        if self.is_past or not self.is_last_known:
            return []
        at = iso(self.progress.heartbeat, "seconds")
        if self.age_ms < 0:
            ahead = in_words(-self.age_ms)
            return [f"the job's last heartbeat is {ahead} ahead of this machine's clock ({at}): one is wrong"]
        return [f"the job's last heartbeat was {in_words(self.age_ms)} ago ({at}): nothing later is included"]

    def _false_lag(self) -> list[str]:
        if self.log_ends_at is None or self.log_ends_at - self.read_until <= self.completeness.within_ms:
            return []
        return [
            "the lag shown is not the present lag of the groups: it is between commits up to "
            f"{iso(self.read_until, 'seconds')} and log end offsets of {iso(self.log_ends_at, 'seconds')}"
        ]

    def check(
        self, *, is_complete: bool = False, may_be_silent: bool = False, max_age_ms: int | None = None
    ) -> None:
        """Raise `IncompleteError` if the answer is incomplete (with `is_complete`; old heartbeats are
        accepted with `may_be_silent`), older than `max_age_ms`, or ahead of the moment by more than that."""
        shortcomings = self.shortcomings() if may_be_silent else [*self.shortcomings(), *self.silence()]
        if is_complete and shortcomings:
            raise IncompleteError(f"expected a complete answer, found: {'; '.join(shortcomings)}.")
        if max_age_ms is None or -max_age_ms <= self.age_ms <= max_age_ms:
            return
        if self.age_ms < 0:
            raise IncompleteError(
                f"expected a heartbeat of the job within {max_age_ms / 1_000:g} s, found the last one "
                f"{-self.age_ms / 1_000:g} s ahead of this machine's clock: one of the clocks is wrong."
            )
        if self.is_past:
            raise IncompleteError(
                f"expected a heartbeat of the job within {max_age_ms / 1_000:g} s before {iso(self.moment)}, "
                f"found the last one {self.age_ms / 1_000:g} s before it. Of past heartbeats one a minute is "
                "kept."
            )
        raise IncompleteError(
            f"expected a heartbeat of the job within {max_age_ms / 1_000:g} s, "
            f"found the last one {self.age_ms / 1_000:g} s old. Is `offsetlake run` running?"
            if self.progress.heartbeat
            else "expected a heartbeat of the job, found none: no data recorded yet."
        )

    def document(self) -> dict[str, Any]:
        """Return the state as JSON values, times in ISO 8601 (UTC)."""
        progress = self.progress
        known = {number: progress.partitions.get(number, PartitionProgress()) for number in self.states}
        return {
            "moment": iso(self.moment),
            "batch": progress.sequence,
            "written": None if progress.batch_time is None else iso(progress.batch_time),
            "last_heartbeat": iso(progress.heartbeat) if progress.heartbeat else None,
            "is_last_known": self.is_last_known,
            "read_until": iso(self.read_until) if progress.heartbeat else None,
            "log_ends_at": None if self.log_ends_at is None else iso(self.log_ends_at),
            "partitions": {
                number: {
                    "state": state,
                    "position": known[number].position,
                    "last_stable_offset": known[number].as_shown.last_stable_offset,
                    "high_watermark": known[number].as_shown.high_watermark,
                }
                for number, state in self.states.items()
            },
            "warnings": self.caveats(),
        }

    def __str__(self) -> str:
        if self.progress.batch_time is None:
            batch = "as of the start: no changes yet"
        else:
            batch = f"as of batch {self.progress.sequence}, written {iso(self.progress.batch_time)}"
        states = list(self.states.values())
        counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        known = "last known state of offsets partitions" if self.is_last_known else "offsets partitions"
        lines = [f"{batch}; {known}: {counted or 'none known'}"]
        if self.log_ends_at is not None:
            at = iso(self.log_ends_at, "seconds")
            lines.append(
                f"lag: committed offsets and log end offsets of {at}"
                if self.is_sampled
                else f"lag: commits up to {iso(self.read_until, 'seconds')}, log end offsets of {at}"
            )
        if self.why_no_lag is not None:
            lines.append(f"lag: not known, because {self.why_no_lag}")
        return "\n".join(lines)


def partitions_of(groups: Collection[str] | None, progress: Progress) -> frozenset[int]:
    """Return the offsets partitions that can hold the groups (None: all).

    They are known for Kafka's own topic; in a copy, groups may be anywhere.
    """
    count = partition_count(progress)
    if groups is None or not count:
        return frozenset(all_partitions(progress))
    return frozenset(offsets_partitions(from_texts(list(groups)), count).tolist())


def partition_count(progress: Progress) -> int:
    """Return the number of offsets partitions, which determines the partition of a group; 0: unknown, as in a
    copy of Kafka's topic, or until all partitions have answered."""
    count = len(progress.partitions)
    is_known = progress.topic == OFFSETS_TOPIC and progress.partitions.keys() == set(range(count))
    return count if is_known else 0


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
