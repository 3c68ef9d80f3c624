"""Converts Arrow columns of any type to JSON values, so that all formats print them alike.

Text, numbers and booleans stay; lists and structs keep their shape, and a map becomes a list of pairs. Other
types become text without loss: timestamps and dates (ISO 8601, timestamps in UTC), times of day, durations
and intervals (ISO 8601: PT1.5S, P1M2D), decimals, bytes (hex), and NaN, Infinity and -Infinity.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as t

from streaming.model.errors import MisuseError

_NANOSECONDS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_MOMENT: Final = r"^(-?\d+-\d\d-\d\d) (.*)$"
"""Arrow's format of a timestamp; its text for one beyond all calendars does not match, and stays."""


def refuse_unprintable(schema: pa.Schema) -> None:
    """Raise `MisuseError` for the first column of an unsupported type, or of structs with repeated names."""
    for field in schema:
        for part in _parts(field.type):
            if _rule(part) is None:
                raise MisuseError(
                    f"printing column {field.name!r}: expected a type that can be printed, found {part}. "
                    "Cast it in the query, for instance arrow_cast(..., 'Utf8')."
                )
            if t.is_struct(part):
                refuse_repeated([one.name for one in part], f"struct column {field.name!r}")


def refuse_repeated(names: list[str], where: str) -> None:
    """Raise `MisuseError` if a name comes twice: in a JSON object one would replace the other."""
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise MisuseError(
            f"printing {where}: expected names that differ, found {repeated!r} more than once. "
            'Give one of them another name (AS "...").'
        )


def plain_values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as JSON values; its type must pass `refuse_unprintable`.

    >>> plain_values(pa.chunked_array([[1.5, float("nan"), None]]))
    [1.5, 'NaN', None]
    """
    return [value for chunk in column.chunks for value in _plain(chunk)]


def is_numeric(of: pa.DataType) -> bool:
    """Whether values are numbers, including those that `plain_values` writes as text (-Infinity)."""
    if t.is_dictionary(of) or t.is_run_end_encoded(of):
        return is_numeric(of.value_type)
    return bool(t.is_integer(of) or t.is_floating(of) or t.is_decimal(of))


def _plain(array: pa.Array) -> list[Any]:
    rule = _rule(array.type)
    assert rule is not None, "refuse_unprintable comes first"
    return rule(array)


def _as_they_are(array: pa.Array) -> list[Any]:
    values: list[Any] = array.to_pylist()
    return values


def _numbers(array: pa.Array) -> list[Any]:
    """JSON has no NaN and Infinity: they become text, as in Spark, without loss."""
    numbers = array.cast(pa.float32()) if t.is_float16(array.type) else array
    values: list[Any] = numbers.to_pylist()
    if pc.all(pc.is_finite(numbers)).as_py() is not False:
        return values
    return [_number(value) for value in values]


def _number(value: float | None) -> float | str | None:
    if value is None or abs(value) < float("inf"):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _moments(array: pa.Array) -> list[Any]:
    """Format milliseconds, and finer digits only in a unit that has some."""
    moments = array.cast(pa.timestamp(array.type.unit))  # without a zone it is UTC
    with suppress(pa.ArrowInvalid):  # digits would be lost, or it is out of range
        moments = moments.cast(pa.timestamp("ms"))
    return _as_they_are(pc.replace_substring_regex(moments.cast(pa.string()), _MOMENT, r"\1T\2Z"))


def _texts(array: pa.Array) -> list[Any]:
    return _as_they_are(array.cast(pa.string()))


def _decimals(array: pa.Array) -> list[Any]:
    return [None if value is None else f"{value:f}" for value in array.to_pylist()]


def _bytes(array: pa.Array) -> list[Any]:
    return [None if value is None else value.hex() for value in array.to_pylist()]


def _durations(array: pa.Array) -> list[Any]:
    unit = _NANOSECONDS[array.type.unit]
    counts = array.cast(pa.int64()).to_pylist()
    return [None if count is None else f"PT{_seconds(count * unit)}S" for count in counts]


def _intervals(array: pa.Array) -> list[Any]:
    return [None if value is None else _interval(*value) for value in array.to_pylist()]


def _interval(months: int, days: int, nanoseconds: int) -> str:
    date = (f"{months}M" if months else "") + (f"{days}D" if days else "")
    time = f"T{_seconds(nanoseconds)}S" if nanoseconds or not date else ""
    return f"P{date}{time}"


def _seconds(nanoseconds: int) -> str:
    """Format seconds with as many digits as needed.

    >>> _seconds(-1_500_000_000), _seconds(3_000_000_000)
    ('-1.5', '3')
    """
    seconds, rest = divmod(abs(nanoseconds), _NANOSECONDS["s"])
    return ("-" if nanoseconds < 0 else "") + f"{seconds}.{rest:09}".rstrip("0").rstrip(".")


def _lists(array: pa.Array) -> list[Any]:
    values = iter(_plain(pc.list_flatten(array)))  # without those of null lists
    lengths = pc.list_value_length(array).to_pylist()
    return [None if length is None else list(islice(values, length)) for length in lengths]


def _structs(array: pa.Array) -> list[Any]:
    names = [field.name for field in array.type]
    rows: Iterator[tuple[Any, ...]] = zip(*map(_plain, array.flatten()), strict=True)
    if not names:
        rows = iter([()] * len(array))
    pairs = zip(rows, array.is_valid().to_pylist(), strict=True)
    return [dict(zip(names, row, strict=True)) if is_valid else None for row, is_valid in pairs]


def _maps(array: pa.Array) -> list[Any]:
    pair = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
    lists = _lists(array.cast(pa.list_(pair)))
    return [None if one is None else [tuple(pair.values()) for pair in one] for one in lists]


def _decoded(array: pa.Array) -> list[Any]:
    return _plain(array.dictionary_decode())


def _run_end_decoded(array: pa.Array) -> list[Any]:
    return _plain(pc.run_end_decode(array))


_RULES: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], list[Any]]], ...]] = (
    (lambda of: t.is_null(of) or t.is_boolean(of) or t.is_integer(of), _as_they_are),
    (lambda of: t.is_string(of) or t.is_large_string(of) or t.is_string_view(of), _as_they_are),
    (t.is_floating, _numbers),
    (t.is_timestamp, _moments),
    (lambda of: t.is_date(of) or t.is_time(of), _texts),
    (t.is_decimal, _decimals),
    (lambda of: t.is_binary(of) or t.is_large_binary(of) or t.is_binary_view(of), _bytes),
    (t.is_fixed_size_binary, _bytes),
    (t.is_duration, _durations),
    (lambda of: of == pa.month_day_nano_interval(), _intervals),
    (lambda of: t.is_list(of) or t.is_large_list(of) or t.is_fixed_size_list(of), _lists),
    (lambda of: t.is_list_view(of) or t.is_large_list_view(of), _lists),
    (t.is_struct, _structs),
    (t.is_map, _maps),
    (t.is_dictionary, _decoded),
    (t.is_run_end_encoded, _run_end_decoded),
)
"""Conversions by type; the first match counts."""


def _rule(of: pa.DataType) -> Callable[[pa.Array], list[Any]] | None:
    return next((rule for fits, rule in _RULES if fits(of)), None)


def _parts(of: pa.DataType) -> Iterator[pa.DataType]:
    yield of
    if t.is_dictionary(of) or t.is_run_end_encoded(of):
        yield from _parts(of.value_type)
        return
    for number in range(of.num_fields):
        yield from _parts(of.field(number).type)
