"""The committed offsets that the broker will expire, soonest first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.assessment.assess import Facts, assess
from streaming.common.keys import KEY_NAMES
from streaming.common.times import LAST_MS, as_clock, iso
from streaming.common.timestamps import to_milliseconds
from streaming.common.topics import TopicPartitions
from streaming.expiry.rules import UNKNOWN_RULES
from streaming.lag.recreated_topic import OF_RECREATED_TOPIC
from streaming.model.errors import MisuseError
from streaming.model.progress import Progress
from streaming.model.schemas import KEY, TIMESTAMP
from streaming.queries.as_of import AsOf
from streaming.settings.model import ExpirySettings
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables

EXPIRING: Final = pa.schema(
    [
        *KEY,
        ("committed_offset", pa.int64()),
        ("rule", pa.string()),
        ("expires_at", TIMESTAMP),  # null: unknown (the rule contains the reason)
        ("time_left", pa.string()),  # like 6d 03:20:09; negative: due, but not checked yet
        OF_RECREATED_TOPIC,
    ]
)


class RetentionUnknownError(MisuseError):
    """Neither the tables nor the settings contain the brokers' retention of offsets."""


@dataclass(frozen=True)
class Listing:
    """Rows, the state of the tables that they reflect, and remarks to print with them."""

    rows: pa.Table
    about: AsOf
    remarks: tuple[str, ...] = ()

    def all_remarks(self) -> list[str]:
        """Return how the rows may be incomplete at their moment, besides the remarks of `about`."""
        return list(self.remarks)


def list_expiring(
    tables: Tables,
    groups: Sequence[str] = (),
    topics: Sequence[TopicPartitions] = (),
    *,
    settings: ExpirySettings,
    now: int,
    within_ms: int | None = None,
    as_of: int | None = None,
) -> Listing:
    """Return the offsets that will expire if their groups stay as they are (schema `EXPIRING`), soonest
    first, as of `now` or of a past moment (ms).

    With `within_ms` only those due by then. Offsets whose expiry is unknown come last and are always
    included; those of offsets partitions still loading are left out.
    """
    return tables.ask(
        lambda at: expiring(at, groups, topics, settings=settings, within_ms=within_ms), as_of=as_of, now=now
    )


def expiring(
    at: Snapshot,
    groups: Sequence[str] = (),
    topics: Sequence[TopicPartitions] = (),
    *,
    settings: ExpirySettings,
    within_ms: int | None = None,
) -> Listing:
    """As `list_expiring`, from one snapshot."""
    named, moment = list(groups) or None, at.moment
    about = AsOf.at(named, at)
    offsets = about.of_loaded(at.offsets(named, topics))
    retention_ms = known_retention_ms(at.progress, settings) if len(offsets) else 0
    facts = Facts(recreated_topic=True, expiry=retention_ms)
    rows = assess(at, offsets, facts, moment=moment, groups=at.groups(named))
    is_unknown = pc.is_in(rows["rule"], value_set=pa.array(sorted(UNKNOWN_RULES)))
    rows = rows.filter(pc.or_(is_unknown, _is_due(rows["expires_at"], moment, within_ms)))
    moments = to_milliseconds(rows["expires_at"]).to_pylist()
    left = pa.array([None if at is None else as_clock(at - moment) for at in moments], pa.string())
    rows = rows.append_column("time_left", left).select(EXPIRING.names)
    by = [(name, "ascending") for name in ("expires_at", *KEY_NAMES)]
    return Listing(
        rows.sort_by(by),
        about,
        remarks=retention_remarks(at.progress, moment),
    )


def retention_remarks(progress: Progress, moment: int) -> tuple[str, ...]:
    """Return a remark if the retention became known only after a moment (ms)."""
    retention = progress.retention
    if retention is None or retention.known_since <= moment:
        return ()
    return (
        f"how long the brokers keep offsets is known since {iso(retention.known_since)} only, "
        "and taken to have been the same before",
    )


def known_retention_ms(progress: Progress, settings: ExpirySettings) -> int:
    """Return the brokers' retention of offsets (ms); raises `RetentionUnknownError`."""
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
