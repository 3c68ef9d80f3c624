"""The values of Spark's state that hold one table of a shard (`streaming.state.stored`), of any size."""

from itertools import zip_longest
from typing import Any, Final

import pyarrow as pa

from streaming.common.pieces import divided, pieces_in
from streaming.spark.base_files import BaseFiles
from streaming.state.layers import Layers
from streaming.state.stored import Base, MixedStateError, Values, digests_of

GROUP_RECORDS_NAME: Final = "group_records"
"""The name of the value with the records of groups."""

_SECOND: Final = "_second"  # suffix of the name of the value with the second base
_RECENT: Final = "_recent"  # suffix of the name of the value with the recent rows


class DividedState:
    """One value of the state: any number of bytes.

    In the JVM a value ends at 2 GiB, and worker and JVM hold several copies of a value in transfer. So a
    large value is divided into pieces. Small values, nearly all, are one piece.
    """

    def __init__(self, name: str, pieces: Any) -> None:
        self.name: Final = name
        self._pieces = pieces

    def read(self) -> bytes | None:
        """Read the value; None if nothing was written so far."""
        found = self._pieces.getValue((self.name, 0))
        if not found:
            return None
        data, count = found
        further = [self._pieces.getValue((self.name, place)) for place in range(1, 1 + count)]
        if not all(further):
            raise MixedStateError(f"{self.name} without its last pieces")
        return b"".join((data, *(piece[0] for piece in further))) if count else bytes(data)

    def write(self, former_length: int, data: bytes | pa.Buffer) -> None:
        """Write the value in place of a former one of `former_length` bytes."""
        count = pieces_in(len(data))
        for place, piece in enumerate(divided(data)):
            self._pieces.updateValue((self.name, place), (piece, 0 if place else count - 1))
        for place in range(count, pieces_in(former_length)):
            self._pieces.removeKey((self.name, place))


class LayeredState:
    """One table of the shard of Spark's current grouping key."""

    def __init__(self, name: str, schema: pa.Schema, pieces: Any, files: BaseFiles) -> None:
        self._name = name
        self._files = files
        self._bases = [DividedState(f"{name}{suffix}", pieces) for suffix in ("", _SECOND)]
        self._recent = DividedState(f"{name}{_RECENT}", pieces)
        self._schema = schema

    def read(self, shard: int) -> Values:
        """Read the table of a shard; empty if nothing was written so far."""
        recent = self._recent.read()
        if recent:
            bases = zip(self._bases, digests_of(recent), strict=False)
            return Values(tuple(self._base(shard, *base) for base in bases), recent)
        if self._bases[0].read():
            raise MixedStateError(f"{self._name} without its recent rows")
        return Values.of(Layers.of(self._schema.empty_table())).stored()

    def _base(self, shard: int, value: DividedState, digest: bytes) -> Base:
        place = value.name, shard
        if (known := self._files.find(place, digest)) is not None:
            return known
        data = value.read()
        if not data:
            raise MixedStateError(f"{self._name} without its base")
        base = Base.read(data, digest)
        del data
        return self._files.keep(place, base)

    def write(self, shard: int, before: Values, after: Values) -> None:
        """Write the values that have changed."""
        for value, former, base in zip_longest(self._bases, before.bases, after.bases):
            former_size = 0 if former is None else former.size
            if base is None and former is not None:
                value.write(former_size, b"")
            elif base is not None and base.data is not None:
                value.write(former_size, base.data)
                self._files.keep((value.name, shard), base)
        if after.recent is not before.recent:
            self._recent.write(len(before.recent), after.recent)
