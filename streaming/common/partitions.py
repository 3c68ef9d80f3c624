"""Computes the offsets partition of a group, as Kafka's brokers do.

Partition = abs(hash) mod count, where the hash is that of Java's `String`: h = 31 h + c over the UTF-16 code
units, in 32 bits (`GroupCoordinatorService.partitionFor`).
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming.common.keys import numbered

_FACTOR: Final = np.uint32(31)
_LOWEST: Final = -(2**31)


def offsets_partitions(groups: pa.Array | pa.ChunkedArray, partition_count: int) -> npt.NDArray[np.int32]:
    """Return the partition (n int32) of each of n group names, none of them null.

    >>> offsets_partitions(pa.array(["g", "", "polygenelubricants"]), 50).tolist()
    [3, 0, 0]
    """
    if partition_count < 1:
        raise ValueError(f"computing offsets partitions: expected at least 1, found {partition_count}")
    if groups.null_count:
        raise ValueError(f"computing offsets partitions: expected no null, found {groups.null_count}")
    codes, distinct = numbered(groups)
    hashes = java_hashes(distinct)
    positive = np.where(hashes == _LOWEST, 0, np.abs(hashes))
    of_distinct = (positive % partition_count).astype(np.int32)
    partitions: npt.NDArray[np.int32] = of_distinct[codes]
    return partitions


def offsets_partition(group: str, partition_count: int) -> int:
    """Return the partition of one group name, faster than `offsets_partitions` for one.

    >>> offsets_partition("g", 50)
    3
    """
    if partition_count < 1:
        raise ValueError(f"computing an offsets partition: expected at least 1, found {partition_count}")
    hashed = 0
    for unit in memoryview(group.encode("utf-16-le", "surrogatepass")).cast("H"):
        hashed = (31 * hashed + unit) & 0xFFFF_FFFF
    hashed -= (hashed >> 31) << 32
    return 0 if hashed == _LOWEST else abs(hashed) % partition_count


def java_hashes(texts: pa.Array) -> npt.NDArray[np.int32]:
    """Return Java's `String.hashCode` (n int32) of n texts, none of them null.

    One pass per position, over the texts that are long enough to have it. The longest texts come first, so
    these are always the first elements of the arrays. A few long texts among short ones cost little.
    """
    if not len(texts):
        return np.zeros(0, np.int32)
    units, starts, lengths = _utf16_units(texts)
    order = np.argsort(-lengths, kind="stable")
    starts, longest_last = starts[order], lengths[order][::-1]
    counts = len(lengths) - np.searchsorted(longest_last, np.arange(lengths.max(initial=0)), side="right")
    hashes = np.zeros(len(lengths), np.uint32)
    for position, count in enumerate(counts.tolist()):
        hashes[:count] = hashes[:count] * _FACTOR + units[starts[:count] + position]
    of_text = np.empty_like(hashes)
    of_text[order] = hashes
    return of_text.view(np.int32)


def _utf16_units(
    texts: pa.Array,
) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the code units of all n texts in a row, and the start and the length of each text (n)."""
    wide = texts.cast(pa.large_string())
    _, offsets, data = wide.buffers()
    bounds = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1]
    utf8 = memoryview(data)[bounds[0] : bounds[-1]].tobytes() if data else b""
    bounds = bounds - bounds[0]
    units = np.frombuffer(utf8.decode("utf-8").encode("utf-16-le"), "<u2")
    if len(units) != len(utf8):  # not only ASCII: count the units that begin before each byte
        octets = np.frombuffer(utf8, np.uint8)
        widths = ((octets & 0xC0) != 0x80).view(np.int8) + (octets >= 0xF0)
        bounds = np.append(0, np.cumsum(widths, dtype=np.int64))[bounds]
    return units, bounds[:-1], np.diff(bounds)
