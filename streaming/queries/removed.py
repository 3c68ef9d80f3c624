"""Removed offsets: the cause, and the values for restoring them."""

from collections.abc import Sequence
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import no_rows, to_numbers
from streaming.common.keys import KEY_NAMES, key_codes
from streaming.common.times import iso
from streaming.common.timestamps import to_milliseconds
from streaming.common.topics import TopicPartitions, of_topics
from streaming.expiry.cause_names import TOPIC_DELETED
from streaming.model.schemas import KEY, OFFSETS
from streaming.queries.as_of import AsOf
from streaming.queries.expiring import Listing
from streaming.queries.reset_csv import with_warning
from streaming.tables.feed import OF_REMOVED, REMOVALS
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables

PRINTED: Final = pa.schema(
    [
        *KEY,
        *(REMOVALS.field(name) for name in ("removed_offset", "removed_at", "cause")),
        pa.field("committed_offset", pa.int64()),  # the current offset; null: nothing was committed since
    ]
)
"""The columns of a removed offset that are printed."""

REMOVED: Final = pa.schema(
    [
        *PRINTED,
        *(REMOVALS.field(name) for name in OF_REMOVED),
        pa.field("is_last", pa.bool_()),
        pa.field("is_back", pa.bool_()),
    ]
)
"""`is_last`: the last removal of its offset. `is_back`: the offset exists again, readable or not. Both are
about the present, also in an answer about a past moment: they decide what may be restored."""

_JOINED: Final = [*KEY_NAMES, "committed_offset"]
_LIVE: Final = pa.schema([OFFSETS.field(name) for name in (*_JOINED, "source_partition")])

_OTHER_TIME: Final = "its last removal is outside the time asked for: the file does not contain it"

_NEWEST_FIRST: Final = [
    ("removed_at", "descending"),
    ("group", "ascending"),
    ("topic", "ascending"),
    ("partition", "ascending"),
]


def list_removed(
    tables: Tables,
    groups: Sequence[str] = (),
    topics: Sequence[TopicPartitions] = (),
    *,
    now: int,
    since: int | None = None,
    as_of: int | None = None,
) -> Listing:
    """Return removed offsets (schema `REMOVED`), those with the newest tombstones first.

    Of groups (none: all), since a time (ms), as of `now` or of a past moment. An offset removed twice has two
    rows. Its last removal is that of the latest batch: brokers' clocks differ, and may go backwards.
    Tombstones of offsets that the job did not hold are left out: the removed value is unknown.
    """
    return tables.ask(lambda at: removed(at, groups, topics, since=since), as_of=as_of, now=now)


def removed(
    at: Snapshot,
    groups: Sequence[str] = (),
    topics: Sequence[TopicPartitions] = (),
    *,
    since: int | None = None,
) -> Listing:
    """As `list_removed`, from one snapshot."""
    named, starts_at = list(groups) or None, at.starts_after(since)
    about, now = AsOf.at(named, at), at.newest() if at.is_past else at
    gone = of_topics(about.of_loaded(now.removals(named)), topics)
    gone = gone.append_column("is_last", _is_last(gone))
    gone = gone.filter(pc.less_equal(gone["sequence"], at.progress.sequence))
    gone = gone if since is None else gone.filter(_is_since(gone["removed_at"], since))
    return Listing(
        _with_current(at, now, gone) if len(gone) else no_rows(REMOVED),
        about,
        remarks=() if starts_at is None else (f"history starts at {iso(starts_at)}",),
    )


def _with_current(at: Snapshot, now: Snapshot, gone: pa.Table) -> pa.Table:
    """Return removals (schema `REMOVED`), the newest first, with the offsets of their keys as of a snapshot,
    and whether these exist `now`."""
    groups = pc.unique(gone["group"]).to_pylist()
    live = at.offsets(groups, columns=_LIVE)
    back = (live if now is at else now.offsets(groups, columns=_LIVE)).select(KEY_NAMES)
    back = back.append_column("is_back", pa.repeat(True, len(back)))
    rows = gone.join(live.select(_JOINED), keys=KEY_NAMES, join_type="left outer")
    rows = rows.join(back, keys=KEY_NAMES, join_type="left outer").select(REMOVED.names).cast(REMOVED)
    is_back = rows["is_back"].fill_null(False)
    rows = rows.set_column(rows.schema.get_field_index("is_back"), REMOVED.field("is_back"), is_back)
    return rows.sort_by(_NEWEST_FIRST)


def _is_last(gone: pa.Table) -> pa.Array:
    """Return for n removals whether no other of the same offset has a higher sequence."""
    codes = key_codes(gone[name] for name in KEY_NAMES)
    order = np.argsort(to_numbers(gone["sequence"]), kind="stable")
    last = np.full(len(gone), -1, np.int64)
    last[codes[order]] = order  # assignment keeps the last of repeated indices
    return pa.array(last[codes] == np.arange(len(gone)))


def _is_since(moments: pa.ChunkedArray, since: int) -> pa.ChunkedArray:
    return pc.greater_equal(to_milliseconds(moments), since)


def without_last(rows: pa.Table) -> pa.Table:
    """Return the offsets of rows (schema `REMOVED`) that do not exist, and whose last removal is not among
    these: by its batch or by its broker's clock it is outside the time asked for (columns of `doubts`)."""
    gone = rows.filter(pc.invert(rows["is_back"])).group_by(KEY_NAMES).aggregate([("is_last", "any")])
    found = gone.filter(pc.invert(gone["is_last_any"])).select(KEY_NAMES)
    found = found.append_column("committed_offset", pa.nulls(len(found), pa.int64()))
    return with_warning(found, _OTHER_TIME)


def restorable(rows: pa.Table) -> pa.Table:
    """Return the rows (schema `REMOVED`) to be restored, with `committed_offset` as it was; null: none of its
    commits could be read.

    That is the last removal of each offset, unless something was committed since, or the topic was deleted.
    """
    wanted = [
        rows["is_last"],
        pc.invert(rows["is_back"]),  # also where the commit since is unreadable
        pc.not_equal(rows["cause"], TOPIC_DELETED),
    ]
    lost = rows.filter(reduce(pc.and_, wanted))
    place = lost.schema.get_field_index("committed_offset")
    return lost.set_column(place, REMOVED.field(place), lost["removed_offset"])
