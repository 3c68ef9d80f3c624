"""Records that could not be decoded: all their bytes are kept, as long as these are not too many.

A record is at most about a megabyte, and a batch may hold millions. Up to a number of bytes, the first failed
records of a block, and of an offsets partition in a batch, are kept whole. The others keep the first bytes of
key and value, enough to recognize them. (The first ones of an offsets partition are those of the blocks read
first, which is nearly the order of the log.) The full lengths are always kept, and so is the position in the
log, where the rest can be read.
"""

from collections import defaultdict
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Mask, to_numbers
from streaming.model.schemas import QUARANTINE_IN_BATCH

WHOLE_BYTES: Final = 4 * 1024 * 1024
"""Failed records are kept whole up to this many bytes: more than a block of ordinary records has."""

FIRST_BYTES: Final = 256
"""Number of bytes that are kept of any key or value: 3 M records in one batch take 1.5 GB at most."""

KEPT_KINDS: Final = pa.array(["malformed", "unsupported_version"])
"""The kinds of errors whose records are kept. Records of unknown types are only counted: Kafka adds types
regularly."""

Lengths = npt.NDArray[np.int64]

_BYTES: Final = ("key", "value")


def with_kept_bytes(records: pa.Table) -> pa.Table:
    """Drop keys and values except those of failed records, limit these, and append their lengths.

    Expects columns `key`, `value` (binary) and `error_kind`; appends `key_length` and `value_length` (null
    where the bytes are).
    """
    is_kept = pc.is_in(records["error_kind"], value_set=KEPT_KINDS)
    for name in _BYTES:
        kept = pc.if_else(is_kept, records[name], pa.scalar(None, records[name].type))
        lengths = pc.binary_length(kept).cast(pa.int32())
        records = _replaced(records, name, kept).append_column(_length(name), lengths)
    return _cut(records, np.cumsum(_held(records)) > WHOLE_BYTES)


class KeptBytes:
    """The number of bytes of failed records that one batch may still keep whole, by offsets partition."""

    def __init__(self) -> None:
        self._left: defaultdict[int, int] = defaultdict(lambda: WHOLE_BYTES)

    def bounded(self, records: pa.Table) -> pa.Table:
        """Keep the first records of each partition whole up to the limit, and cut the others."""
        held = _held(records)
        failed = np.flatnonzero(held)
        partitions = to_numbers(records["source_partition"])[failed]
        is_cut = np.zeros(len(records), dtype=bool)
        for partition in np.unique(partitions).tolist():
            own = failed[partitions == partition]
            is_cut[own] = np.cumsum(held[own]) > self._left[partition]
            self._left[partition] = max(0, self._left[partition] - int(held[own[~is_cut[own]]].sum()))
        return _cut(records, is_cut)


def _cut(records: pa.Table, is_cut: Mask) -> pa.Table:
    if not is_cut.any():
        return records
    for name in _BYTES:
        column = records[name].combine_chunks()
        first = pc.binary_slice(column, 0, FIRST_BYTES)
        records = _replaced(records, name, pc.if_else(pa.array(is_cut), first, column))
    return records


def quarantined(records: pa.Table) -> pa.Table:
    """Return the records to keep because they could not be decoded (schema `QUARANTINE_IN_BATCH`)."""
    kept = pc.is_in(records["error_kind"], value_set=KEPT_KINDS)
    return records.filter(kept).select(QUARANTINE_IN_BATCH.names)


def _held(records: pa.Table) -> Lengths:
    """Return the number of bytes of key and value of each of n records."""
    of_key, of_value = (pc.fill_null(pc.binary_length(records[name]), 0) for name in _BYTES)
    held: Lengths = pc.add(of_key, of_value).to_numpy().astype(np.int64)
    return held


def _length(name: str) -> str:
    return f"{name}_length"


def _replaced(records: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    return records.set_column(records.schema.get_field_index(name), name, column)
