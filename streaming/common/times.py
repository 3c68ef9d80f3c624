"""Moments as people write them: ISO 8601, or a duration back from now."""

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from streaming.model.errors import MisuseError

FIRST_MS: Final = -62_135_596_800_000  # 0001-01-01T00:00:00.000Z
LAST_MS: Final = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z

MINUTE_MS: Final = 60_000
DAY_MS: Final = 86_400_000

_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": MINUTE_MS, "h": 60 * MINUTE_MS, "d": DAY_MS}
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
                f"{name}: expected a moment after 1970-01-01, found {text!r}, which is before it."
            )
        return present - timedelta(milliseconds=duration)
    moment = _parse_iso(text, name)
    if moment > present:
        raise MisuseError(f"{name}: expected a moment in the past, found {text!r}, which is in the future.")
    return moment


def to_ms(moment: datetime) -> int:
    """Return the milliseconds since 1970 of a moment, which must have a time zone."""
    if moment.tzinfo is None:
        raise MisuseError(f"as_of: expected a moment with a time zone, found {moment.isoformat()!r}.")
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def from_ms(milliseconds: int) -> datetime:
    """Return the moment (UTC) of milliseconds since 1970."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def iso(milliseconds: int) -> str:
    """Write a moment as ISO 8601 in UTC.

    >>> iso(1_500)
    '1970-01-01T00:00:01.500Z'
    """
    return from_ms(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _parse_iso(text: str, name: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise MisuseError(
            f"{name}: expected a moment such as 2026-11-20T14:03:00Z, or -2h for two hours ago; "
            f"found {text!r}."
        ) from error
