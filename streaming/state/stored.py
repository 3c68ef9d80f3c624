"""The form of a shard in Spark's state: each of its tables is two or three values, one or two bases and the
recent rows.

A batch writes the recent rows. Once writing them has cost as many bytes as the second base has, and at least
`_SECOND_BASE_BYTES`, they become part of the second base. Once writing recent rows and second bases has cost
as many bytes as the first base has, all rows become the first base. So with a first base of B bytes and
changes of d bytes a batch, a batch writes about 2 (B / d)^(1/3) times its changes (without second bases, for
small B: 1.4 (B / d)^(1/2) times).

The limit of a first base is 0.5 to 1.5 times its bytes, by its digest: bases that were written in one batch
must not all be written again in one batch, which would take long and much memory.

A base is named by the digest of its bytes, which the recent rows have too: `streaming.spark.base_files` keeps
decoded bases by these names.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.common.arrays import Index, merged
from streaming.model.errors import OffsetlakeError, OtherFormatError
from streaming.packing import codec
from streaming.state.encoded import combined
from streaming.state.layers import Layers

STATE_FORMAT: Final = 6
"""Version of the state: of the values, their names and their meaning.

The progress in the tables has it too (`Progress.state_format`), so that another one is refused at start.
"""

REBUILD: Final = "`offsetlake rebuild` creates a new checkpoint and keeps the tables."
"""Advice about a state that this release cannot read."""

_FORMAT_KEY: Final = b"offsetlake.format"
_REPLACED_KEY: Final = b"offsetlake.replaced"  # numbers of rows of the bases before this value
_WRITTEN_KEY: Final = b"offsetlake.written"  # bytes of all values since the first base
_RECENT_KEY: Final = b"offsetlake.recent"  # of these, bytes of recent rows since the newest base
_BASES_KEY: Final = b"offsetlake.bases"  # digests of the bases of the recent rows
_DIGEST_BYTES: Final = 16

_SECOND_BASE_BYTES: Final = 4 * 1024 * 1024
"""Recent rows become a second base once writing them has cost this many bytes. Below, the first base is
usually written before, and a third value would cost more than it saves."""

MIXED: Final = "state of the job: expected the data of one run, found parts of two"
"""Beginning of the message of `MixedStateError`, by which the driver recognizes it: it arrives as text."""


class MixedStateError(OffsetlakeError):
    """Base and recent rows do not belong together, so that the state before the batch is unknown.

    A batch that is repeated after a crash may write other bytes for the same rows. So a snapshot of the first
    run does not match the changes that followed the second.
    """

    def __init__(self, found: str) -> None:
        super().__init__(f"{MIXED}: {found}")


_NO_ROWS: Final = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Base:
    """A base: its rows with encoded columns, the numbers of the rows of the first base that a second one
    replaces, the digest and the size (bytes) of its Arrow stream, and the stream, if it is not in the state
    yet."""

    table: pa.Table
    replaced: Index
    digest: bytes
    size: int
    data: pa.Buffer | None = field(default=None, repr=False)

    @classmethod
    def written(cls, table: pa.Table, replaced: Index) -> "Base":
        data = codec.to_buffer(_with_metadata(table, {_REPLACED_KEY: numbers_to_bytes(replaced)}))
        return cls(table, replaced, _digest(data), len(data), data)

    @classmethod
    def read(cls, data: bytes | pa.Buffer, digest: bytes) -> "Base":
        """Read the base with this digest.

        Raises `MixedStateError` if it has another one, and `OtherFormatError` if another release wrote it.
        Columns are combined one after the other, so that only one of them is in memory twice.
        """
        if _digest(data) != digest:
            raise MixedStateError("recent rows and another base than theirs")
        read = _read(data)
        replaced = numbers_from_bytes(read.schema.metadata[_REPLACED_KEY])
        names, columns = read.column_names, read.columns
        del read
        for place, column in enumerate(columns):
            columns[place] = combined(column)
            del column
        return cls(pa.table(columns, names), replaced, digest, len(data))

    def stored(self) -> "Base":
        """Return the base once it is in the state: without its stream."""
        return replace(self, data=None)


@dataclass(frozen=True)
class Values:
    """A table as stored: one or two bases, and an Arrow stream of the recent rows, with the digests of the
    bases."""

    bases: tuple[Base, ...]
    recent: bytes

    @classmethod
    def of(cls, layers: Layers) -> "Values":
        """Write a table as one base, with empty recent rows."""
        rewritten = layers.rewritten()
        [table] = rewritten.bases
        bases = (Base.written(table, rewritten.replaced),)
        return cls(bases, _recent_to_bytes(rewritten.recent, _NO_ROWS, bases))

    @classmethod
    def read(cls, bases: Sequence[bytes | pa.Buffer], recent: bytes) -> "Values":
        """Read a stored table; raises `MixedStateError` if the recent rows have other bases, and
        `OtherFormatError` if another release wrote it."""
        read = zip(bases, digests_of(recent), strict=True)
        return cls(tuple(Base.read(data, digest) for data, digest in read), recent)

    def layers(self) -> Layers:
        """Read the table; raises `OtherFormatError` if another release wrote it."""
        stored = _read(self.recent)
        since_bases = numbers_from_bytes(stored.schema.metadata[_REPLACED_KEY])
        replaced = merged([*(base.replaced for base in self.bases), since_bases])
        recent = stored.replace_schema_metadata(None).combine_chunks()
        return Layers(tuple(base.table for base in self.bases), recent, replaced)

    def updated(self, layers: Layers) -> "Values":
        """Write the changed table: its recent rows, or the newest base or the whole once that is due."""
        if len(layers.recent) >= layers.base_rows:
            return Values.of(layers)
        metadata, size = _metadata(self.recent), len(self.recent)
        written, of_recent = int(metadata[_WRITTEN_KEY]) + size, int(metadata[_RECENT_KEY]) + size
        is_new = np.ones(layers.base_rows, np.bool_)
        for base in self.bases:
            is_new[base.replaced] = False
        replaced = layers.replaced[is_new[layers.replaced]]
        recent = _recent_to_bytes(layers.recent, replaced, self.bases, written, of_recent)
        if written + len(recent) >= self._worth_a_base:
            return Values.of(layers)
        if of_recent + len(recent) >= self._worth_a_second_base:
            return self._condensed(layers, written)
        return Values(self.bases, recent)

    def _condensed(self, layers: Layers, written: int) -> "Values":
        condensed = layers.condensed()
        _, table = condensed.bases
        second = Base.written(table, condensed.replaced)
        bases = self.bases[0], second
        return Values(bases, _recent_to_bytes(condensed.recent, _NO_ROWS, bases, written + second.size))

    def stored(self) -> "Values":
        """Return the values once they are in the state: without the streams of the bases."""
        return replace(self, bases=tuple(base.stored() for base in self.bases))

    @property
    def _worth_a_base(self) -> float:
        """Bytes of changes after which the first base is written again: its size, times 0.5 to 1.5."""
        return self.bases[0].size * (0.5 + self.bases[0].digest[0] / 256)

    @property
    def _worth_a_second_base(self) -> int:
        """Bytes of recent rows after which the second base is written again."""
        return max([_SECOND_BASE_BYTES, *(base.size for base in self.bases[1:])])


def numbers_to_bytes(numbers: Index) -> bytes:
    return numbers.astype("<i4").tobytes()


def numbers_from_bytes(data: bytes) -> Index:
    return np.frombuffer(data, "<i4").astype(np.int64)


def _with_metadata(table: pa.Table, metadata: dict[bytes, bytes]) -> pa.Table:
    return table.replace_schema_metadata({_FORMAT_KEY: b"%d" % STATE_FORMAT, **metadata})


def _recent_to_bytes(
    recent: pa.Table, replaced: Index, bases: Sequence[Base], written: int = 0, of_recent: int = 0
) -> bytes:
    """Return recent rows, and the numbers of the rows of the bases that they replace, as a value.

    The counters of bytes do not include this value.
    """
    metadata = {
        _REPLACED_KEY: numbers_to_bytes(replaced),
        _WRITTEN_KEY: b"%d" % written,
        _RECENT_KEY: b"%d" % of_recent,
        _BASES_KEY: b"".join(base.digest for base in bases),
    }
    return codec.to_bytes(_with_metadata(recent, metadata))


def _digest(base: bytes | pa.Buffer) -> bytes:
    return blake2b(base, digest_size=_DIGEST_BYTES).digest()


def _metadata(recent: bytes) -> dict[bytes, bytes]:
    return _checked(pa.ipc.open_stream(recent).schema)


def digests_of(recent: bytes) -> list[bytes]:
    """Return the digests of the bases to which recent rows belong.

    Raises `OtherFormatError` if another release wrote them.
    """
    digests = _metadata(recent)[_BASES_KEY]
    return [digests[at : at + _DIGEST_BYTES] for at in range(0, len(digests), _DIGEST_BYTES)]


def _read(data: bytes | pa.Buffer) -> pa.Table:
    table = codec.from_bytes(data)
    _checked(table.schema)
    return table


def _checked(schema: pa.Schema) -> dict[bytes, bytes]:
    """Return the metadata of a value of this release."""
    metadata: dict[bytes, bytes] = schema.metadata
    found = int(metadata[_FORMAT_KEY])
    if found != STATE_FORMAT:
        raise OtherFormatError("state of the job", expected=STATE_FORMAT, found=found, if_older=REBUILD)
    return metadata
