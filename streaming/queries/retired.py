"""Which committed offsets are gone, why, and how to put them back."""

from collections.abc import Sequence
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import to_numbers
from streaming.common.keys import KEY_NAMES, key_codes
from streaming.common.times import FIRST_MS, parse_duration_ms, parse_moment, to_ms
from streaming.common.timestamps import to_milliseconds
from streaming.expiry.causes import TOPIC_DELETED
from streaming.queries.expiring import Listing, listing
from streaming.tables.feed import REMOVALS
from streaming.tables.tables import Tables

PRINTED: Final = pa.schema(
    [
        *(field for field in REMOVALS if field.name != "sequence"),
        pa.field("committed_since", pa.int64()),  # the current offset; null = nothing was committed since
    ]
)
"""What people are shown of an offset that was removed."""

RETIRED: Final = PRINTED.append(pa.field("is_last", pa.bool_()))
"""`is_last`: it is the last removal of its offset."""

_NEWEST_FIRST: Final = [
    ("removed_at", "descending"),
    ("group", "ascending"),
    ("topic", "ascending"),
    ("partition", "ascending"),
]


def list_retired(
    tables: Tables, groups: Sequence[str] = (), *, now: int, since: int | None = None
) -> Listing:
    """Return the offsets that were removed (schema `RETIRED`), those with the newest tombstones first.

    Those of the named groups or of all, and since a time (ms). An offset that was removed twice is there
    twice. The last of its removals is that of the latest batch: brokers' clocks differ, and time may run
    backwards. Left out are tombstones of offsets that the job did not hold: what they removed is not known.
    """
    gone, offsets, progress = tables.ask(
        lambda at: (at.removals(groups or None), at.offsets(groups or None), at.progress)
    )
    live = offsets.select([*KEY_NAMES, "committed_offset"]).rename_columns([*KEY_NAMES, "committed_since"])
    gone = gone.append_column("is_last", _is_last(gone))
    gone = gone if since is None else gone.filter(_is_since(gone["removed_at"], since))
    rows = gone.join(live, keys=KEY_NAMES, join_type="left outer").select(RETIRED.names).cast(RETIRED)
    return listing(rows.sort_by(_NEWEST_FIRST), progress, groups, now)


def _is_last(gone: pa.Table) -> pa.Array:
    """Tell of each of n removals whether no other of the same offset has a higher sequence."""
    codes = key_codes(gone[name] for name in KEY_NAMES)
    order = np.argsort(to_numbers(gone["sequence"]), kind="stable")
    last = np.full(len(gone), -1, np.int64)
    last[codes[order]] = order  # of repeated indices numpy keeps the last
    return pa.array(last[codes] == np.arange(len(gone)))


def _is_since(moments: pa.ChunkedArray, since: int) -> pa.ChunkedArray:
    """Tell which moments are not before a time (ms)."""
    return pc.greater_equal(to_milliseconds(moments), since)


def restorable(rows: pa.Table) -> pa.Table:
    """Return those of the rows (schema `RETIRED`) that can be put back.

    That is the last removal of each offset, unless something has been committed since, its topic is gone, or
    its value is not known.
    """
    wanted = [
        rows["is_last"],
        pc.is_valid(rows["removed_offset"]),
        pc.is_null(rows["committed_since"]),
        pc.not_equal(rows["cause"], TOPIC_DELETED),
    ]
    return rows.filter(reduce(pc.and_, wanted))


def parse_since(text: str, now: int, *, name: str) -> int:
    """Read a duration before `now`, such as 7d, or an ISO 8601 time (UTC unless it says otherwise), as ms.

    `name` is what a `MisuseError` calls it.

    >>> parse_since("1970-01-01T00:00:01Z", 2_000, name="since")
    1000
    """
    if text[:1].isdigit() and text[-1] in "smhd":
        return max(FIRST_MS, now - parse_duration_ms(text, name=name))
    return to_ms(parse_moment(text, now, name=name))
