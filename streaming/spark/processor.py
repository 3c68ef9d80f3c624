"""The stateful aggregation in Spark's terms: its state and its rows; `shard_replay` does the work.

Spark gets the state's schema from a separate Python process, which starts before the first batch and loads
this module: so it imports nothing that takes long.
"""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

SHARD_RESULT: Final = StructType(
    [
        StructField("changes", BinaryType()),  # Arrow stream of schema CHANGES_IN_BATCH, narrowed
        StructField("quarantine", BinaryType()),  # the same of schema QUARANTINE_IN_BATCH
        StructField("totals", StringType()),
        StructField("fingerprint", StringType()),  # of all changes
        StructField("written", StringType()),  # JSON of `WrittenRows`, which no cell has; null: none
    ]
)
"""The result of the operator for every shard with records in the batch: one row, or several if a cell would
be too large; totals and fingerprint are their sum."""

PIECES: Final = "pieces"
"""The state variable with the values of all shards."""

_PLACE: Final = StructType([StructField("name", StringType()), StructField("place", IntegerType())])
_PIECE: Final = StructType(
    [
        StructField("data", BinaryType()),
        StructField("further", IntegerType()),  # number of pieces that follow; only in the first one
    ]
)


class ReplayShard(StatefulProcessor):
    """Keeps all shards and replays the packed blocks of a batch on them."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the map with the values of all shards, piece by piece.

        It is a single state variable, since Spark creates encoders for each variable in every task.
        """
        self._pieces = handle.getMapState(PIECES, _PLACE, _PIECE)

    def handleInputRows(  # noqa: N802 (Spark's name)
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        """Replay the blocks of one shard; yield its changes, its failed records and its counters."""
        from streaming.spark.shard_replay import replay_blocks  # not at the top: see the module's docstring

        blocks = (row["records"] for row in rows)
        yield from replay_blocks(self._pieces, key[0], blocks)

    def close(self) -> None:
        """Nothing to close."""
