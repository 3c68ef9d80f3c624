"""Admission of groups when there would be too many series: groups that had series before go first.

A group has all of its series or none. The series of log starts and ends belong to no group: they are admitted
together, as if they were one more group, after all groups that had series before.
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
"""While any group is withheld, others are admitted only up to this share of the limit, so that a group at the
limit does not flap."""

_NAMED: Final = 3
_SHOWN_CHARS: Final = 100
_LOGS: Final = "the starts and ends of logs"
_NEVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False, kw_only=True)
class Applicants:
    """n groups with `counts` series each. `since` is the number of the response from which on each has had
    its series (`now`, the number of this response: it has not), `is_withheld` whether it was withheld from
    the last one, and `born` the earliest known time of the group (ms)."""

    counts: Index
    now: int
    since: Index
    is_withheld: Mask
    has_members: Mask
    born: Index


def admitted(applicants: Applicants, most: int) -> Mask:
    """Return which of n groups have series, at most `most` in total.

    Groups with series for longer precede those with series for less long or without. Within one `since`,
    groups with members precede those without, then older precede newer groups; further ties keep their order.
    A group that does not fit is skipped. A group without series now keeps its state.
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
    """Remembers across responses which of n groups, groups that are gone, and logs are admitted."""

    def __init__(self, most: int) -> None:
        self._most, self._now = most, 0
        self._names, self._gone = NameIndex.none(), list[str]()
        self._since, self._is_withheld = np.zeros(1, np.int64), np.zeros(1, np.bool_)

    def given(
        self, names: NameIndex, gone: list[str], counts: Index, ranks: Callable[[], tuple[Mask, Index]]
    ) -> Mask:
        """Return which of n groups, of groups that are gone, and of logs (the last element) have series;
        `ranks`, called if needed, returns which have members and their earliest known times."""
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
        """Carry over the state to the present groups."""
        if names is not self._names or gone != self._gone:
            moved = self._moved(names, gone)
            self._since = np.append(self._since, self._now)[moved]
            self._is_withheld = np.append(self._is_withheld, False)[moved]
            self._names, self._gone = names, gone
        self._since = np.where(self._is_withheld, self._now, self._since)
        is_after_others = (self._since[:-1] < self._now).any() and not self._is_withheld[-1]
        self._since[-1] = self._now - 1 if is_after_others else self._now

    def _moved(self, names: NameIndex, gone: list[str]) -> Index:
        """Return the former index of each group, and of logs (`NONE`: there was none)."""
        gone_before = {group: number for number, group in enumerate(self._gone, len(self._names))}
        places = np.arange(len(names)) if names is self._names else self._names.places_of(names.texts).copy()
        for group, number in gone_before.items():
            if (place := names.place(group)) is not None:
                places[place] = number
        of_gone = [self._names.places.get(group, gone_before.get(group, NONE)) for group in gone]
        return np.concatenate([places, np.array([*of_gone, len(self._since) - 1], np.int64)])


@dataclass(frozen=True, kw_only=True)
class Withheld:
    """The numbers of groups and series that were withheld; `largest` are the groups with most of these
    series, and `others` is the number of further groups."""

    groups: int = 0
    series: int = 0
    largest: Mapping[str, int] = field(default_factory=dict)
    others: int = 0

    def sentence(self, most: int) -> str:
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
    """Limits the series of each response; `withheld` describes what the last one lacks."""

    def __init__(self, most: int) -> None:
        self._most, self._seats, self.withheld = most, Seats(most), Withheld()

    @property
    def warning(self) -> str:
        """A message about what the last response lacks; empty: nothing."""
        return self.withheld.sentence(self._most) if self.withheld.series else ""

    def of(self, source: MetricsSource, several: Sequence[Series]) -> list[Series]:
        """Return the admitted ones of `several` series."""
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
    """Return the number of series of each of n groups and, as the last element, of those without a group."""
    counts = np.zeros(size + 1, np.int64)
    for one in several:
        if one.groups is None:
            counts[size] += len(one)
        else:
            counts += np.bincount(one.groups, minlength=size + 1)
    return counts


def _ranks(source: MetricsSource, size: int) -> tuple[Mask, Index]:
    """Return which groups have members, and the earliest known time of each (ms)."""
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
