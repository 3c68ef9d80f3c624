"""Which groups have series where there would be too many of them: those that had them before.

A group has all of its series or none. Where logs start and end is about no group: it comes and goes as one
more, after all groups that had series before.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from streaming.common.arrays import Index, Mask, numbers_or
from streaming.common.escapes import printable
from streaming.serve.memory.names import NONE, NameIndex
from streaming.serve.metrics.series import Series
from streaming.serve.metrics.source import MetricsSource

_ENTRY: Final = 0.9
"""While anything is withheld, more is admitted up to so much of the room: what is at the border does not come
and go."""

_NAMED: Final = 3
_SHOWN_CHARS: Final = 100
_LOGS: Final = "the starts and ends of logs"
_NEVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False, kw_only=True)
class Applicants:
    """n groups that would have `counts` series each: since which answer each has had them (that of now, the
    number `now`: it has not), whether it was withheld in the one before, whether it has members, and since
    when it is there (ms), as far as that is known."""

    counts: Index
    now: int
    since: Index
    is_withheld: Mask
    has_members: Mask
    born: Index


def admitted(applicants: Applicants, most: int) -> Mask:
    """Tell which of n groups have series, `most` at most.

    Who has had them for longer precedes who has had them for less long, or not at all. Of those that began
    together, groups with members precede those without, then the older precede the newer; then they are as
    they come. One that there is no room for is passed over. One without series now remains as it was.
    """
    counts, is_withheld = applicants.counts, applicants.is_withheld
    entry = int(_ENTRY * most) if is_withheld.any() else most
    limits = np.where(applicants.since < applicants.now, most, entry)
    chosen: Mask = ~is_withheld & (counts == 0)
    order = np.lexsort((applicants.born, ~applicants.has_members, applicants.since))
    order = order[counts[order] > 0]
    is_beyond = np.cumsum(counts[order]) > limits[order]
    first = int(np.argmax(is_beyond)) if is_beyond.any() else len(order)
    chosen[order[:first]] = True
    total, rest = int(counts[order[:first]].sum()), order[first:]
    rest = rest[total + counts[rest] <= limits[rest]]
    for place, count, limit in zip(rest.tolist(), counts[rest].tolist(), limits[rest].tolist(), strict=True):
        if total + count <= limit:
            chosen[place] = True
            total += count
    return chosen


class Seats:
    """Remembers from answer to answer who is admitted: n groups by name, groups that are gone, and logs."""

    def __init__(self, most: int) -> None:
        self._most, self._now = most, 0
        self._names, self._gone = NameIndex.none(), list[str]()
        self._since, self._is_withheld = np.zeros(1, np.int64), np.zeros(1, np.bool_)

    def given(
        self, names: NameIndex, gone: list[str], counts: Index, ranks: Callable[[], tuple[Mask, Index]]
    ) -> Mask:
        """Tell which of n groups, of those that are gone, and of logs (the last) have series; `ranks` says,
        if need be, which have members, and since when each is there."""
        self._now += 1
        self._see(names, gone)
        if counts.sum() <= self._most and not self._is_withheld.any():
            return ~self._is_withheld
        has_members, born = ranks()
        applicants = Applicants(
            counts=counts,
            now=self._now,
            since=self._since,
            is_withheld=self._is_withheld,
            has_members=has_members,
            born=born,
        )
        chosen = admitted(applicants, self._most)
        self._is_withheld = ~chosen
        return chosen

    def _see(self, names: NameIndex, gone: list[str]) -> None:
        """Take over what is remembered, for groups have come and gone."""
        if names is not self._names or gone != self._gone:
            moved = self._moved(names, gone)
            self._since = np.append(self._since, self._now)[moved]
            self._is_withheld = np.append(self._is_withheld, False)[moved]
            self._names, self._gone = names, gone
        self._since = np.where(self._is_withheld, self._now, self._since)
        is_after_others = (self._since[:-1] < self._now).any() and not self._is_withheld[-1]
        self._since[-1] = self._now - 1 if is_after_others else self._now

    def _moved(self, names: NameIndex, gone: list[str]) -> Index:
        """Return where each group, and logs, stood before (`NONE`: nowhere)."""
        stood = {group: number for number, group in enumerate(self._gone, len(self._names))}
        places = np.arange(len(names)) if names is self._names else self._names.places_of(names.texts).copy()
        for group, number in stood.items():
            if (place := names.place(group)) is not None:
                places[place] = number
        of_gone = [self._names.places.get(group, stood.get(group, NONE)) for group in gone]
        return np.concatenate([places, np.array([*of_gone, len(self._since) - 1], np.int64)])


@dataclass(frozen=True, kw_only=True)
class Withheld:
    """How many groups and series there was no room for; `largest` are those with most of the series, `others`
    is how many more there are."""

    groups: int = 0
    series: int = 0
    largest: Mapping[str, int] = field(default_factory=dict)
    others: int = 0

    def sentence(self, most: int) -> str:
        """Say so."""
        named = ", ".join(
            f"{printable(name)[:_SHOWN_CHARS]} ({count:,})" for name, count in self.largest.items()
        )
        others = f" and {self.others:,} more" if self.others else ""
        return (
            f"metrics: expected {most:,} series of groups at most ([metrics] max_series), found more: "
            f"{self.series:,} are withheld, all of {named}{others}. Raise max_series, or give groups that "
            "matter less a coarser granularity ([[metrics.groups]])."
        )


class Admission:
    """Says from answer to answer which series there are; `withheld` is what the last one lacks."""

    def __init__(self, most: int) -> None:
        self._most, self._seats, self.withheld = most, Seats(most), Withheld()

    @property
    def complaint(self) -> str:
        """Says what the last answer lacks; empty: nothing."""
        return self.withheld.sentence(self._most) if self.withheld.series else ""

    def of(self, source: MetricsSource, several: Sequence[Series]) -> list[Series]:
        """Return those of all wanted series that there is room for."""
        names, gone = source.assessment.snapshot.groups.names, source.gone
        size = len(names) + len(gone)
        counts = _counted(several, size)
        chosen = self._seats.given(names, gone, counts, lambda: _ranks(source, size))
        missing = np.flatnonzero(~chosen & (counts > 0))
        self.withheld = Withheld()
        if not len(missing):
            return list(several)
        largest = missing[np.argsort(-counts[missing], kind="stable")][:_NAMED]
        called = {place: _called(place, names, gone) for place in largest.tolist()}
        self.withheld = Withheld(
            groups=int(np.count_nonzero(missing < size)),
            series=int(counts[missing].sum()),
            largest={name: int(counts[place]) for place, name in called.items()},
            others=len(missing) - len(largest),
        )
        return [one.where(chosen[one.groups]) for one in several if one.groups is not None] + [
            one for one in several if one.groups is None and chosen[size]
        ]


def _counted(several: Sequence[Series], size: int) -> Index:
    """Return how many series each of n groups has, and at last how many are about none."""
    counts = np.zeros(size + 1, np.int64)
    for one in several:
        if one.groups is None:
            counts[size] += len(one)
        else:
            counts += np.bincount(one.groups, minlength=size + 1)
    return counts


def _ranks(source: MetricsSource, size: int) -> tuple[Mask, Index]:
    """Tell which groups have members, and since when each is there at least (ms)."""
    groups, sums = source.assessment.snapshot.groups, source.by_group
    born = np.full(size + 1, _NEVER)
    stated = numbers_or(groups.rows["state_timestamp"], NONE)
    born[: len(groups)] = np.where(stated == NONE, _NEVER, stated)
    committed = np.where(sums.oldest_commit == NONE, _NEVER, sums.oldest_commit)
    born[sums.groups] = np.minimum(born[sums.groups], committed)
    has_members = np.zeros(size + 1, np.bool_)
    has_members[: len(groups)] = groups.member_counts > 0
    return has_members, born


def _called(place: int, names: NameIndex, gone: list[str]) -> str:
    if place < len(names):
        return names.name(place)
    return gone[place - len(names)] if place < len(names) + len(gone) else _LOGS
