"""Every type of Arrow that can be printed is printed in full, alone and inside others; others are refused."""

import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streaming.common.plain_values import plain_values, refuse_unprintable
from streaming.model.errors import MisuseError

NAN, INFINITY = float("nan"), float("inf")
FAR = 2**63 - 1


def moments(unit: str, *values: int | None, zone: str | None = None) -> pa.Array:
    return pa.array(values, pa.int64()).cast(pa.timestamp(unit, zone))


def struct_of_nothing() -> pa.Array:
    return pa.array([{}, None], pa.struct([]))


CASES: dict[str, tuple[pa.Array, list[Any]]] = {
    "nothing": (pa.nulls(2), [None, None]),
    "true": (pa.array([True, None]), [True, None]),
    "whole numbers": (pa.array([2**64 - 1, None], pa.uint64()), [2**64 - 1, None]),
    "small numbers": (pa.array([-128], pa.int8()), [-128]),
    "numbers": (pa.array([1.5, None]), [1.5, None]),
    "no numbers": (pa.array([NAN, INFINITY, -INFINITY, None]), ["NaN", "Infinity", "-Infinity", None]),
    "no numbers, single": (pa.array([NAN, 0.5], pa.float32()), ["NaN", 0.5]),
    "no numbers, half": (pa.array([NAN, 0.5], pa.float16()), ["NaN", 0.5]),
    "text": (pa.array(["a", None]), ["a", None]),
    "large text": (pa.array(["a", None], pa.large_string()), ["a", None]),
    "text view": (pa.array(["a", None], pa.string_view()), ["a", None]),
    "bytes": (pa.array([b"a\xff", None]), ["61ff", None]),
    "large bytes": (pa.array([b"a"], pa.large_binary()), ["61"]),
    "bytes view": (pa.array([b"a", None], pa.binary_view()), ["61", None]),
    "fixed bytes": (pa.array([b"ab"], pa.binary(2)), ["6162"]),
    "decimal": (pa.array([Decimal("1.20"), None]), ["1.20", None]),
    "small decimal": (pa.array([Decimal("1E-10")], pa.decimal128(20, 12)), ["0.000000000100"]),
    "large decimal": (pa.array([Decimal(10) ** 60], pa.decimal256(70, 2)), ["1" + "0" * 60 + ".00"]),
    "date": (pa.array([date(2024, 1, 2), None]), ["2024-01-02", None]),
    "date in milliseconds": (pa.array([date(2024, 1, 2)], pa.date64()), ["2024-01-02"]),
    "date before Christ": (pa.array([-800_000], pa.int32()).cast(pa.date32()), ["-0221-09-04"]),
    "date of no calendar": (
        pa.array([2**31 - 1], pa.int32()).cast(pa.date32()),
        ["<value out of range: 2147483647>"],
    ),
    "time": (pa.array([time(1, 2, 3, 4), None]), ["01:02:03.000004", None]),
    "time in nanoseconds": (pa.array([1], pa.int64()).cast(pa.time64("ns")), ["00:00:00.000000001"]),
    "time in seconds": (pa.array([1], pa.int32()).cast(pa.time32("s")), ["00:00:01"]),
    "seconds": (moments("s", 0, None), ["1970-01-01T00:00:00.000Z", None]),
    "milliseconds": (moments("ms", -1), ["1969-12-31T23:59:59.999Z"]),
    "whole microseconds": (moments("us", 1_000), ["1970-01-01T00:00:00.001Z"]),
    "microseconds": (moments("us", 1, None), ["1970-01-01T00:00:00.000001Z", None]),
    "nanoseconds": (moments("ns", 1), ["1970-01-01T00:00:00.000000001Z"]),
    "first nanosecond": (moments("ns", -FAR - 1), ["1677-09-21T00:12:43.145224192Z"]),
    "another zone": (moments("ns", 1, zone="Europe/Berlin"), ["1970-01-01T00:00:00.000000001Z"]),
    "zone as a distance": (moments("ms", 1, zone="+02:00"), ["1970-01-01T00:00:00.001Z"]),
    "moment of no calendar": (moments("us", FAR), [f"<value out of range: {FAR}>"]),
    "second of no calendar": (moments("s", FAR), [f"<value out of range: {FAR}>"]),
    "duration": (pa.array([timedelta(days=1, milliseconds=1), None]), ["PT86400.001S", None]),
    "negative duration": (pa.array([-1_500], pa.int64()).cast(pa.duration("ms")), ["PT-1.5S"]),
    "longest duration": (pa.array([FAR], pa.int64()).cast(pa.duration("s")), [f"PT{FAR}S"]),
    "interval": (pa.array([pa.MonthDayNano([1, -2, 3_500_000_000]), None]), ["P1M-2DT3.5S", None]),
    "interval of days": (pa.array([pa.MonthDayNano([0, 2, 0])]), ["P2D"]),
    "no interval": (pa.array([pa.MonthDayNano([0, 0, 0])]), ["PT0S"]),
    "dictionary": (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
    "dictionary of numbers": (pa.array([NAN, 1.0]).dictionary_encode(), ["NaN", 1.0]),
    "runs": (pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([NAN, 1.0])), ["NaN", "NaN", 1.0]),
    "structs": (
        pa.array([{"a": NAN, "b": b"a"}, None, {}]),
        [{"a": "NaN", "b": "61"}, None, {"a": None, "b": None}],
    ),
    "structs of nothing": (struct_of_nothing(), [{}, None]),
    "lists": (pa.array([[NAN], None, [], [1.0, None]]), [["NaN"], None, [], [1.0, None]]),
    "large lists": (pa.array([[NAN], None], pa.large_list(pa.float64())), [["NaN"], None]),
    "views of lists": (pa.array([[NAN], None, [1.0]], pa.list_view(pa.float64())), [["NaN"], None, [1.0]]),
    "lists of one length": (pa.array([[1.0, NAN], None], pa.list_(pa.float64(), 2)), [[1.0, "NaN"], None]),
    "maps": (
        pa.array([[("a", NAN), ("b", 1.0)], None, []], pa.map_(pa.string(), pa.float64())),
        [[("a", "NaN"), ("b", 1.0)], None, []],
    ),
    "deep": (
        pa.array([[{"a": [{"t": datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=2)))}]}], None]),
        [[{"a": [{"t": "2023-12-31T22:00:00.000Z"}]}], None],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("array", "values"), CASES.values(), ids=CASES.keys())
def test_every_type_is_printed_in_full(array: pa.Array, values: list[Any]) -> None:
    refuse_unprintable(pa.schema([("x", array.type)]))
    found = plain_values(pa.chunked_array([array, array[:0], array[1:]], array.type))
    assert found == [*values, *values[1:]]
    json.dumps(found, allow_nan=False)


NESTED = {name: case for name, case in CASES.items() if name != "runs"}  # pyarrow makes no lists of them


@pytest.mark.parametrize(("array", "values"), NESTED.values(), ids=NESTED.keys())
def test_every_type_is_printed_inside_others(array: pa.Array, values: list[Any]) -> None:
    offsets = pa.array([0, None, 0, len(array)], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, array)
    outer = pa.StructArray.from_arrays([lists], ["x"], mask=pa.array([False, True, False]))
    assert plain_values(pa.chunked_array([outer])) == [{"x": []}, None, {"x": values}]
    assert plain_values(pa.chunked_array([outer[2:]])) == [{"x": values}]


def union() -> pa.DataType:
    return pa.dense_union([pa.field("a", pa.int64()), pa.field("b", pa.string())])


@pytest.mark.parametrize("of", [union(), pa.list_(union()), pa.dictionary(pa.int8(), union())], ids=str)
def test_other_types_are_refused(of: pa.DataType) -> None:
    with pytest.raises(
        MisuseError, match=r"printing column 'x': expected a type that can be printed, found \w+"
    ):
        refuse_unprintable(pa.schema([("x", of)]))


def test_structs_with_a_name_twice_are_refused() -> None:
    twice = pa.list_(pa.struct([("a", pa.int64()), ("a", pa.int64())]))
    with pytest.raises(
        MisuseError, match="printing struct column 'x': expected names that differ, found 'a'"
    ):
        refuse_unprintable(pa.schema([("x", twice)]))


def test_moments_with_a_zone_are_in_utc() -> None:
    here = datetime(2024, 7, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    assert plain_values(pa.chunked_array([pa.array([here])])) == ["2024-07-01T06:30:00.000Z"]
    assert plain_values(pa.chunked_array([pa.array([here.astimezone(UTC)])])) == ["2024-07-01T06:30:00.000Z"]
