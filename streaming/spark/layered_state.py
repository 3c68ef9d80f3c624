"""The values of Spark's state that hold one table of a shard (`streaming.state.stored`), of any size."""

from typing import Any, Final

import pyarrow as pa

from streaming.common.pieces import divided, pieces_in
from streaming.spark.base_files import BaseFiles
from streaming.state.layers import Layers
from streaming.state.stored import MixedStateError, Values

GROUP_RECORDS_NAME: Final = "group_records"
"""The name of the value with the records of groups."""

_RECENT: Final = "_recent"  # suffix of the name of the value with the changes since the base


class DividedState:
    """One value of the state: any number of bytes.

    In the JVM a value ends at 2 GiB, and worker and JVM hold several copies of a value in transfer. So a
    large value is divided into pieces. Small values, nearly all, are one piece.
    """

    def __init__(self, name: str, pieces: Any) -> None:
        self._name = name
        self._pieces = pieces

    def read(self) -> bytes | None:
        """Read the value; None if nothing was written so far."""
        found = self._pieces.getValue((self._name, 0))
        if not found:
            return None
        data, count = found
        further = [self._pieces.getValue((self._name, place)) for place in range(1, 1 + count)]
        if not all(further):
            raise MixedStateError(f"{self._name} without its last pieces")
        return b"".join((data, *(piece[0] for piece in further))) if count else bytes(data)

    def write(self, former_length: int, data: bytes | pa.Buffer) -> None:
        """Write the value in place of a former one of `former_length` bytes."""
        count = pieces_in(len(data))
        for place, piece in enumerate(divided(data)):
            self._pieces.updateValue((self._name, place), (piece, 0 if place else count - 1))
        for place in range(count, pieces_in(former_length)):
            self._pieces.removeKey((self._name, place))


class LayeredState:
    """One table of the shard of Spark's current grouping key."""

    def __init__(self, name: str, schema: pa.Schema, pieces: Any, files: BaseFiles) -> None:
        self._name = name
        self._files = files
        self._base = DividedState(name, pieces)
        self._recent = DividedState(f"{name}{_RECENT}", pieces)
        self._nothing = Values.of(Layers.of(schema.empty_table())).stored()

    def read(self, shard: int) -> Values:
        """Read the table of a shard; empty if nothing was written so far."""
        recent = self._recent.read()
        if recent and (known := self._files.find((self._name, shard), recent)) is not None:
            return known
        base = self._base.read()
        if not base and not recent:
            return self._nothing
        if not base or not recent:
            raise MixedStateError(f"{self._name} without its {'recent rows' if base else 'base'}")
        values = Values.read(base, recent)
        del base
        return self._files.keep((self._name, shard), values)

    def write(self, shard: int, before: Values, after: Values) -> None:
        """Write the values that have changed."""
        if after.base.data is not None:
            self._base.write(before.base.size, after.base.data)
            self._files.keep((self._name, shard), after.stored())
        if after.recent is not before.recent:
            self._recent.write(len(before.recent), after.recent)
