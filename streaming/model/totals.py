"""Counters of all records that the job has read, and the records that it cannot decode.

Counters are added: those of a block to those of a batch, and these to those of all batches before.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final


@dataclass(frozen=True, order=True)
class Position:
    """A position in the offsets topic."""

    partition: int
    offset: int


@dataclass(frozen=True, kw_only=True)
class UnknownRecords:
    """Records of one type and value version that this release cannot decode: number and positions."""

    record_type: int
    value_version: int | None
    count: int
    first: Position
    last: Position


MAX_UNKNOWN_KINDS: Final = 100
"""The number of types and versions of unknown records that are distinguished; Kafka has some twenty types."""


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Counters of all records read since the tables began.

    `decoded` includes the tombstones. `wrong_partition` counts records that are not in the partition of their
    group, and are ignored; `clamped` timestamps outside the years 1 to 9999, which no table can hold.
    `unknown` is ordered by type and version (none: last) and has at most `MAX_UNKNOWN_KINDS` kinds;
    `unknown_others` counts the records of all others: random bytes would otherwise fill every commit.
    """

    decoded: int = 0
    tombstones: int = 0
    malformed: int = 0
    wrong_partition: int = 0
    clamped: int = 0
    unknown_others: int = 0
    unknown: tuple[UnknownRecords, ...] = ()

    def __add__(self, other: "Totals") -> "Totals":
        """Add counters; the first position of unknown records stays that of `self`."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in COUNTERS}
        known, others = _merged_unknown(self.unknown, other.unknown)
        return Totals(**sums | {"unknown_others": sums["unknown_others"] + others}, unknown=known)

    def __bool__(self) -> bool:
        return self != Totals()


COUNTERS: Final = tuple(counter.name for counter in fields(Totals) if counter.name != "unknown")
"""The names of the counters that are plain numbers."""


def totals_from_json(text: str) -> Totals:
    return totals_from_document(json.loads(text))


def totals_to_json(totals: Totals) -> str:
    return json.dumps(asdict(totals), separators=(",", ":"))


def totals_from_document(document: Mapping[str, Any]) -> Totals:
    """Read counters from their JSON object, which the progress document contains, too."""
    unknown = tuple(
        UnknownRecords(**{**kind, "first": Position(**kind["first"]), "last": Position(**kind["last"])})
        for kind in document["unknown"]
    )
    return Totals(**{**document, "unknown": unknown})


def _merged_unknown(
    earlier: Iterable[UnknownRecords], later: Iterable[UnknownRecords]
) -> tuple[tuple[UnknownRecords, ...], int]:
    """Add counters by type and version; return them, and the number of records of kinds beyond the limit."""
    merged: dict[tuple[int, bool, int], UnknownRecords] = {}
    others = 0
    for kind in (*earlier, *later):
        key = (kind.record_type, kind.value_version is None, kind.value_version or 0)
        seen = merged.get(key)
        if seen is not None:
            merged[key] = replace(seen, count=seen.count + kind.count, last=kind.last)
        elif len(merged) < MAX_UNKNOWN_KINDS:
            merged[key] = kind
        else:
            others += kind.count
    return tuple(merged[key] for key in sorted(merged)), others
