"""Who commits when: short-lived groups that come and go beside steady ones, or random keys of many."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import kafka_clients as kafka
import numpy as np
import numpy.typing as npt
from commit_client import Commit, Committer

TOPIC: Final = "events"
AGAIN_AFTER_S: Final = 10.0  # every other short-lived group commits once more, this long after the first time


@dataclass(frozen=True, kw_only=True)
class ShortLived:
    """`groups` groups, each of which commits 1 to 3 offsets once or twice and is never seen again; evenly
    over `seconds`. Beside them `steady` groups, each of which commits all its partitions every `period_s`."""

    groups: int
    seconds: float
    steady: int = 1_500
    steady_partitions: int = 5
    period_s: float = 15.0

    @property
    def partitions(self) -> int:
        """How many partitions the topic needs."""
        return max(3, self.steady_partitions)

    @property
    def steady_names(self) -> list[str]:
        """The groups that stay."""
        return [f"steady-{number:05}" for number in range(self.steady)]

    def come_by(self, seconds: float) -> int:
        """How many short-lived groups have come by a time."""
        return int(self.groups * min(max(seconds, 0.0), self.seconds) / self.seconds)

    def first(self) -> Iterator[Commit]:
        """What is committed before the clock starts: the steady groups."""
        yield from (self._of_steady(number, 0) for number in range(self.steady))

    def between(self, start: float, stop: float) -> Iterator[Commit]:
        """What is committed from a time up to another one, in seconds."""
        per_second = self.steady / self.period_s
        for turn in range(int(start * per_second), int(stop * per_second)):
            yield self._of_steady(turn % self.steady, 1 + turn // self.steady)
        yield from map(self._of_short_lived, range(self.come_by(start), self.come_by(stop)))
        for number in range(self.come_by(start - AGAIN_AFTER_S), self.come_by(stop - AGAIN_AFTER_S)):
            if number % 2:
                yield self._of_short_lived(number, 200)

    def _of_steady(self, number: int, offset: int) -> Commit:
        partitions = range(self.steady_partitions)
        return Commit(f"steady-{number:05}", TOPIC, partitions, [offset] * len(partitions))

    def _of_short_lived(self, number: int, offset: int = 100) -> Commit:
        partitions = range(1 + number % 3)
        return Commit(f"short-{number:08}", TOPIC, partitions, [offset] * len(partitions))


@dataclass(frozen=True, kw_only=True)
class RandomKeys:
    """`keys` live offsets, `per_group` in each group, of which `rate` a second are committed anew at random
    for `seconds`."""

    keys: int
    rate: float
    seconds: float
    per_group: int = 50
    seed: int = 1

    @property
    def partitions(self) -> int:
        """How many partitions the topic needs."""
        return self.per_group

    @property
    def names(self) -> list[str]:
        """All groups."""
        return [f"group-{number:06}" for number in range(self.keys // self.per_group)]

    @cached_property
    def offsets_at_first(self) -> npt.NDArray[np.int64]:
        """The offset of every key before the clock starts: values that hardly repeat."""
        return np.random.default_rng(self.seed).integers(0, 2**40, self.keys)

    @cached_property
    def drawn(self) -> npt.NDArray[np.int64]:
        """The key of every commit after `first`; the n-th moves its key to n past where it was at first."""
        return np.random.default_rng(self.seed + 1).integers(0, self.keys, int(self.rate * self.seconds))

    def offsets_after(self, commits: int) -> npt.NDArray[np.int64]:
        """The offset of every key after so many commits."""
        offsets = self.offsets_at_first.copy()
        keys = self.drawn[:commits]
        offsets[keys] = self.offsets_at_first[keys] + np.arange(1, commits + 1)  # the last one counts
        return offsets

    def first(self) -> Iterator[Commit]:
        """What is committed before the clock starts: every key."""
        of_groups = self.offsets_at_first.reshape(-1, self.per_group).tolist()
        for name, offsets in zip(self.names, of_groups, strict=True):
            yield Commit(name, TOPIC, range(self.per_group), offsets)

    def between(self, start: float, stop: float) -> Iterator[Commit]:
        """What is committed from a time up to another one, in seconds."""
        turns = slice(int(start * self.rate), int(stop * self.rate))
        for number, key in enumerate(self.drawn[turns].tolist(), turns.start + 1):
            group, partition = divmod(key, self.per_group)
            offset = int(self.offsets_at_first[key]) + number
            yield Commit(f"group-{group:06}", TOPIC, (partition,), (offset,))


Plan = ShortLived | RandomKeys


def begin(bootstrap: str, plan: Plan, offsets_partitions: int) -> None:
    """Create the topics, wait for all coordinators, and commit what is there before the clock starts."""
    kafka.create_topics(bootstrap, {TOPIC: plan.partitions})
    commits = list(plan.first())
    one_each = {kafka.partition_of(commit.group, offsets_partitions): commit for commit in commits}
    for commit in one_each.values():
        kafka.alter_offsets(bootstrap, commit.group, {(TOPIC, 0): 0})  # asks again while they are loading
    with Committer(bootstrap) as committer:
        committer.commit_all(commits)
