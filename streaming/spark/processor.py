"""The stateful aggregation as Spark sees it: its state, its rows, and who does the work (`shard_replay`).

Spark asks for the state's schema by a Python process of its own, which starts before the first batch and has
to load this module: so it imports nothing that takes long.
"""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

SHARD_RESULT: Final = StructType(
    [
        StructField("changes", BinaryType()),  # Arrow stream of schema CHANGES_IN_BATCH, narrowed
        StructField("quarantine", BinaryType()),  # the same of schema QUARANTINE_IN_BATCH
        StructField("totals", StringType()),
        StructField("file", StringType()),  # holds the changes instead of the cell; null: the cell does
        StructField("newest_removal", LongType()),  # of the changes (`streaming.state.changes`)
    ]
)
"""What the operator gives for every shard that had records in the batch: one row, or several where a cell
would be too large; the totals are their sum."""

PIECES: Final = "pieces"
"""The variable of the state that holds the values of all shards."""

_PLACE: Final = StructType([StructField("name", StringType()), StructField("place", IntegerType())])
_PIECE: Final = StructType(
    [
        StructField("data", BinaryType()),
        StructField("further", IntegerType()),  # how many pieces follow; only the first one says it
    ]
)


class ReplayShard(StatefulProcessor):
    """Keeps every shard and replays the blocks of a batch on it.

    Changes that are many are left in files of a folder (None: never), which the driver sees as well.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the map that holds the values of all shards, piece by piece.

        It is one variable of the state, since Spark makes encoders for each of them, in every task.
        """
        self._pieces = handle.getMapState(PIECES, _PLACE, _PIECE)

    def handleInputRows(  # noqa: N802 (Spark's name)
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        """Replay the blocks of one shard; give its changes, its failed records and its counters."""
        from streaming.spark.shard_replay import replay_blocks  # not before: see above

        blocks = (row["records"] for row in rows)
        yield from replay_blocks(self._pieces, key[0], blocks, self._folder)

    def close(self) -> None:
        """Nothing is held open."""
