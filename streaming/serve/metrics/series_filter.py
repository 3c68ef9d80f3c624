"""The filter of series: by granularity and by idle groups."""

import fnmatch
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from streaming.common.arrays import Index, Mask
from streaming.serve.memory.names import NONE, NameIndex
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.serve.metrics.catalogue.metric import LEVELS
from streaming.serve.metrics.series import Series
from streaming.settings.model import MetricsSettings

_NUMBERS: Final[Mapping[str, int]] = {level: number for number, level in enumerate(LEVELS)}
_NONE_OF_GROUP: Final = "none"


class Granularity:
    """The finest level of the series of each group, by the first pattern that matches."""

    def __init__(self, settings: MetricsSettings) -> None:
        self.finest: Final = _NUMBERS[settings.granularity]
        self._patterns = [
            (re.compile(fnmatch.translate(entry.pattern)), _number(entry.granularity))
            for entry in settings.groups
        ]
        self._known: tuple[NameIndex, Index] = NameIndex.none(), np.empty(0, np.int64)

    @property
    def finest_of_any(self) -> int:
        return max([self.finest, *(number for _, number in self._patterns)])

    def of(self, groups: NameIndex) -> Index:
        """Return the level (an index into `LEVELS`) of each of n groups."""
        if not self._patterns:
            return np.full(len(groups), self.finest)
        if self._known[0] is not groups:
            levels = [self._of(name) for name in groups.places]
            self._known = groups, np.array(levels, np.int64)
        return self._known[1]

    def of_each(self, groups: Sequence[str]) -> Index:
        return np.array([self._of(group) for group in groups], np.int64)

    def _of(self, group: str) -> int:
        return next((number for pattern, number in self._patterns if pattern.match(group)), self.finest)


def _number(granularity: str) -> int:
    return 0 if granularity == _NONE_OF_GROUP else _NUMBERS[granularity]


@dataclass(frozen=True, eq=False)
class SeriesFilter:
    """For n groups: the finest level, whether the group is idle, and whether its offsets partition is
    complete. `withheld` counts the series that were dropped, by reason."""

    levels: Index
    finest: int
    is_idle: Mask
    is_complete: Mask
    withheld: Counter[str] = field(default_factory=Counter)

    def of(self, series: Series) -> Series:
        """Drop the unwanted series, and count them."""
        groups = series.groups
        if groups is None:
            return series
        number = _NUMBERS[series.metric.level]
        is_fine = self.levels[groups] >= number
        is_asked = is_fine | (number <= self.finest)
        is_left = np.ones(len(groups), np.bool_)
        for reason, mask in (
            ("incomplete", ~self.is_complete[groups]),
            ("idle", self.is_idle[groups]),
            ("granularity", ~is_fine),
        ):
            self.withheld[reason] += int(np.count_nonzero(is_left & mask & is_asked))
            is_left &= ~mask
        return series.where(is_left)


def idle_groups(snapshot: MemorySnapshot, last_commit: Index, *, now: int, idle_after_ms: int) -> Mask:
    """Return for each group (n) whether it has no member and no commit within `idle_after_ms` (0: never);
    `last_commit` are the times of the last commits (ms; `NONE`: never, or unknown)."""
    if not idle_after_ms:
        return np.zeros(len(snapshot.groups), np.bool_)
    is_old = (last_commit != NONE) & (now - last_commit > idle_after_ms)
    idle: Mask = is_old & (snapshot.groups.member_counts == 0)
    return idle
