"""Times: milliseconds since 1970 (UTC), the datetimes and days that they are, and how people write them.

How Arrow holds them is `streaming.common.timestamps`: settings are read without it.
"""

import re
import time
from datetime import UTC, date, datetime, timedelta
from typing import Final, overload

from streaming.model.errors import MisuseError

FIRST_MS: Final = -62_135_596_800_000  # 0001-01-01T00:00:00.000Z
LAST_MS: Final = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|h|d)")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def now_ms() -> int:
    """Return the time as milliseconds since 1970 (UTC)."""
    return time.time_ns() // 1_000_000


def parse_duration_ms(text: str, *, name: str) -> int:
    """Read `500ms`, `10s`, `5m`, `24h` or `7d` as milliseconds."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise MisuseError(
            f"{name}: expected a duration such as 500ms, 10s, 5m, 24h or 7d, found {text!r}. "
            "Write a whole number followed by its unit."
        )
    return int(found[1]) * _UNIT_MS[found[2]]


def parse_moment(text: str, now: int, *, name: str) -> datetime:
    """Read `2026-11-20T14:03:00Z` or `-2h` (from `now`, ms); a time without zone is UTC.

    >>> parse_moment("-2h", 7_200_000, name="--as-of").isoformat()
    '1970-01-01T00:00:00+00:00'
    """
    present = from_ms(now)
    if text.startswith("-"):
        duration = parse_duration_ms(text[1:], name=name)
        if duration > now:
            raise MisuseError(
                f"{name}: expected a time after 1970-01-01, found {text!r}, which is before it."
            )
        return present - timedelta(milliseconds=duration)
    moment = _parse_iso(text, name)
    if moment > present:
        raise MisuseError(f"{name}: expected a time in the past, found {text!r}, which is in the future.")
    return moment


@overload
def to_ms(moment: datetime) -> int: ...
@overload
def to_ms(moment: None) -> None: ...
@overload
def to_ms(moment: datetime | None) -> int | None: ...
def to_ms(moment: datetime | None) -> int | None:
    """Return the milliseconds since 1970 of a moment, which must have a time zone; None of None."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise MisuseError(f"as_of: expected a datetime with a time zone, found {moment.isoformat()!r}.")
    return (moment - _EPOCH) // timedelta(milliseconds=1)


@overload
def from_ms(milliseconds: int) -> datetime: ...
@overload
def from_ms(milliseconds: None) -> None: ...
@overload
def from_ms(milliseconds: int | None) -> datetime | None: ...
def from_ms(milliseconds: int | None) -> datetime | None:
    """Return the moment (UTC) of milliseconds since 1970; None of None."""
    return None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)


def day_of(milliseconds: int) -> date:
    """Return the day (UTC) of milliseconds since 1970.

    >>> day_of(-1)
    datetime.date(1969, 12, 31)
    """
    return from_ms(milliseconds).date()


def start_of(day: date) -> int:
    """Return the milliseconds since 1970 at which a day (UTC) begins."""
    return to_ms(datetime(day.year, day.month, day.day, tzinfo=UTC))


def iso(milliseconds: int, timespec: str = "milliseconds") -> str:
    """Write a moment as ISO 8601 in UTC; with the timespec `seconds` to the second.

    >>> iso(1_500), iso(1_500, "seconds")
    ('1970-01-01T00:00:01.500Z', '1970-01-01T00:00:01Z')
    """
    return from_ms(milliseconds).isoformat(timespec=timespec).replace("+00:00", "Z")


def _parse_iso(text: str, name: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise MisuseError(
            f"{name}: expected a time such as 2026-11-20T14:03:00Z, or -2h for two hours ago; found {text!r}."
        ) from error
