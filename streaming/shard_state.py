"""How a shard is kept in Spark's state: each of its tables as two values, a base and what changed since.

A base of B bytes is written anew once the changes since then have cost as many bytes to write. With changes
of d bytes a batch that is every sqrt(2 B / d) batches, where the sum of both kinds of writing is smallest,
whatever B and d are.

A base is read from Spark only where this process does not hold it already (`Bases`): with a million keys,
carrying 40 MB from the state store to Python took longer than all the rest of a small batch.
"""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from streaming import packets
from streaming.errors import OffsetlakeError
from streaming.layers import Layers
from streaming.pieces import divided, pieces_in

FORMAT: Final = 2
"""Version of the state: of the values, their names and what they mean.

1: as first written. 2: a value has further pieces where it is too large for one.

The progress in the tables notes it too (`Progress.state_format`), so that another one is refused at start.
"""

_STATE_TYPE: Final = StructType(
    [
        StructField("data", BinaryType()),
        StructField("further", IntegerType()),  # how many pieces follow in the map
    ]
)
_PIECE_KEY: Final = StructType([StructField("name", StringType()), StructField("place", IntegerType())])
_PIECE: Final = StructType([StructField("data", BinaryType())])
_FORMAT_KEY: Final = b"offsetlake.format"
_REPLACED_KEY: Final = b"offsetlake.replaced"
_WRITTEN_KEY: Final = b"offsetlake.written"  # bytes of earlier changes to the same base
_BASE_KEY: Final = b"offsetlake.base"  # digest of the base that the changes belong to; older states have none

_HELD_BYTES: Final = 256 * 1024 * 1024
"""So much a worker holds of bases: those of a million keys and more."""


@dataclass(frozen=True)
class Values:
    """A table as it is kept: Arrow streams of its base and of the recent rows, which name the base.

    `recent` None: an older release wrote the base, and nothing has changed since.

    `decoded` is the base as a table, where it is known.
    """

    base: bytes
    recent: bytes | None = None
    decoded: pa.Table | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, layers: Layers) -> "Values":
        """Write a table as a base, and beside it which one that is."""
        table = layers.table
        base = _to_bytes(table, {})
        nothing = Layers(table, table.schema.empty_table())
        return cls(base, _recent_to_bytes(nothing, 0, _digest(base)), table)

    def layers(self) -> Layers:
        """Read the table; raises `OffsetlakeError` when a newer release wrote it."""
        base = _base_table(self.base) if self.decoded is None else self.decoded
        if self.recent is None:
            return Layers.of(base)
        recent = _read(self.recent)
        replaced = np.frombuffer(recent.schema.metadata[_REPLACED_KEY], "<i4").astype(np.int64)
        return Layers(base, recent.replace_schema_metadata(None), replaced)

    def updated(self, layers: Layers) -> "Values":
        """Write what has become of the table: its recent rows, or all of it once that is due."""
        if len(layers.recent) >= len(layers.base):
            return Values.of(layers)
        written = self._written_since_base()
        recent = _recent_to_bytes(layers, written, self.digest or _digest(self.base))
        if written + len(recent) >= len(self.base):
            return Values.of(layers)
        return Values(self.base, recent, self.decoded)

    @property
    def digest(self) -> bytes | None:
        """The digest of the base, as far as the recent rows say it."""
        return None if self.recent is None else _base_of(self.recent)

    def _written_since_base(self) -> int:
        if self.recent is None:
            return 0
        return int(_metadata(self.recent)[_WRITTEN_KEY]) + len(self.recent)


class Bases:
    """Decoded bases that this process has met, the newest of each shard, as long as there is room.

    A base is found by a digest of its bytes, which the recent rows of the state name. So it does not matter
    how it came here, nor which batches were since then repeated, taken back or done by other processes: it is
    the base that the state means, or it is not found and is read.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: dict[tuple[str, int], tuple[bytes, Values]] = {}  # with the digest
        self._bytes = 0

    def find(self, shard: tuple[str, int], recent: bytes) -> Values | None:
        """Return the values of a shard with these recent rows, if their base is held."""
        digest, held = self._held.get(shard, (None, None))
        if held is None or _base_of(recent) != digest:
            return None
        return Values(held.base, recent, held.decoded)

    def hold(self, shard: tuple[str, int], values: Values) -> None:
        """Hold the base of a shard, in place of its former one."""
        if (former := self._held.pop(shard, None)) is not None:
            self._bytes -= _size(former[1])
        digest = values.digest
        if digest is not None and self._bytes + _size(values) <= self._most_bytes:
            self._held[shard] = digest, values
            self._bytes += _size(values)


_BASES: Final = Bases(_HELD_BYTES)


class DividedState:
    """One value of the state: bytes, however many.

    In the JVM a value ends at 2 GiB. So what does not fit into one piece goes on in `further`, a map by name
    and place that all values share. Small values, nearly all, cost what they would cost without it.
    """

    def __init__(self, handle: StatefulProcessorHandle, name: str, further: Any) -> None:
        self._name = name
        self._first: Any = handle.getValueState(name, _STATE_TYPE)
        self._further = further

    def read(self) -> bytes | None:
        """Read the value; None where nothing was written yet."""
        found = self._first.get()
        if not found:
            return None
        data, count = found
        rest = (self._further.getValue((self._name, place))[0] for place in range(count))
        return b"".join((data, *rest)) if count else bytes(data)

    def write(self, former_length: int, data: bytes) -> None:
        """Write the value in place of a former one of so many bytes."""
        first, *rest = divided(data)
        self._first.update((first, len(rest)))
        for place, piece in enumerate(rest):
            self._further.updateValue((self._name, place), (piece,))
        for place in range(len(rest), pieces_in(former_length) - 1):
            self._further.removeKey((self._name, place))


def further_pieces(handle: StatefulProcessorHandle) -> Any:
    """Open the map in which values of the state go on that are too large for one piece."""
    return handle.getMapState("further_pieces", _PIECE_KEY, _PIECE)


class LayeredState:
    """One table of the shard that Spark's current key stands for."""

    def __init__(self, handle: StatefulProcessorHandle, name: str, schema: pa.Schema, further: Any) -> None:
        self._name = name
        self._base = DividedState(handle, name, further)
        self._recent = DividedState(handle, f"{name}_recent", further)
        self._nothing = Values.of(Layers.of(schema.empty_table()))

    def read(self, partition: int) -> Values:
        """Read the table of an offsets partition; an empty one where nothing was written yet."""
        recent = self._recent.read()
        if recent and (known := _BASES.find((self._name, partition), recent)) is not None:
            return known
        base = self._base.read()
        if not base:
            return self._nothing
        values = Values(base, recent, _base_table(base))
        _BASES.hold((self._name, partition), values)
        return values

    def write(self, partition: int, before: Values, after: Values) -> None:
        """Write what is not the same as before."""
        if after.base is not before.base:
            self._base.write(len(before.base), after.base)
            _BASES.hold((self._name, partition), after)
        if after.recent is not None and after.recent is not before.recent:
            self._recent.write(len(before.recent or b""), after.recent)


def _to_bytes(table: pa.Table, metadata: dict[bytes, bytes]) -> bytes:
    return packets.to_bytes(table.replace_schema_metadata({_FORMAT_KEY: b"%d" % FORMAT, **metadata}))


def _recent_to_bytes(layers: Layers, written: int, digest: bytes) -> bytes:
    replaced = layers.replaced.astype("<i4").tobytes()
    return _to_bytes(
        layers.recent, {_REPLACED_KEY: replaced, _WRITTEN_KEY: b"%d" % written, _BASE_KEY: digest}
    )


def _digest(base: bytes) -> bytes:
    return blake2b(base, digest_size=16).digest()


def _metadata(recent: bytes) -> dict[bytes, bytes]:
    metadata: dict[bytes, bytes] = pa.ipc.open_stream(recent).schema.metadata
    return metadata


def _base_of(recent: bytes) -> bytes | None:
    return _metadata(recent).get(_BASE_KEY)


def _base_table(base: bytes) -> pa.Table:
    return _read(base).replace_schema_metadata(None)


def _size(values: Values) -> int:
    return len(values.base) + (0 if values.decoded is None else values.decoded.nbytes)


def _read(data: bytes) -> pa.Table:
    table = packets.from_bytes(data)
    found = int(table.schema.metadata[_FORMAT_KEY])
    if found > FORMAT:
        raise OffsetlakeError(
            f"state of the job: expected format {FORMAT} or older, found {found}. "
            "A newer offsetlake wrote this checkpoint; use that release or a newer one."
        )
    return table
