"""Counters since `serve` started: commits, rewinds, removed offsets, records. They never fall.

Not counted are changes that could not be tailed, because the tables were recreated or their log was cleaned
up, and records read again by a rebuild or into new tables. Counts of groups that are gone are kept for some
hours, and for at most 10,000 groups.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, from_mask, from_texts, no_rows, numbers_or, to_mask
from streaming.common.keys import numbered
from streaming.common.times import HOUR_MS
from streaming.model.schemas import COMMITS
from streaming.model.totals import COUNTERS, Totals
from streaming.serve.assessment.possible_rewinds import (
    COMMITTED,
    POSSIBLE_REWINDS,
    commits_of,
    of_positions,
    possible_rewinds,
    settled,
)
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.tables.tail.rows import field_of

Key = TypeVar("Key")

_SPARE_GROUPS: Final = 10_000

KEPT_MS: Final = 6 * HOUR_MS
"""How long counts of a group that is gone are kept, so that scrapers see its last removals."""

RECORDS: Final = (*(name for name in COUNTERS if name != "unknown_others"), "unknown")
"""The kinds of records to count."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The job's counts of records in a snapshot: by kind (`records`), and for which read of the topic
    (`query_id` and `generation`). `is_again`: the job reads the topic once more and has not reached its end
    yet, so the records are repeats."""

    records: Mapping[str, int]
    query_id: str | None
    generation: int
    is_again: bool

    @classmethod
    def of(cls, snapshot: MemorySnapshot, before: "Seen | None") -> Self:
        """Return the counts of a snapshot that follows `before`."""
        progress = snapshot.progress
        seen = cls(
            records=_records(progress.totals),
            query_id=progress.query_id,
            generation=progress.generation,
            is_again=False,
        )
        is_again = before is not None and (before.is_again or seen.is_other_reading(before))
        return replace(seen, is_again=is_again and not snapshot.is_whole)

    def is_other_reading(self, before: "Seen") -> bool:
        """Return whether the job has started over at the beginning of the topic since `before`."""
        is_other = (self.query_id, self.generation) != (before.query_id, before.generation)
        return is_other and before.query_id is not None


@dataclass(frozen=True, eq=False, kw_only=True)
class Counters:
    """Counts from 0 on: `commits` and `rewinds` by group, `removed` by group and cause, `removed_in_all` by
    cause and `commits_in_all` over all groups, and `records` by kind."""

    commits: Mapping[str, int] = field(default_factory=dict)
    rewinds: Mapping[str, int] = field(default_factory=dict)
    removed: Mapping[tuple[str, str], int] = field(default_factory=dict)
    removed_in_all: Mapping[str, int] = field(default_factory=dict)
    commits_in_all: int = 0
    records: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(RECORDS, 0))
    back: pa.Table = field(default_factory=lambda: no_rows(POSSIBLE_REWINDS))
    """Commits of lower offsets that may prove to be rewinds."""
    since: pa.Table = field(default_factory=lambda: no_rows(COMMITTED))
    """The later commits of the same positions."""
    gone: Mapping[str, int] = field(default_factory=dict)
    """Groups that have lost all offsets and when the job reported it (ms), in this order."""
    seen: "Seen | None" = None
    """The job's newest counts of records; None: none yet."""

    def with_changes(self, rows: pa.RecordBatch) -> Self:
        is_offset = _is(rows["kind"], "offset")
        own = rows if is_offset.all() else rows.filter(from_mask(is_offset))
        if not len(own):
            return self
        codes, groups = numbered(own["group"])
        names = groups.to_pylist()
        committed = numbers_or(field_of(own, COMMITS.name, COMMITS.type), 0)
        is_set = _is(own["op"], "set")
        back = pa.concat_tables([self.back, possible_rewinds(own, is_set)])
        since = pa.concat_tables([self.since, commits_of(back, own, is_set)]) if len(back) else self.since
        went = ~is_set & to_mask(own["before"].is_valid())
        causes, words = numbered(_words(own["cause"]))
        pairs, counts = np.unique(codes[went] * len(words) + causes[went], return_counts=True)
        cause_of = words.to_pylist()
        removed = {
            (names[pair // len(words)], cause_of[pair % len(words)]): count
            for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True)
        }
        in_all: dict[str, int] = {}
        for (_, cause), count in removed.items():
            in_all[cause] = in_all.get(cause, 0) + count
        return replace(
            self,
            commits=_added(self.commits, _by_name(names, codes, committed)),
            back=back if len(back) else self.back,
            since=since,
            removed=_added(self.removed, removed),
            removed_in_all=_added(self.removed_in_all, in_all),
            commits_in_all=self.commits_in_all + int(committed.sum()),
        )

    def with_snapshot(self, snapshot: MemorySnapshot) -> Self:
        """Count the records read since the snapshot before and the commits that prove to be rewinds, and note
        groups that are gone."""
        counted, before = self._with_rewinds(snapshot)._with_gone(snapshot), self.seen
        seen = Seen.of(snapshot, before)
        if before is None or seen.is_other_reading(before) or before.is_again:
            return replace(counted, seen=seen)
        more = {name: max(0, now - before.records[name]) for name, now in seen.records.items()}
        return replace(counted, records=_added(self.records, more), seen=seen)

    def of(self, groups: list[str]) -> tuple[Index, Index]:
        """Return the commits and the rewinds of n groups."""
        return (
            np.array([self.commits.get(group, 0) for group in groups], np.int64),
            np.array([self.rewinds.get(group, 0) for group in groups], np.int64),
        )

    def _with_rewinds(self, snapshot: MemorySnapshot) -> Self:
        """Count the commits of lower offsets whose log is now known to be the same."""
        if not len(self.back):
            return self
        rewinds, back = settled(self.back, self.since, snapshot)
        codes, groups = numbered(rewinds["group"])
        counts = _by_name(groups.to_pylist(), codes, np.ones(len(rewinds), np.int64))
        held = back.combine_chunks() if len(back) else no_rows(POSSIBLE_REWINDS)
        since = of_positions(held, self.since).combine_chunks() if len(back) else no_rows(COMMITTED)
        return replace(self, rewinds=_added(self.rewinds, counts), back=held, since=since)

    def _with_gone(self, snapshot: MemorySnapshot) -> Self:
        """Note groups that are gone, and forget those gone for long or in excess."""
        known, now = snapshot.groups.names.places, snapshot.progress.heartbeat
        lost = dict.fromkeys(group for group, _ in self.removed if group not in known)
        before = {group: at for group, at in self.gone.items() if group in lost}
        gone = before | {group: now for group in lost if group not in before}
        kept = {group: at for group, at in gone.items() if now - at <= KEPT_MS}
        kept = dict(list(kept.items())[-_SPARE_GROUPS:])
        if len(kept) == len(gone) and len(self.commits) <= 2 * len(known) + 2 * _SPARE_GROUPS:
            return self if gone == self.gone else replace(self, gone=gone)
        return replace(
            self,
            gone=kept,
            commits=_of_those(self.commits, known, kept),
            rewinds=_of_those(self.rewinds, known, kept),
            removed={key: count for key, count in self.removed.items() if key[0] in known or key[0] in kept},
        )


def _of_those(counts: Mapping[str, int], *known: Container[str]) -> Mapping[str, int]:
    return {group: count for group, count in counts.items() if any(group in one for one in known)}


def _is(column: pa.Array, word: str) -> Mask:
    return to_mask(pc.is_in(column.cast(pa.string()), value_set=from_texts([word])))


def _words(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.string())
    return pc.coalesce(texts, from_texts(["unknown"])[0])


def _records(totals: Totals) -> dict[str, int]:
    known = {name: int(getattr(totals, name)) for name in RECORDS if name != "unknown"}
    return {**known, "unknown": totals.unknown_others + sum(kind.count for kind in totals.unknown)}


def _by_name(names: list[str], codes: Index, numbers: Index) -> dict[str, int]:
    sums = np.zeros(len(names), np.int64)
    np.add.at(sums, codes, numbers)
    some = np.flatnonzero(sums)
    return {names[place]: int(sums[place]) for place in some.tolist()}


def _added(held: Mapping[Key, int], more: Mapping[Key, int]) -> Mapping[Key, int]:
    if not more:
        return held
    return {**held, **{key: held.get(key, 0) + count for key, count in more.items()}}
