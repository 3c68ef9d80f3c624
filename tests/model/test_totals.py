"""Totals: counters are added, unknown records by type and version; JSON keeps them all."""

from dataclasses import replace

from hypothesis import given, settings
from totals_strategies import TOTALS

from streaming.model.totals import (
    COUNTERS,
    Position,
    Totals,
    UnknownRecords,
    totals_from_json,
    totals_to_json,
)


@settings(deadline=None)
@given(TOTALS)
def test_counters_survive_json(totals: Totals) -> None:
    assert totals_from_json(totals_to_json(totals)) == totals


def unknown(record_type: int, value_version: int | None, count: int, first: int, last: int) -> UnknownRecords:
    return UnknownRecords(
        record_type=record_type,
        value_version=value_version,
        count=count,
        first=Position(0, first),
        last=Position(0, last),
    )


def test_counters_are_added() -> None:
    one = Totals(decoded=1, tombstones=2, malformed=3, clamped=4)
    assert one + one == Totals(decoded=2, tombstones=4, malformed=6, clamped=8)


def test_unknown_records_are_added_by_type_and_version_and_keep_first_and_last() -> None:
    earlier = Totals(unknown=(unknown(18, None, 2, 1, 3), unknown(18, 0, 1, 4, 4)))
    later = Totals(unknown=(unknown(17, 1, 1, 9, 9), unknown(18, None, 3, 5, 8)))
    expected = (unknown(17, 1, 1, 9, 9), unknown(18, 0, 1, 4, 4), unknown(18, None, 5, 1, 8))
    assert (earlier + later).unknown == expected


def test_no_version_is_not_version_minus_one() -> None:
    totals = Totals(unknown=(unknown(18, None, 1, 1, 1),)) + Totals(unknown=(unknown(18, -1, 1, 2, 2),))
    assert [kind.value_version for kind in totals.unknown] == [-1, None]


def test_counters_are_true_when_anything_was_counted() -> None:
    assert not Totals()
    assert all(replace(Totals(), **{name: 1}) for name in COUNTERS)
    assert Totals(unknown=(unknown(18, None, 1, 1, 1),))
