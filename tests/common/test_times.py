"""Times: milliseconds become datetimes, days, texts and Arrow's timestamps, and come back as they were."""

from datetime import UTC, date, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.common.times import DAY_MS, FIRST_MS, LAST_MS, day_of, from_ms, iso, start_of, to_ms
from streaming.common.timestamps import timestamp, to_milliseconds, to_timestamps
from streaming.model.errors import MisuseError
from streaming.model.schemas import TIMESTAMP

MOMENTS = st.integers(FIRST_MS, LAST_MS)


@given(MOMENTS)
def test_datetimes_keep_every_millisecond(moment: int) -> None:
    assert to_ms(from_ms(moment)) == moment


def test_no_time_is_none_either_way() -> None:
    assert to_ms(None) is None
    assert from_ms(None) is None


def test_a_datetime_of_another_zone_is_the_same_moment() -> None:
    assert to_ms(datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))) == 0


def test_a_datetime_without_zone_is_refused() -> None:
    with pytest.raises(MisuseError, match="expected a datetime with a time zone"):
        to_ms(datetime(1970, 1, 1))


@given(MOMENTS)
def test_a_moment_lies_in_its_day(moment: int) -> None:
    assert start_of(day_of(moment)) <= moment < start_of(day_of(moment)) + DAY_MS


def test_days_are_those_of_utc() -> None:
    assert day_of(-1) == date(1969, 12, 31)
    assert start_of(date(1970, 1, 2)) == DAY_MS


def test_iso_has_milliseconds_or_whole_seconds() -> None:
    assert iso(1_999) == "1970-01-01T00:00:01.999Z"
    assert iso(1_999, "seconds") == "1970-01-01T00:00:01Z"


def test_columns_of_timestamps_keep_every_millisecond_and_null() -> None:
    milliseconds = pa.array([FIRST_MS, -1, 0, None, 1_500, LAST_MS], pa.int64())
    timestamps = to_timestamps(milliseconds)
    assert timestamps.type == TIMESTAMP
    assert to_milliseconds(pa.chunked_array([timestamps])).to_pylist() == milliseconds.to_pylist()


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("ns", "UTC"), pa.timestamp("us"), pa.null()])
def test_milliseconds_are_those_of_any_unit(kind: pa.DataType) -> None:
    column = pa.chunked_array([[None] if kind == pa.null() else [None, 1_500]])
    in_kind = column if kind in (pa.int64(), pa.null()) else column.cast(pa.timestamp("ms")).cast(kind)
    assert to_milliseconds(in_kind).to_pylist() == column.to_pylist()


def test_one_timestamp_is_that_of_its_milliseconds() -> None:
    assert timestamp(1_500).type == TIMESTAMP
    assert timestamp(1_500).as_py() == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
