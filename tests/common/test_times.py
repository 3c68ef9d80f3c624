"""Times: milliseconds become datetimes, days, texts and Arrow's timestamps, and come back as they were."""

from datetime import UTC, date, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.common.times import (
    DAY_MS,
    FIRST_MS,
    HOUR_MS,
    LAST_MS,
    day_of,
    from_ms,
    in_words,
    iso,
    parse_moment,
    start_of,
    to_ms,
)
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
    with pytest.raises(MisuseError, match="expected a time from year 1 to 9999 in UTC, found '0001-01-01T00"):
        to_ms(datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))))


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


# --- moments that people type ----------------------------------------------------------------------------

NOW = 1_700_000_000_000  # 2023-11-14T22:13:20Z
TYPED = {
    "now": "2023-11-14T22:13:20",
    " Now ": "2023-11-14T22:13:20",
    "2h": "2023-11-14T20:13:20",
    "-2h": "2023-11-14T20:13:20",
    "90 s": "2023-11-14T22:11:50",
    "500ms": "2023-11-14T22:13:19.500",
    "7d": "2023-11-07T22:13:20",
    "02:34Z": "2023-11-14T02:34:00",
    "23:30+01:30": "2023-11-14T22:00:00",
    "23:59:59+01:00": "2023-11-13T22:59:59",
    "2023-11-14T22:13:00Z": "2023-11-14T22:13:00",
    "2023-11-15T00:13:00+02:00": "2023-11-14T22:13:00",
    "1699999999999": "2023-11-14T22:13:19.999",
}
TYPED_WITHOUT_ZONE = {
    "02:34": "2023-11-14T02:34:00",
    "2:34": "2023-11-14T02:34:00",
    "02:34:10": "2023-11-14T02:34:10",
    "22:13:20": "2023-11-14T22:13:20",
    "22:13:21": "2023-11-13T22:13:21",  # yesterday: today's is still to come
    "22:14": "2023-11-13T22:14:00",
    "2023-11-14T22:13:00": "2023-11-14T22:13:00",
    "2023-11-14 22:13": "2023-11-14T22:13:00",
    "2023-11-14": "2023-11-14T00:00:00",
}


@pytest.mark.parametrize(
    ("text", "expected", "lacks_zone"),
    [
        *((text, expected, False) for text, expected in TYPED.items()),
        *((text, expected, True) for text, expected in TYPED_WITHOUT_ZONE.items()),
    ],
)
def test_a_moment_is_read_in_every_form_that_people_type(text: str, expected: str, lacks_zone: bool) -> None:
    typed = parse_moment(text, NOW, name="--since")
    assert (from_ms(typed.ms), typed.lacks_zone) == (datetime.fromisoformat(f"{expected}Z"), lacks_zone)


@given(st.integers(0, DAY_MS // 1_000 - 1), st.integers(0, 10 * DAY_MS), st.integers(-14, 14))
def test_a_time_of_day_is_the_last_such_time(second: int, later: int, zone: int) -> None:
    text = f"{iso(second * 1_000, 'seconds')[11:19]}{zone:+03}:00"
    now = NOW + later
    moment = parse_moment(text, now, name="--since").ms
    assert now - DAY_MS < moment <= now
    assert (moment + zone * HOUR_MS) % DAY_MS == second * 1_000


REFUSED = {
    "": "expected a time, found ''. Write now, 2h (ago)",
    "-": "expected a time",
    "yesterday": "expected a time",
    "7 parsecs": "expected a time",
    "25:00": "expected a time",
    "2023-13-01": "expected a time",
    "0001-01-01T00:00:00+14:00": "expected a time",
    "1700000000": "expected milliseconds since 1970 (13 digits), found '1700000000'. If these are seconds, "
    "append 000: 1700000000000.",
    "2023": "(13 digits), found '2023'. Write now, 2h (ago), 02:34, ",
    "20231114": "expected milliseconds since 1970",
    "-2": "expected a time",
    "2023-11-14T22:13:21Z": "which is in the future",
    "9999999999999": "which is in the future",
    "20000d": "expected a time after 1970-01-01",
    "999999999999999999d": "expected a time after 1970-01-01",
    "9" * 5_000 + "d": "expected a time",
    "1969-12-31": "expected a time after 1970-01-01",
}


@pytest.mark.parametrize(("text", "message"), REFUSED.items(), ids=[text[:40] for text in REFUSED])
def test_other_moments_are_refused_with_advice(text: str, message: str) -> None:
    with pytest.raises(MisuseError) as refused:
        parse_moment(text, NOW, name="--since")
    assert str(refused.value).startswith("--since: expected ")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (0, "0 s"),
        (-5, "0 s"),
        (999, "0 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (3_601_000, "1 h"),
        (26 * 3_600_000, "1 d 2 h"),
    ],
)
def test_durations_in_words_have_two_units_at_most(milliseconds: int, words: str) -> None:
    assert in_words(milliseconds) == words
