"""How complete the tables are: the one definition, by which every view goes.

Of an offsets partition everything is known up to a moment: when it was last read to its end, as far as that
was seen. While that is no longer ago than a setting allows (`[tables] complete_within`), the partition is
`current`. Else its state says what stands in the way. It takes as long for every reason, so that a batch, a
short transaction or a restart of the job changes no answer. Tables that are loading or rebuilt are known to
lack something, and so are not current at once.
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
"""The states in which brokers have something that is not in the tables. Of a partition that is `unanswered`
everything was read that its leader last told of."""

COMPLETE_WITHIN_MS: Final = 180_000
"""The default of `[tables] complete_within`, for those who have no settings."""


@dataclass(frozen=True, kw_only=True)
class Completeness:
    """How complete the tables are at a `moment` (ms), by what the job said last.

    What was read up to a moment at most `within_ms` ago is complete. Of a past moment it is known whether the
    job `was_observed` around it (None: this is about now).
    """

    progress: Progress
    moment: int
    within_ms: int = COMPLETE_WITHIN_MS
    was_observed: bool | None = None

    @cached_property
    def is_silent(self) -> bool:
        """Whether the job's last heartbeat is so old that nothing is complete; states are then those that it
        said last. One that is as far ahead is no better: a clock is wrong, and nobody knows how old it is."""
        if self.was_observed is not None:
            return not self.was_observed
        return abs(self.moment - self.progress.heartbeat) > self.within_ms

    def state(self, number: int) -> str:
        """Return the state of an offsets partition: one of `STATES`.

        `loading`: it was not read to the end that it had when reading began, or nothing is known of it.
        `rebuilding`: the topic is being read anew, and the tables stay as they are. `behind`: something could
        be read that was not. `stalled`: an open transaction hides what comes after. `unanswered`: its leader
        does not say where it ends; what it last said was read.
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
        return UNANSWERED if partition.held_back_since is None else STALLED

    def _is_old(self, partition: PartitionProgress) -> bool:
        is_now = self.was_observed is None and not self.is_silent
        at = self.moment if is_now else self.progress.heartbeat  # (the last word before a past moment, too)
        return at - read_until(partition, self.progress) > self.within_ms

    @cached_property
    def states(self) -> dict[int, str]:
        """The state of each offsets partition; before the last of those known, also of those of which nothing
        is known."""
        return {number: self.state(number) for number in all_partitions(self.progress)}

    @property
    def loading(self) -> frozenset[int]:
        """The offsets partitions that are `loading`, whatever the moment."""
        return loading_in(self.progress)

    @property
    def loaded(self) -> frozenset[int]:
        """The offsets partitions that are not `loading`."""
        return frozenset(all_partitions(self.progress)) - self.loading

    @cached_property
    def complete(self) -> frozenset[int]:
        """The offsets partitions of whose groups everything is known."""
        return frozenset() if self.is_silent else self.of_state(CURRENT)

    @cached_property
    def outdated(self) -> frozenset[int]:
        """The offsets partitions in which brokers have had something for so long that is not in the tables:
        those in one of the states `_LACKING`, of a rebuild once it has taken as long as all else may."""
        return self.loading | frozenset(
            number
            for number, partition in self.progress.partitions.items()
            if self.state(number) in _LACKING and self._is_old(partition)
        )

    def of_state(self, *states: str) -> frozenset[int]:
        """Return the offsets partitions in one of some states."""
        return frozenset(number for number, state in self.states.items() if state in states)

    def read_until(self, numbers: Collection[int] | None = None) -> int:
        """Return up to when (ms) everything in some offsets partitions (None: in all) was read; those that
        are loading do not count."""
        known = self.progress.partitions
        chosen = [known[number] for number in (known if numbers is None else numbers) if number in known]
        moments = [read_until(partition, self.progress) for partition in chosen if partition.loaded]
        return min(moments, default=self.progress.heartbeat)


def all_partitions(progress: Progress) -> dict[int, PartitionProgress]:
    """Return how far each offsets partition was read: those of which something is known, and all before."""
    known = progress.partitions
    return {number: known.get(number, PartitionProgress()) for number in range(max(known, default=-1) + 1)}


def read_until(partition: PartitionProgress, progress: Progress) -> int:
    """Return up to when (ms) everything in an offsets partition that is loaded was read, also what an open
    transaction hides. 0: it was never read so far; without an end to go by, what the job said last."""
    reached = partition.whole
    if reached.as_of is None:
        return progress.heartbeat if reached.target is None else 0
    return min(reached.as_of, progress.heartbeat)


def loading_in(progress: Progress) -> frozenset[int]:
    """Return the offsets partitions that are `loading`."""
    return frozenset(number for number, one in all_partitions(progress).items() if not one.loaded)
