"""Selection by name: groups, topics, patterns of them, and the names that were not found.

In a pattern `*` matches any text and `?` one character; all other characters, brackets too, are literal. An
existing name is taken literally even if it contains `*`: names can be any text.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import to_numbers
from streaming.common.keys import numbered
from streaming.common.topics import TopicPartitions
from streaming.model.suggestions import did_you_mean, nearest

_SUGGESTED_FOR: Final = 5  # names of a kind: each comparison takes up to a second


# --- known names -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KnownNames:
    """The known groups, and the known partitions of each topic: those with committed offsets, and for some
    questions those that are assigned or were removed."""

    groups: frozenset[str]
    topics: Mapping[str, frozenset[int]]

    @classmethod
    def of(cls, keys: pa.Table) -> "KnownNames":
        """Collect names from rows with `group`, `topic` and `partition` (the last two are null for
        groups)."""
        return cls(frozenset(pc.unique(keys["group"]).to_pylist()), _partitions_by_topic(keys))


def _partitions_by_topic(rows: pa.Table) -> dict[str, frozenset[int]]:
    """Return the partitions of each topic in rows with `topic` and `partition`; rows with null are
    skipped."""
    rows = rows.filter(pc.is_valid(rows["topic"]))  # pyarrow's own `group_by` would import pandas
    codes, topics = numbered(rows["topic"])
    pairs = np.unique(codes << 32 | to_numbers(rows["partition"]).astype(np.int64) & 0xFFFF_FFFF)
    found: list[set[int]] = [set() for _ in topics]
    for code, partition in zip((pairs >> 32).tolist(), pairs.astype(np.int32).tolist(), strict=True):
        found[code].add(partition)
    return dict(zip(topics.to_pylist(), map(frozenset, found), strict=True))


@dataclass(frozen=True)
class Past:
    """The past moment of a question, and a function for when a group first appears after it, both as text."""

    moment: str
    appears: Callable[[str], str | None] = lambda _: None


AskNames = Callable[[tuple[str, ...] | None], KnownNames]
"""Reads the known names of the named groups, or of all (None)."""


# --- requested names -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Missing:
    """Requested names that were not found (topics as `T` or `T:0,1`), and all sentences about them and about
    found names without any data."""

    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.groups or self.topics)

    def document(self) -> dict[str, list[str]]:
        return {"groups": list(self.groups), "topics": list(self.topics)}


class NameSearch:
    """Resolves requested names. All names are read only for patterns, and when something is missing.

    Queries take `groups` and `topics`, in which a pattern is replaced by the names that it matches (if none,
    it stays and matches nothing). Then `missing` checks the answer.
    """

    def __init__(
        self,
        groups: Iterable[str],
        topics: Iterable[TopicPartitions],
        ask: AskNames,
        past: Past | None = None,
    ) -> None:
        self._past = past
        self._ask: AskNames = cache(ask)
        self._groups = {text: self._meant(text, lambda: self._all.groups) for text in groups}
        self._patterns = {text for text, names in self._groups.items() if self._is_no_name(text, names)}
        self._topics = {one: self._meant(one.topic, lambda: self._all.topics) for one in topics}

    @property
    def groups(self) -> list[str] | None:
        """The groups to query; None: all."""
        return list(dict.fromkeys(chain.from_iterable(self._groups.values()))) if self._groups else None

    @property
    def has_patterns(self) -> bool:
        """Whether a group pattern was requested: every offsets partition may hold a match."""
        return bool(self._patterns)

    @property
    def topics(self) -> list[TopicPartitions]:
        """The topics to query; empty: all."""
        return [
            TopicPartitions(topic, one.partitions) for one, topics in self._topics.items() for topic in topics
        ]

    def missing(
        self,
        found: pa.Table,
        besides: Collection[str | None] = (),
        *,
        nothing: str,
        when: str = "",
        is_partial: bool = False,
    ) -> Missing:
        """Return the names that are not in `found`, rows with `group`, and `topic` and `partition` if topics
        were requested.

        `besides`: groups already reported otherwise. `nothing` is the data that others lack, in words, such
        as "committed offsets"; `when` the time range, if there is one. `is_partial`: some offsets partitions
        are still loading, and may hold topics, and groups that match a pattern.
        """
        so_far = ", as far as has been read" if is_partial else ""
        of_groups = self._missing_groups(found, besides, nothing, when, so_far)
        is_new = len(found) or not self._groups  # else it was already reported for the groups
        of_topics = self._missing_topics(found, nothing if is_new else None, when, so_far)
        return Missing(of_groups.groups, of_topics.topics, (*of_groups.sentences, *of_topics.sentences))

    @property
    def _all(self) -> KnownNames:
        return self._ask(None)

    def _meant(self, text: str, known: Callable[[], Collection[str]]) -> list[str]:
        """Return the names that a text selects: itself, unless it is a pattern that matches others."""
        if not is_pattern(text) or text in known():
            return [text]
        return matching(text, known()) or [text]

    def _is_no_name(self, text: str, names: list[str]) -> bool:
        return is_pattern(text) and (names != [text] or text not in self._all.groups)

    def _missing_groups(
        self, found: pa.Table, besides: Collection[str | None], nothing: str, when: str, so_far: str
    ) -> Missing:
        held = set(pc.unique(found["group"]).to_pylist()) if self._groups else set()
        wanted = tuple(
            text
            for text, names in self._groups.items()
            if names == [text] and text not in held and text not in besides
        )
        there = self._ask(wanted).groups if wanted else frozenset()
        absent = tuple(text for text in wanted if text not in there)
        of_these = " of these topics" if self._topics else ""
        not_there = _Absent("group", lambda: self._all.groups, so_far, self._past)
        return Missing(
            groups=absent,
            sentences=(
                *(
                    f"group {text!r} has no {nothing}{of_these}{when}"
                    if text in there
                    else not_there.sentence(text)
                    for text in wanted
                ),
                *(
                    f"no group that matches {text!r} has {nothing}{of_these}{when}{so_far}"
                    for text, names in self._groups.items()
                    if names != [text] and held.isdisjoint(names) and not set(besides).intersection(names)
                ),
            ),
        )

    def _missing_topics(self, found: pa.Table, nothing: str | None, when: str, so_far: str) -> Missing:
        held = _partitions_by_topic(found) if self._topics else {}
        absent: list[str] = []
        sentences: list[str] = []
        not_there = _Absent("topic", lambda: self._all.topics, so_far, self._past)
        of_these = f"{' of these groups' if self._groups else ''}{when}{so_far}"
        for one, names in self._topics.items():
            if _has(held, names, one.partitions):
                continue
            known = _partitions_of(self._all.topics, names)
            if not known:
                absent.append(_written(one.topic, one.partitions))
                sentences.append(not_there.sentence(one.topic))
                continue
            if lacking := (one.partitions or frozenset()) - known:
                absent.append(_written(one.topic, lacking))
                sentences.append(
                    f"topic partition {_written(one.topic, lacking)!r} is not there: "
                    f"the lowest known partition is {min(known)}, the highest {max(known)}{so_far}"
                )
            rest = one.partitions and (one.partitions & known) - _partitions_of(held, names)
            if nothing is not None and rest != frozenset():
                sentences.append(f"topic {_written(one.topic, rest)!r} has no {nothing}{of_these}")
        return Missing(topics=tuple(absent), sentences=tuple(sentences))


def is_pattern(text: str) -> bool:
    """Whether a text may be a pattern."""
    return "*" in text or "?" in text


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that match a pattern, sorted.

    >>> matching("b?[1]*", ["ba[1]", "b1", "bx[1]s"])
    ['ba[1]', 'bx[1]s']
    """
    from fnmatch import translate  # brackets are escaped below: `[...]` has no meaning here

    is_match = re.compile(translate(pattern.replace("[", "[[]"))).match
    return sorted(name for name in names if is_match(name))


class _Absent:
    """Sentences about names that do not exist, or did not at a past moment; the first few with a suggestion,
    or with the moment at which they appear."""

    def __init__(
        self,
        kind: Literal["group", "topic"],
        known: Callable[[], Collection[str]],
        so_far: str,
        past: Past | None,
    ) -> None:
        self._kind, self._known, self._so_far, self._past = kind, known, so_far, past
        self._looked_for = 0

    def sentence(self, text: str) -> str:
        then = f" as of {self._past.moment}" if self._past else ""
        if is_pattern(text):
            return f"no {self._kind} {'matched' if then else 'matches'} {text!r}{then}{self._so_far}"
        self._looked_for += 1
        is_first = self._looked_for <= _SUGGESTED_FOR
        is_not = "was not there" if then else "is not there"
        if self._kind == "group":  # a group is in one offsets partition only, which is loaded
            appears = self._past.appears(text) if self._past and is_first else None
            if appears is not None:
                return f"group {text!r} {is_not}{then}: it appears at {appears}"
            said = f"group {text!r} {is_not}{then}"
        else:
            has = "had" if then else "has"
            said = f"topic {text!r} {is_not}{then} (no group {has} committed offsets of it){self._so_far}"
        meant = did_you_mean(nearest(text, self._known()) if is_first else [])
        return f"{said}.{meant}" if meant else said


def _has(
    held: Mapping[str, frozenset[int]], topics: Sequence[str], partitions: frozenset[int] | None
) -> bool:
    found = _partitions_of(held, topics)
    return bool(found) if partitions is None else partitions <= found


def _partitions_of(known: Mapping[str, frozenset[int]], topics: Sequence[str]) -> frozenset[int]:
    return frozenset().union(*(known.get(topic, frozenset()) for topic in topics))


def _written(topic: str, partitions: frozenset[int] | None) -> str:
    """Format a topic and its partitions as in a request."""
    return topic if partitions is None else f"{topic}:{','.join(map(str, sorted(partitions)))}"
