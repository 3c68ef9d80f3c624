"""Packed blocks: many decoded records in one value, an Arrow stream.

Spark passes rows to a stateful operator in Python one by one (`itertuples`, about 2 us a row and column
set). So a row holds a block of records instead of one. A block has the counters of the records read for it,
because superseded commits are dropped before packing.
"""

from dataclasses import dataclass
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.model.totals import (
    MAX_UNKNOWN_KINDS,
    Position,
    Totals,
    UnknownRecords,
    totals_from_json,
    totals_to_json,
)

TOTALS_KEY: Final = b"offsetlake.totals"
_FIRST_KEY: Final = b"offsetlake.first"
# Arrow would compress every buffer in a pool of threads, which takes ten times as long for small ones.
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_WRITTEN_ROWS: Final = 128 * 1024  # at a time: compressing takes as much memory again, and more
_READING: Final = pa.ipc.IpcReadOptions(use_threads=False)


def to_bytes(table: pa.Table) -> bytes:
    """Write a table, schema metadata included, as a compressed Arrow stream."""
    written: bytes = to_buffer(table).to_pybytes()
    return written


def to_buffer(table: pa.Table) -> pa.Buffer:
    """As `to_bytes`, without a further copy of the stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as writer:
        writer.write_table(table, max_chunksize=_WRITTEN_ROWS)
    return sink.getvalue()


def from_bytes(data: bytes | pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(data, options=_READING).read_all()


def pack(records: pa.Table, totals: Totals) -> bytes:
    """Write a block of records (schema `PACKED_RECORDS`, those of the lowest offsets partition first), with
    the counters of all records that were read for it.
    """
    first = records["source_partition"][0].as_py() if len(records) else 0
    return to_bytes(
        records.replace_schema_metadata({TOTALS_KEY: totals_to_json(totals), _FIRST_KEY: str(first)})
    )


@dataclass(frozen=True)
class PackedBlock:
    """A packed block in a file; `first_partition` is the lowest offsets partition of its records."""

    start: int
    size: int
    totals: Totals
    first_partition: int

    @classmethod
    def put(cls, data: bytes, file: IO[bytes]) -> "PackedBlock":
        """Append a block to a file; read its metadata, not its records."""
        metadata = pa.ipc.open_stream(data, options=_READING).schema.metadata
        start = file.tell()
        file.write(data)
        return cls(start, len(data), totals_from_json(metadata[TOTALS_KEY]), int(metadata[_FIRST_KEY]))

    def records(self, file: IO[bytes]) -> pa.Table:
        """Read the records (schema `PACKED_RECORDS`) from the file."""
        file.seek(self.start)
        return from_bytes(file.read(self.size)).replace_schema_metadata(None)


def count_records(records: pa.Table) -> Totals:
    """Count decoded records (schema `PACKED_RECORDS`, partition by partition in log order) by outcome."""
    failed = records.filter(pc.is_valid(records["error_kind"]))
    tombstones = pc.sum(records["is_tombstone"]).as_py() or 0
    kinds = failed["error_kind"].to_pylist()
    return _count_unknown(failed) + Totals(
        decoded=len(records) - len(failed),
        tombstones=tombstones - (pc.sum(failed["is_tombstone"]).as_py() or 0),
        malformed=kinds.count("malformed"),
    )


def _count_unknown(failed: pa.Table) -> Totals:
    """Count records of unknown types and versions, by type and version; beyond the limit, as others."""
    unknown = failed.filter(pc.not_equal(failed["error_kind"], "malformed"))
    if not len(unknown):
        return Totals()
    place = ("source_partition", "source_offset")
    grouped = unknown.group_by(["record_type", "value_version"], use_threads=False).aggregate(
        [*((name, pick) for name in place for pick in ("first", "last")), ("source_offset", "count")]
    )
    by_first = grouped.sort_by([(f"{name}_first", "ascending") for name in place])
    listed, others = by_first.slice(0, MAX_UNKNOWN_KINDS), by_first.slice(MAX_UNKNOWN_KINDS)
    kinds = tuple(_unknown_records(row) for row in listed.to_pylist())
    return Totals(unknown_others=pc.sum(others["source_offset_count"]).as_py() or 0) + Totals(unknown=kinds)


def _unknown_records(row: dict[str, Any]) -> UnknownRecords:
    return UnknownRecords(
        record_type=row["record_type"],
        value_version=row["value_version"],
        count=row["source_offset_count"],
        first=Position(row["source_partition_first"], row["source_offset_first"]),
        last=Position(row["source_partition_last"], row["source_offset_last"]),
    )
