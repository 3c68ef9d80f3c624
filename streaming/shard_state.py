"""How a shard is kept in Spark's state: each of its tables as two values, a base and what changed since.

A base of B bytes is written anew once the changes since then have cost as many bytes to write. With changes
of d bytes a batch that is every sqrt(2 B / d) batches, where the sum of both kinds of writing is smallest,
whatever B and d are.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StructField, StructType

from streaming import packets
from streaming.errors import OffsetlakeError
from streaming.layers import Layers

FORMAT: Final = 1
"""Version of the state: of the values, their names and what they mean.

The progress in the tables notes it too (`Progress.state_format`), so that another one is refused at start.
"""

_STATE_TYPE: Final = StructType([StructField("data", BinaryType())])
_FORMAT_KEY: Final = b"offsetlake.format"
_REPLACED_KEY: Final = b"offsetlake.replaced"
_WRITTEN_KEY: Final = b"offsetlake.written"  # bytes of earlier changes to the same base


@dataclass(frozen=True)
class Values:
    """A table as it is kept: Arrow streams of its base and of the recent rows (None: no changes since)."""

    base: bytes
    recent: bytes | None = None

    @classmethod
    def of(cls, layers: Layers) -> "Values":
        """Write a table as a base."""
        return cls(_to_bytes(layers.table, {}))

    def layers(self) -> Layers:
        """Read the table; raises `OffsetlakeError` when a newer release wrote it."""
        base = _read(self.base)
        if self.recent is None:
            return Layers.of(base.replace_schema_metadata(None))
        recent = _read(self.recent)
        replaced = np.frombuffer(recent.schema.metadata[_REPLACED_KEY], "<i4").astype(np.int64)
        return Layers(base.replace_schema_metadata(None), recent.replace_schema_metadata(None), replaced)

    def updated(self, layers: Layers) -> "Values":
        """Write what has become of the table: its recent rows, or all of it once that is due."""
        if len(layers.recent) >= len(layers.base):
            return Values.of(layers)
        written = self._written_since_base()
        recent = _to_bytes(
            layers.recent,
            {_REPLACED_KEY: layers.replaced.astype("<i4").tobytes(), _WRITTEN_KEY: b"%d" % written},
        )
        if written + len(recent) >= len(self.base):
            return Values.of(layers)
        return Values(self.base, recent)

    def _written_since_base(self) -> int:
        if self.recent is None:
            return 0
        metadata = pa.ipc.open_stream(self.recent).schema.metadata
        return int(metadata[_WRITTEN_KEY]) + len(self.recent)


class LayeredState:
    """One table of the shard that Spark's current key stands for."""

    def __init__(self, handle: StatefulProcessorHandle, name: str, schema: pa.Schema) -> None:
        self._base: Any = handle.getValueState(name, _STATE_TYPE)
        self._recent: Any = handle.getValueState(f"{name}_recent", _STATE_TYPE)
        self._nothing = Values.of(Layers.of(schema.empty_table()))

    def read(self) -> Values:
        """Read the table; an empty one where nothing was written yet."""
        base, recent = self._base.get(), self._recent.get()
        return Values(base[0], recent[0] if recent else None) if base else self._nothing

    def write(self, before: Values, after: Values) -> None:
        """Write what is not the same as before."""
        if after.base is not before.base:
            self._base.update((after.base,))
        if after.recent is None and before.recent is not None:
            self._recent.clear()
        elif after.recent is not before.recent:
            self._recent.update((after.recent,))


def _to_bytes(table: pa.Table, metadata: dict[bytes, bytes]) -> bytes:
    return packets.to_bytes(table.replace_schema_metadata({_FORMAT_KEY: b"%d" % FORMAT, **metadata}))


def _read(data: bytes) -> pa.Table:
    table = packets.from_bytes(data)
    found = int(table.schema.metadata[_FORMAT_KEY])
    if found > FORMAT:
        raise OffsetlakeError(
            f"state of the job: expected format {FORMAT} or older, found {found}. "
            "A newer offsetlake wrote this checkpoint; use that release or a newer one."
        )
    return table
