"""Reads for lag from one snapshot: positions, commits, and the SQL views `lag` and `health`."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.assessment.assess import Facts, Terms, assess
from streaming.assessment.explained import LAG_SECONDS_REASON
from streaming.assessment.owners import with_assigned
from streaming.common.arrays import Index, Mask, from_mask, to_mask, to_numbers
from streaming.common.keys import KEY_NAMES, key_codes, numbered
from streaming.common.topics import TopicPartitions, of_topics
from streaming.lag.health import GROUP_HEALTH, group_health
from streaming.lag.health_rules import HealthRules
from streaming.lag.log_ranges import LAG, TIMED
from streaming.lag.recreated_topic import OF_RECREATED_TOPIC
from streaming.lag.runs import COMMITS
from streaming.model.schemas import OFFSETS, TIMESTAMP
from streaming.queries.as_of import AsOf
from streaming.queries.scans import Scanned
from streaming.settings.model import HealthSettings
from streaming.tables.snapshot import Snapshot

HEALTH: Final = Facts(lag=True, lag_time=True, health=True)

_OF_KEY: Final = (*KEY_NAMES, "source_partition")
_OF_FACTS: Final = (
    *("committed_offset", "topic_id", "unreadable_source_offset", "expire_timestamp"),
    *("commit_timestamp", "source_timestamp"),
)
"""`_OF_KEY` are the columns of offsets that are always read, `_OF_FACTS` those that facts depend on."""

_OF_COMMITS: Final = pa.schema(
    [
        OFFSETS.field(name)
        for name in (
            *_OF_KEY,
            *("committed_offset", "unreadable_source_offset", "commit_timestamp", "topic_id"),
        )
    ]
)

_BASE: Final = COMMITS.append(pa.field("sequence", pa.int64()))

_SAMPLES_AT_ONCE: Final = 2_000_000  # 200 MB


def view(
    name: str, at: Snapshot, about: AsOf, scanned: Scanned, *, health: HealthSettings | None = None
) -> pa.Table:
    """Return the rows of the SQL view `lag` (offsets and assigned partitions without one, with all facts) or
    `health`, as `LagQueries` returns them for all groups.

    Only scanned columns and groups are read and computed: other columns are null, other groups are left out.
    """
    facts, groups = facts_of(name, scanned), scanned.groups
    needed = _OF_KEY if facts == Facts() else (*_OF_KEY, *_OF_FACTS)
    columns = pa.schema([field for field in OFFSETS if field.name in needed or scanned.reads(field.name)])
    offsets, own = positions(at, about, None if groups is None else sorted(groups), columns=columns)
    terms = Terms(rules=HealthRules() if health is None else HealthRules.of(health))
    rows = assess(at, offsets, facts, moment=about.moment, terms=terms, groups=own)
    rows, schema = rows if name == "lag" else group_health(rows), view_schema(name)
    return pa.table(
        [
            rows[field.name] if field.name in rows.column_names else pa.nulls(len(rows), field.type)
            for field in schema
        ],
        schema=schema,
    )


def facts_of(name: str, scanned: Scanned) -> Facts:
    """Return the facts needed for the scanned columns of a view."""
    lag_time = scanned.reads(*TIMED, LAG_SECONDS_REASON.name)
    if name == "health":
        return Facts(lag=True, lag_time=lag_time, health=True)
    lag, recreated_topic = scanned.reads(*LAG.names), scanned.reads(OF_RECREATED_TOPIC.name)
    return Facts(lag=lag, lag_time=lag_time, recreated_topic=recreated_topic)


def view_schema(name: str) -> pa.Schema:
    if name == "health":
        return GROUP_HEALTH
    place = OFFSETS.get_field_index("committed_offset") + 1
    return pa.schema(
        [*list(OFFSETS)[:place], *LAG, LAG_SECONDS_REASON, *list(OFFSETS)[place:], OF_RECREATED_TOPIC]
    )


def positions(
    at: Snapshot,
    about: AsOf,
    groups: Sequence[str] | None,
    topics: Sequence[TopicPartitions] = (),
    *,
    columns: pa.Schema = OFFSETS,
) -> tuple[pa.Table, pa.Table]:
    """Read the committed offsets of groups (None: all) and topics (none: all), and assigned partitions
    without one, of loaded offsets partitions; return them, and the groups."""
    own = about.of_loaded(at.groups(groups))
    offsets = about.of_loaded(at.offsets(groups, topics, columns=columns))
    return of_topics(with_assigned(offsets, own, at, about.moment), topics), own


def parts_by_topic(rows: pa.Table, *, minutes: int) -> tuple[list[Index], int]:
    """Split n rows (with topic and partition; n > 0) into parts whose samples need not be in memory at the
    same time.

    Returns the row numbers of each part, and roughly the number of samples in `minutes` minutes. The rows of
    a topic are in one part, and neighbouring topics are together.
    """
    codes, topics = numbered(rows["topic"])
    _, firsts = np.unique(key_codes([rows["topic"], rows["partition"]]), return_index=True)
    samples = np.bincount(codes[firsts], minlength=len(topics)) * minutes
    order = to_numbers(pc.sort_indices(topics).cast(pa.int64()))
    part = np.empty(len(topics), np.int64)
    part[order] = np.cumsum(samples[order]) // _SAMPLES_AT_ONCE
    of_row = part[codes]
    return [np.flatnonzero(of_row == number) for number in np.unique(of_row)], int(samples.sum())


def base_commits(
    at: Snapshot,
    about: AsOf,
    groups: Sequence[str] | None,
    topics: Sequence[TopicPartitions],
    moment: int,
) -> pa.Table:
    """Read the committed offsets of groups and topics at a moment (ms), of loaded offsets partitions, as
    commits (schema `COMMITS`, and sequence: null); none if the history starts later."""
    offsets = about.of_loaded(at.offsets_written_by(moment, groups, topics, columns=_OF_COMMITS))
    is_readable = pc.is_null(offsets["unreadable_source_offset"])
    columns = [
        *(offsets[field.name] for field in list(COMMITS)[:3]),
        pc.if_else(is_readable, offsets["committed_offset"], pa.scalar(None, pa.int64())),
        offsets["commit_timestamp"],
        pa.nulls(len(offsets), TIMESTAMP),
        from_mask(np.zeros(len(offsets), np.bool_)),
        offsets["topic_id"],
        pa.nulls(len(offsets), pa.int64()),
    ]
    return pa.table(columns, _BASE.names).cast(_BASE)


def far_behind(rows: pa.Table, *, min_lag: int | None, min_seconds: float | None) -> tuple[Mask, Mask]:
    """Return which of n rows of `lag_by` have at least a minimum lag and lag time (None: no minimum), and
    which others may have: the value is unknown, or a lower bound."""
    are_behind = may_be = np.ones(len(rows), np.bool_)
    for column, least, is_lower_bound in (
        ("lag", min_lag, pc.greater(rows["partitions_unknown"], 0)),
        ("lag_seconds", min_seconds, rows["lag_is_at_least"]),
    ):
        if least is not None:
            is_behind = to_mask(pc.greater_equal(rows[column], least))
            are_behind = are_behind & is_behind
            may_be = may_be & (is_behind | to_mask(is_lower_bound) | to_mask(pc.is_null(rows[column])))
    return are_behind, may_be & ~are_behind
