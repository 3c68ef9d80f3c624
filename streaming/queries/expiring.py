"""Which committed offsets the broker will drop, soonest first, and what would be at stake."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.keys import KEY_NAMES
from streaming.common.times import LAST_MS
from streaming.common.timestamps import to_milliseconds
from streaming.expiry.rules import UNKNOWN_RULES, expiry
from streaming.model.errors import MisuseError
from streaming.model.progress import Progress
from streaming.model.schemas import KEY, TIMESTAMP
from streaming.queries.completeness import AsOf, partitions_of
from streaming.settings.model import ExpirySettings
from streaming.tables.tables import Tables

EXPIRING: Final = pa.schema(
    [
        *KEY,
        ("committed_offset", pa.int64()),
        ("rule", pa.string()),
        ("expires_at", TIMESTAMP),  # null = cannot be told (the rule says why)
        ("time_left", pa.string()),  # like 6d 03:20:09; negative: due, but not checked yet
    ]
)


class RetentionUnknownError(MisuseError):
    """Neither the tables nor the settings say how long the brokers retain offsets."""


@dataclass(frozen=True)
class Listing:
    """Rows, and how complete they are."""

    rows: pa.Table
    about: AsOf

    def complaints(self) -> list[str]:
        """Say in what way the rows may not be the whole truth of this moment; nothing if they are."""
        found = self.about.complaints()
        behind = ", ".join(str(number) for number, state in self.about.states.items() if state == "behind")
        if behind:
            found.append(f"offsets partitions {behind} are not current: newer commits not read yet")
        return found + self.about.silence()


def listing(rows: pa.Table, progress: Progress, groups: Sequence[str], now: int) -> Listing:
    """Return rows about the named groups (none: all) as of `now` (ms)."""
    partitions = partitions_of(groups or None, progress)
    return Listing(rows, AsOf(moment=now, progress=progress, partitions=partitions))


def list_expiring(
    tables: Tables,
    groups: Sequence[str] = (),
    *,
    settings: ExpirySettings,
    now: int,
    within_ms: int | None = None,
) -> Listing:
    """Return the offsets that will expire if their groups stay as they are (schema `EXPIRING`), soonest
    first.

    With `within_ms` only those that are due by then. Offsets whose expiry is unknown come last, and are
    always included; those of offsets partitions that are still being loaded are left out.
    """
    snapshot = tables.read(groups or None)
    partitions = snapshot.progress.partitions
    loaded = [number for number, partition in partitions.items() if partition.loaded]
    stalled = [number for number, partition in partitions.items() if partition.is_stalled(now)]
    is_loaded = pc.is_in(snapshot.offsets["source_partition"], value_set=pa.array(loaded, pa.int32()))
    held = snapshot.offsets.filter(is_loaded)
    retention_ms = known_retention_ms(snapshot.progress, settings) if len(held) else 0
    rows = expiry(held, snapshot.groups, retention_ms, stalled=stalled)
    is_unknown = pc.is_in(rows["rule"], value_set=pa.array(sorted(UNKNOWN_RULES)))
    rows = rows.filter(pc.or_(is_unknown, _is_due(rows["expires_at"], now, within_ms)))
    moments = to_milliseconds(rows["expires_at"]).to_pylist()
    left = pa.array([_time_left(moment, now) for moment in moments], pa.string())
    rows = rows.append_column("time_left", left).select(EXPIRING.names)
    by = [(name, "ascending") for name in ("expires_at", *KEY_NAMES)]
    return listing(rows.sort_by(by), snapshot.progress, groups, now)


def known_retention_ms(progress: Progress, settings: ExpirySettings) -> int:
    """Return for how long (ms) the brokers keep offsets; raises `RetentionUnknownError`."""
    if progress.retention is not None:
        return progress.retention.retention_ms
    if settings.retention_ms is not None:
        return settings.retention_ms
    raise RetentionUnknownError(
        "predicting when offsets expire: expected the brokers' offsets.retention.minutes, found it neither "
        "in the tables (the job may lack the permission to read it: DescribeConfigs on the cluster) nor in "
        "the settings."
    )


def _is_due(expires_at: pa.ChunkedArray, now: int, within_ms: int | None) -> pa.ChunkedArray:
    if within_ms is None:
        return pc.is_valid(expires_at)
    return pc.less_equal(to_milliseconds(expires_at), min(now + within_ms, LAST_MS)).fill_null(False)


def _time_left(moment: int | None, now: int) -> str | None:
    """Write what is left as days and hours:minutes:seconds.

    >>> _time_left(90_061_000, 0)
    '1d 01:01:01'
    """
    if moment is None:
        return None
    minutes, seconds = divmod(abs(moment - now) // 1_000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    sign = "-" if moment < now else ""
    return f"{sign}{f'{days}d ' if days else ''}{hours:02}:{minutes:02}:{seconds:02}"
