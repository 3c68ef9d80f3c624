"""Times: milliseconds since 1970 (UTC), their datetimes and days, and how people write them.

`streaming.common.timestamps` has their Arrow types, so that settings are read without Arrow.
"""

import re
import time
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple, overload

from streaming.model.errors import MisuseError

FIRST_MS: Final = -62_135_596_800_000  # 0001-01-01T00:00:00.000Z
LAST_MS: Final = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
_DURATION: Final = re.compile(r"(\d{1,18})\s*(ms|s|m|h|d)")
_TIME_OF_DAY: Final = re.compile(r"\d{1,2}:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?")
_EPOCH_DIGITS: Final = 13  # of milliseconds since 1970, from 2001 to 2286
_MOMENTS: Final = (
    "now, 2h (ago), 02:34, 2026-11-20, 2026-11-20T14:03:00Z (UTC without a zone), or milliseconds since 1970"
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def now_ms() -> int:
    """Return the current time as milliseconds since 1970 (UTC)."""
    return time.time_ns() // 1_000_000


def parse_duration_ms(text: str, *, name: str) -> int:
    """Parse `500ms`, `10s`, `5m`, `24h` or `7d`; the `MisuseError` for other text begins with `name`."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise MisuseError(
            f"{name}: expected a duration such as 500ms, 10s, 5m, 24h or 7d, found {text!r}. "
            "Write a whole number followed by its unit."
        )
    return int(found[1]) * _UNIT_MS[found[2]]


class TypedMoment(NamedTuple):
    """A moment as someone typed it (ms); without a time zone it was taken as UTC. `is_relative`: it is a
    duration before now, and moves with the clock."""

    ms: int
    lacks_zone: bool = False
    is_relative: bool = False


def parse_moment(text: str, now: int, *, name: str) -> TypedMoment:
    """Parse a moment of the past, in any of the forms that people type.

    `2h` and `-2h` (before `now`, ms), `now`, `02:34` and `02:34:10` (the last such time of day), ISO 8601, a
    date, and milliseconds since 1970 (13 digits). A time without zone is UTC. A `MisuseError` begins with
    `name`.

    >>> parse_moment("-2h", 7_200_000, name="--as-of")
    TypedMoment(ms=0, lacks_zone=False, is_relative=True)
    """
    typed = _typed_moment(text.strip(), now, name)
    if typed.ms > now:
        raise MisuseError(f"{name}: expected a time in the past, found {text!r}, which is in the future.")
    if typed.ms < 0:
        raise MisuseError(f"{name}: expected a time after 1970-01-01, found {text!r}, which is before it.")
    return typed


def is_now(text: str) -> bool:
    """Return whether a text that `parse_moment` accepts is `now`: whatever the clocks say, the present."""
    return text.strip().lower() == "now"


def _typed_moment(text: str, now: int, name: str) -> TypedMoment:
    if is_now(text):
        return TypedMoment(now, is_relative=True)
    if _DURATION.fullmatch(text.removeprefix("-")):
        return TypedMoment(now - parse_duration_ms(text.removeprefix("-"), name=name), is_relative=True)
    if text.isdecimal():
        return TypedMoment(_parse_milliseconds(text, name))
    if not _TIME_OF_DAY.fullmatch(text):
        return _parse_iso(text, text, name)
    today = from_ms(now).date().isoformat()
    of_today = _parse_iso(f"{today}T{'0' if text[1] == ':' else ''}{text}", text, name)
    return of_today._replace(ms=now - (now - of_today.ms) % DAY_MS)


def _parse_milliseconds(digits: str, name: str) -> int:
    if len(digits) == _EPOCH_DIGITS:
        return int(digits)
    is_seconds = len(digits) == _EPOCH_DIGITS - 3
    meant = f"If these are seconds, append 000: {digits}000." if is_seconds else f"Write {_MOMENTS}."
    raise MisuseError(
        f"{name}: expected milliseconds since 1970 ({_EPOCH_DIGITS} digits), found {digits!r}. {meant}"
    )


def _parse_iso(text: str, typed: str, name: str) -> TypedMoment:
    try:
        moment = datetime.fromisoformat(text)
        in_utc = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise MisuseError(f"{name}: expected a time, found {typed!r}. Write {_MOMENTS}.") from error
    return TypedMoment(to_ms(in_utc), lacks_zone=moment.tzinfo is None)


@overload
def to_ms(moment: datetime) -> int: ...
@overload
def to_ms(moment: None) -> None: ...
@overload
def to_ms(moment: datetime | None) -> int | None: ...
def to_ms(moment: datetime | None) -> int | None:
    """Return milliseconds since 1970; None of None. Raises `MisuseError` for a moment without a time zone, or
    one that UTC has no date for."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise MisuseError(f"as_of: expected a datetime with a time zone, found {moment.isoformat()!r}.")
    try:
        return (moment.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
    except OverflowError as error:
        raise MisuseError(
            f"as_of: expected a time from year 1 to 9999 in UTC, found {moment.isoformat()!r}."
        ) from error


@overload
def from_ms(milliseconds: int) -> datetime: ...
@overload
def from_ms(milliseconds: None) -> None: ...
@overload
def from_ms(milliseconds: int | None) -> datetime | None: ...
def from_ms(milliseconds: int | None) -> datetime | None:
    """Return the moment (UTC); None of None."""
    return None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)


def day_of(milliseconds: int) -> date:
    """Return the day (UTC) of a moment.

    >>> day_of(-1)
    datetime.date(1969, 12, 31)
    """
    return from_ms(milliseconds).date()


def start_of(day: date) -> int:
    """Return the moment (ms) at which a day (UTC) begins."""
    return to_ms(datetime(day.year, day.month, day.day, tzinfo=UTC))


def iso(milliseconds: int, timespec: str = "milliseconds") -> str:
    """Return a moment as ISO 8601 in UTC; with the timespec `seconds` to the second.

    >>> iso(1_500), iso(1_500, "seconds")
    ('1970-01-01T00:00:01.500Z', '1970-01-01T00:00:01Z')
    """
    return from_ms(milliseconds).isoformat(timespec=timespec).replace("+00:00", "Z")


def in_words(milliseconds: int) -> str:
    """Return a duration in its two largest units, for people.

    >>> in_words(312_000), in_words(40_900), in_words(2 * DAY_MS + 5 * MINUTE_MS)
    ('5 min 12 s', '40 s', '2 d')
    """
    minutes, seconds = divmod(max(0, milliseconds) // 1_000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    first = next((place for place, (count, _) in enumerate(parts) if count), len(parts) - 1)
    said = [f"{count} {unit}" for count, unit in parts[first : first + 2] if count]
    return " ".join(said) or "0 s"


def as_clock(milliseconds: int) -> str:
    """Return a duration as days and hours:minutes:seconds, truncated.

    >>> as_clock(90_061_999), as_clock(-29_000)
    ('1d 01:01:01', '-00:00:29')
    """
    minutes, seconds = divmod(abs(milliseconds) // 1_000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    sign = "-" if milliseconds < 0 else ""
    return f"{sign}{f'{days}d ' if days else ''}{hours:02}:{minutes:02}:{seconds:02}"


def clock(moment: int) -> str:
    """Return the time of day (UTC) of a moment (ms)."""
    return from_ms(moment).strftime("%H:%M:%S")
