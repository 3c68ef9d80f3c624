"""The values of Spark's state that hold one table of a shard (`streaming.state.stored`), however large."""

from typing import Any, Final

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from streaming.common.pieces import divided, pieces_in
from streaming.state.layers import Layers
from streaming.state.stored import Bases, Values

_STATE_TYPE: Final = StructType(
    [
        StructField("data", BinaryType()),
        StructField("further", IntegerType()),  # how many pieces follow in the map
    ]
)
_PIECE_KEY: Final = StructType([StructField("name", StringType()), StructField("place", IntegerType())])
_PIECE: Final = StructType([StructField("data", BinaryType())])

_HELD_BYTES: Final = 256 * 1024 * 1024
"""Bytes of bases that a worker holds: enough for a million keys and more."""
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

    def read(self, shard: int) -> Values:
        """Read the table of a shard; an empty one where nothing was written yet."""
        recent = self._recent.read()
        if recent and (known := _BASES.find((self._name, shard), recent)) is not None:
            return known
        base = self._base.read()
        if not base:
            return self._nothing
        values = Values.read(base, recent)
        _BASES.hold((self._name, shard), values)
        return values

    def write(self, shard: int, before: Values, after: Values) -> None:
        """Write what is not the same as before."""
        if after.base is not before.base:
            self._base.write(len(before.base), after.base)
            _BASES.hold((self._name, shard), after)
        if after.recent is not None and after.recent is not before.recent:
            self._recent.write(len(before.recent or b""), after.recent)
