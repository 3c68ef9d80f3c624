"""The form of a shard in Spark's state: each of its tables is two values, a base and the changes since then.

A base of B bytes is written again once writing the changes since then has cost as many bytes. With changes of
d bytes a batch, that is every sqrt(2 B / d) batches, where the sum of both kinds of writing is minimal for
all B and d. The limit of a base is 0.5 to 1.5 times its bytes, by its digest: bases that were written in one
batch must not all be written again in one batch, which would take long and much memory.

A base is named by the digest of its bytes, which the recent rows have too: `streaming.spark.base_files` keeps
decoded bases by these names.
"""

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.model.errors import OffsetlakeError, OtherFormatError
from streaming.packing import codec
from streaming.state.encoded import combined
from streaming.state.layers import Layers

STATE_FORMAT: Final = 5
"""Version of the state: of the values, their names and their meaning.

The progress in the tables has it too (`Progress.state_format`), so that another one is refused at start.
"""

REBUILD: Final = "`offsetlake rebuild` creates a new checkpoint and keeps the tables."
"""Advice about a state that this release cannot read."""

_FORMAT_KEY: Final = b"offsetlake.format"
_REPLACED_KEY: Final = b"offsetlake.replaced"
_WRITTEN_KEY: Final = b"offsetlake.written"  # bytes of earlier changes to the same base
_BASE_KEY: Final = b"offsetlake.base"  # digest of the base of the changes


MIXED: Final = "state of the job: expected the data of one run, found parts of two"
"""Beginning of the message of `MixedStateError`, by which the driver recognizes it: it arrives as text."""


class MixedStateError(OffsetlakeError):
    """Base and recent rows do not belong together, so that the state before the batch is unknown.

    A batch that is repeated after a crash may write other bytes for the same rows. So a snapshot of the first
    run does not match the changes that followed the second.
    """

    def __init__(self, found: str) -> None:
        super().__init__(f"{MIXED}: {found}")


@dataclass(frozen=True)
class Base:
    """A base: its rows with encoded columns, the size of its Arrow stream in bytes, and the stream, if it is
    not in the state yet."""

    table: pa.Table
    size: int
    data: pa.Buffer | None = field(default=None, repr=False)

    @classmethod
    def read(cls, data: bytes | pa.Buffer) -> "Base":
        """Read a base; raises `OtherFormatError` if another release wrote it.

        Columns are combined one after the other, so that only one of them is in memory twice.
        """
        read = _read(data)
        names, columns = read.column_names, read.columns
        del read
        for place, column in enumerate(columns):
            columns[place] = combined(column)
            del column
        return cls(pa.table(columns, names), len(data))


@dataclass(frozen=True)
class Values:
    """A table as stored: its base, and an Arrow stream of the recent rows, with the digest of the base."""

    base: Base
    recent: bytes

    @classmethod
    def of(cls, layers: Layers) -> "Values":
        """Write a table as a base, with empty recent rows."""
        rewritten = layers.rewritten()
        data = codec.to_buffer(_with_metadata(rewritten.base, {}))
        return cls(Base(rewritten.base, len(data), data), _recent_to_bytes(rewritten, 0, _digest(data)))

    @classmethod
    def read(cls, base: bytes | pa.Buffer, recent: bytes) -> "Values":
        """Read a stored table; raises `MixedStateError` if the recent rows have another base, and
        `OtherFormatError` if another release wrote it."""
        if digest_of(recent) != _digest(base):
            raise MixedStateError("recent rows and another base than theirs")
        return cls(Base.read(base), recent)

    def layers(self) -> Layers:
        """Read the table; raises `OtherFormatError` if another release wrote it."""
        stored = _read(self.recent)
        replaced = np.frombuffer(stored.schema.metadata[_REPLACED_KEY], "<i4").astype(np.int64)
        return Layers(self.base.table, stored.replace_schema_metadata(None).combine_chunks(), replaced)

    def updated(self, layers: Layers) -> "Values":
        """Write the changed table: its recent rows, or the whole once that is due."""
        if len(layers.recent) >= len(layers.base):
            return Values.of(layers)
        written = self._written_since_base()
        recent = _recent_to_bytes(layers, written, self.digest)
        if written + len(recent) >= self._worth_a_base:
            return Values.of(layers)
        return Values(self.base, recent)

    def stored(self) -> "Values":
        """Return the values once they are in the state: without the stream of the base."""
        return replace(self, base=replace(self.base, data=None))

    @property
    def digest(self) -> bytes:
        """The digest of the base."""
        return digest_of(self.recent)

    @property
    def _worth_a_base(self) -> float:
        """Bytes of changes after which the base is written again: its size, times 0.5 to 1.5."""
        return self.base.size * (0.5 + self.digest[0] / 256)

    def _written_since_base(self) -> int:
        return int(_metadata(self.recent)[_WRITTEN_KEY]) + len(self.recent)


def _with_metadata(table: pa.Table, metadata: dict[bytes, bytes]) -> pa.Table:
    return table.replace_schema_metadata({_FORMAT_KEY: b"%d" % STATE_FORMAT, **metadata})


def _recent_to_bytes(layers: Layers, written: int, digest: bytes) -> bytes:
    metadata = {
        _REPLACED_KEY: layers.replaced.astype("<i4").tobytes(),
        _WRITTEN_KEY: b"%d" % written,
        _BASE_KEY: digest,
    }
    return codec.to_bytes(_with_metadata(layers.recent, metadata))


def _digest(base: bytes | pa.Buffer) -> bytes:
    return blake2b(base, digest_size=16).digest()


def _metadata(recent: bytes) -> dict[bytes, bytes]:
    metadata: dict[bytes, bytes] = pa.ipc.open_stream(recent).schema.metadata
    return metadata


def digest_of(recent: bytes) -> bytes:
    """Return the digest of the base to which recent rows belong."""
    return _metadata(recent)[_BASE_KEY]


def _read(data: bytes) -> pa.Table:
    table = codec.from_bytes(data)
    found = int(table.schema.metadata[_FORMAT_KEY])
    if found != STATE_FORMAT:
        raise OtherFormatError("state of the job", expected=STATE_FORMAT, found=found, if_older=REBUILD)
    return table
