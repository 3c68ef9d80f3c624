"""Principals of the Kafka listener, and the groups and topics that each may see."""

import fnmatch
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from streaming.common.arrays import Mask
from streaming.serve.memory.names import NameIndex, fixed

_AT_A_TIME: Final = 4_096  # names to match at a time, before other threads may run
_WILDCARD: Final = re.compile(r"[*?[]")


@dataclass(frozen=True, kw_only=True)
class Principal:
    """A signed-in client, with patterns (`*`, `?`, `[...]`) of the groups and topics that it may see."""

    name: str
    groups: Sequence[str]
    topics: Sequence[str]

    def __hash__(self) -> int:
        return hash(self.name)

    def may_see_group(self, group: str) -> bool:
        return self.visible_groups.match(group)

    def may_see_topic(self, topic: str) -> bool:
        return self.visible_topics.match(topic)

    @cached_property
    def visible_groups(self) -> "Patterns":
        return Patterns(self.groups)

    @cached_property
    def visible_topics(self) -> "Patterns":
        return Patterns(self.topics)


class Patterns:
    """Patterns of names, of which a name must match one.

    Answers about all names of a snapshot are kept as long as its index of names, which most snapshots share
    with the one before.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self.are_all = "*" in texts
        """Whether every name matches."""
        self._match = re.compile("|".join(map(fnmatch.translate, texts)) or r"(?!)").match
        self._ranges: WeakKeyDictionary[NameIndex, Sequence[range]] = WeakKeyDictionary()
        self._masks: WeakKeyDictionary[NameIndex, Mask] = WeakKeyDictionary()

    def match(self, name: str) -> bool:
        return self.are_all or self._match(name) is not None

    def ranges(self, names: NameIndex) -> Sequence[range]:
        """Return disjoint ranges of places, in order, outside of which no name matches; takes little time."""
        found = self._ranges.get(names)
        if found is None:
            found = self._ranges[names] = list(_joined(_range(text, names) for text in self._texts))
        return found

    def mask(self, names: NameIndex) -> Mask:
        """Return whether each name (n) matches. The first time this takes 0.3 s for a million names that only
        a wildcard at the begin of a pattern can match, and else little."""
        found = self._masks.get(names)
        if found is None:
            found = np.zeros(len(names), np.bool_)
            for text in self._texts:
                places = _range(text, names)
                found[places.start : places.stop] |= _matching(text, places, names)
            self._masks[names] = fixed(found)
        return found


def _range(pattern: str, names: NameIndex) -> range:
    """Return the places of the names that begin as a pattern does, or of the only name that it matches."""
    wildcard = _WILDCARD.search(pattern)
    if wildcard is None:
        place = names.place(pattern)
        return range(0) if place is None else range(place, place + 1)
    length = wildcard.start()
    every, begin = range(len(names)), pattern[:length]
    start = bisect_left(every, begin, key=names.name)
    return range(start, bisect_right(every, begin, lo=start, key=lambda place: names.name(place)[:length]))


def _matching(pattern: str, places: range, names: NameIndex) -> Mask | bool:
    """Return whether the names at some places, those of `_range`, match a pattern."""
    wildcard = _WILDCARD.search(pattern)
    if wildcard is None or pattern[wildcard.start() :] == "*":
        return True
    match = re.compile(fnmatch.translate(pattern)).match
    texts = (
        name
        for start in range(places.start, places.stop, _AT_A_TIME)
        for name in names.texts[start : min(start + _AT_A_TIME, places.stop)].to_pylist()
    )
    return np.fromiter((match(text) is not None for text in texts), np.bool_, len(places))


def _joined(ranges: Iterator[range]) -> Iterator[range]:
    """Yield the union of ranges as disjoint ones, in order."""
    last = range(0)
    for one in sorted(filter(len, ranges), key=lambda one: one.start):
        if last and one.start <= last.stop:
            last = range(last.start, max(last.stop, one.stop))
            continue
        if last:
            yield last
        last = one
    if last:
        yield last
