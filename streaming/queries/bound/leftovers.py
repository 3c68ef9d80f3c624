"""Left-over committed offsets, from one snapshot."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.assessment.assess import Facts, assess
from streaming.common.times import DAY_MS
from streaming.common.topics import TopicPartitions, of_topics
from streaming.lag.positions import topics_in
from streaming.model.schemas import OFFSETS
from streaming.queries.as_of import AsOf
from streaming.queries.expiring import (
    Listing,
    RetentionUnknownError,
    known_retention_ms,
    retention_remarks,
)
from streaming.queries.leftovers import NEEDED, by_topic, left_over
from streaming.settings.model import ExpirySettings
from streaming.tables.log_ends import milliseconds
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables

IDLE_MS: Final = 14 * DAY_MS
"""For how long a group without members must have no commits, unless the caller chooses another time."""

_COLUMNS: Final = pa.schema([field for field in OFFSETS if field.name in NEEDED])


def list_leftovers(
    tables: Tables,
    groups: Sequence[str] = (),
    topics: Sequence[TopicPartitions] = (),
    *,
    settings: ExpirySettings,
    now: int,
    idle_ms: int = IDLE_MS,
    as_of: int | None = None,
) -> Listing:
    """Return the left-over offsets of groups (none: all) by group and topic (schema `LEFTOVERS`), sorted by
    these, as of `now` or of a past moment (ms).

    Groups without members count after `idle_ms` without a commit. Offsets of offsets partitions still
    loading are left out. Without a known retention of the brokers, expires_at and rule are null, and a remark
    says so.
    """
    return tables.ask(
        lambda at: leftovers(at, groups, topics, settings=settings, idle_ms=idle_ms), as_of=as_of, now=now
    )


def leftovers(
    at: Snapshot,
    groups: Sequence[str] = (),
    topics: Sequence[TopicPartitions] = (),
    *,
    settings: ExpirySettings,
    idle_ms: int = IDLE_MS,
) -> Listing:
    """As `list_leftovers`, from one snapshot."""
    named, moment = list(groups) or None, at.moment
    about = AsOf.at(named, at)
    own = about.of_loaded(at.groups(named))
    offsets = about.of_loaded(at.offsets(named, columns=_COLUMNS))
    found = left_over(
        assess(at, offsets, Facts(recreated_topic=True), moment=moment, groups=own),
        own,
        named=at.topics_over_time(None, as_of=moment),
        deleted=_deleted(at, topics_in(offsets)),
        moment=moment,
        idle_ms=idle_ms,
    )
    found = of_topics(found, topics)
    found, remarks = _with_expiry(at, found, own, settings)
    return Listing(by_topic(found), about, remarks=remarks)


def _deleted(at: Snapshot, topics: Sequence[str]) -> list[str]:
    """Return the topics that were last seen deleted."""
    gone = at.topics_gone(topics, as_of=at.moment)
    if not gone:
        return []
    seen = at.topics_over_time(list(gone), as_of=at.moment)
    there = dict[str, int]()
    for topic, last_at in zip(seen["topic"].to_pylist(), milliseconds(seen["last_at"]).tolist(), strict=True):
        there[topic] = max(last_at, there.get(topic, last_at))
    return [topic for topic, moment in gone.items() if moment > there.get(topic, moment - 1)]


def _with_expiry(
    at: Snapshot, rows: pa.Table, groups: pa.Table, settings: ExpirySettings
) -> tuple[pa.Table, tuple[str, ...]]:
    if not len(rows):
        return rows, ()
    try:
        retention_ms = known_retention_ms(at.progress, settings)
    except RetentionUnknownError as error:
        return rows, (f"when the brokers will drop these offsets is not known: {error}",)
    groups = groups.filter(pc.is_in(groups["group"], value_set=rows["group"].combine_chunks()))
    rows = assess(at, rows, Facts(expiry=retention_ms), moment=at.moment, groups=groups)
    return rows, retention_remarks(at.progress, at.moment)
