"""The contents of `offsetlake status`: how far each offsets partition was read, and the counters."""

from typing import Any, Final

import pyarrow as pa

from streaming.common.times import from_ms
from streaming.model.completeness import all_partitions
from streaming.model.progress import Progress
from streaming.model.schemas import TIMESTAMP
from streaming.model.totals import COUNTERS
from streaming.queries.as_of import AsOf

STATUS: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("state", pa.string()),  # one of `completeness.STATES`
        ("position", pa.int64()),  # the next source offset to read
        ("last_stable_offset", pa.int64()),  # this and the next: never below the position
        ("high_watermark", pa.int64()),
        ("behind", pa.int64()),  # source offsets between position and last stable offset
        ("loaded", pa.bool_()),
        ("open_transaction_since", TIMESTAMP),  # null: no open transaction holds the partition back
    ]
)

TOTALS: Final = pa.schema(
    [
        ("counter", pa.string()),  # one of totals.COUNTERS, or unknown
        ("count", pa.int64()),
        ("record_type", pa.int16()),  # this and the rest: of unknown records only
        ("value_version", pa.int16()),
        ("first_partition", pa.int32()),
        ("first_offset", pa.int64()),
        ("last_partition", pa.int32()),
        ("last_offset", pa.int64()),
    ]
)


def partitions(about: AsOf) -> pa.Table:
    """Return how far each offsets partition was read (schema `STATUS`)."""
    rows = [
        {
            "partition": number,
            "state": about.completeness.state(number),
            "position": partition.position,
            "last_stable_offset": partition.as_shown.last_stable_offset,
            "high_watermark": partition.as_shown.high_watermark,
            "behind": partition.as_shown.behind,
            "loaded": partition.loaded,
            "open_transaction_since": from_ms(partition.open_transaction_since),
        }
        for number, partition in all_partitions(about.progress).items()
    ]
    return pa.Table.from_pylist(rows, STATUS)


def totals(progress: Progress) -> pa.Table:
    """Return the counters over everything read (schema `TOTALS`)."""
    counted = progress.totals
    rows: list[dict[str, Any]] = [{"counter": name, "count": getattr(counted, name)} for name in COUNTERS]
    rows += [
        {
            "counter": "unknown",
            "count": kind.count,
            "record_type": kind.record_type,
            "value_version": kind.value_version,
            "first_partition": kind.first.partition,
            "first_offset": kind.first.offset,
            "last_partition": kind.last.partition,
            "last_offset": kind.last.offset,
        }
        for kind in counted.unknown
    ]
    return pa.Table.from_pylist(rows, TOTALS)
