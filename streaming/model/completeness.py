"""How complete the tables are: the one definition, which all views use.

Everything in an offsets partition is known up to a moment: the time when the job last read it to its end.
While that is no longer ago than a setting allows (`[tables] complete_within`), the partition is `current`.
Otherwise its state names the reason. The limit is the same for every reason, so that a batch, a short
transaction or a restart of the job changes no answer. Tables that are loading or rebuilding certainly lack
something: they are not current, without any time limit.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from streaming.model.progress import PartitionProgress, Progress

CURRENT: Final = "current"
LOADING: Final = "loading"
REBUILDING: Final = "rebuilding"
BEHIND: Final = "behind"
STALLED: Final = "stalled"
UNANSWERED: Final = "unanswered"

STATES: Final = (CURRENT, LOADING, REBUILDING, BEHIND, STALLED, UNANSWERED)
"""All states of an offsets partition: see `Completeness.state`."""

_LACKING: Final = frozenset({REBUILDING, BEHIND, STALLED})
"""The states in which brokers have something that is not in the tables. An `unanswered` partition was read up
to the last end that its leader returned."""

COMPLETE_WITHIN_MS: Final = 180_000
"""The default of `[tables] complete_within`, for callers without settings."""


@dataclass(frozen=True, kw_only=True)
class Completeness:
    """How complete the tables are at a `moment` (ms), by the job's last progress.

    Everything that was read up to a moment at most `within_ms` ago is complete. For a past moment,
    `was_observed` says whether the job wrote heartbeats around it (None: the moment is about now).
    """

    progress: Progress
    moment: int
    within_ms: int = COMPLETE_WITHIN_MS
    was_observed: bool | None = None

    @cached_property
    def is_silent(self) -> bool:
        """Whether the job's last heartbeat is so old that nothing is complete; states are then those of that
        heartbeat. A heartbeat as far in the future counts too: a clock is wrong, and its age is unknown.
        """
        if self.was_observed is not None:
            return not self.was_observed
        return abs(self.moment - self.progress.heartbeat) > self.within_ms

    def state(self, number: int) -> str:
        """Return the state of an offsets partition: one of `STATES`.

        `loading`: it was not yet read to the end that it had when reading began, or nothing is known of it.
        `rebuilding`: the topic is being read again, and the tables stay as they are. `behind`: the job has
        not read everything that is readable. `stalled`: an open transaction hides later records.
        `unanswered`: its leader does not return its end; it was read to the last known one.
        """
        partition = self.progress.partitions.get(number, PartitionProgress())
        if not partition.loaded:
            return LOADING
        if self.progress.rebuild is not None:
            return REBUILDING
        if not self._is_old(partition):
            return CURRENT
        if partition.behind:
            return BEHIND
        return UNANSWERED if partition.open_transaction_since is None else STALLED

    def _is_old(self, partition: PartitionProgress) -> bool:
        is_now = self.was_observed is None and not self.is_silent
        at = self.moment if is_now else self.progress.heartbeat  # for a past moment, the last one before it
        return at - read_until(partition, self.progress) > self.within_ms

    @cached_property
    def states(self) -> dict[int, str]:
        """The state of each offsets partition, from 0 to the highest known one."""
        return {number: self.state(number) for number in all_partitions(self.progress)}

    @property
    def loading(self) -> frozenset[int]:
        """The offsets partitions that are `loading`; they are the same at every moment."""
        return loading_in(self.progress)

    @property
    def loaded(self) -> frozenset[int]:
        return frozenset(all_partitions(self.progress)) - self.loading

    @cached_property
    def complete(self) -> frozenset[int]:
        """The offsets partitions whose groups are completely known."""
        return frozenset() if self.is_silent else self.of_state(CURRENT)

    @cached_property
    def outdated(self) -> frozenset[int]:
        """The offsets partitions that have lacked records of the brokers for longer than allowed: those that
        are loading, and those in one of the states `_LACKING` (of a rebuild, once it takes longer than
        allowed).
        """
        return self.loading | frozenset(
            number
            for number, partition in self.progress.partitions.items()
            if self.state(number) in _LACKING and self._is_old(partition)
        )

    def of_state(self, *states: str) -> frozenset[int]:
        return frozenset(number for number, state in self.states.items() if state in states)

    def read_until(self, numbers: Collection[int] | None = None) -> int:
        """Return the moment (ms) up to which everything in the given offsets partitions (None: in all) was
        read; partitions that are loading are ignored.
        """
        known = self.progress.partitions
        chosen = [known[number] for number in (known if numbers is None else numbers) if number in known]
        moments = [read_until(partition, self.progress) for partition in chosen if partition.loaded]
        return min(moments, default=self.progress.heartbeat)


def all_partitions(progress: Progress) -> dict[int, PartitionProgress]:
    """Return the progress of each offsets partition, from 0 to the highest known one."""
    known = progress.partitions
    return {number: known.get(number, PartitionProgress()) for number in range(max(known, default=-1) + 1)}


def read_until(partition: PartitionProgress, progress: Progress) -> int:
    """Return the moment (ms) up to which everything in a loaded offsets partition was read, including the
    records that an open transaction hides. 0: it was never read that far; if no end was ever seen, the last
    heartbeat.
    """
    reached = partition.whole
    if reached.as_of is None:
        return progress.heartbeat if reached.target is None else 0
    return min(reached.as_of, progress.heartbeat)


def loading_in(progress: Progress) -> frozenset[int]:
    return frozenset(number for number, one in all_partitions(progress).items() if not one.loaded)
