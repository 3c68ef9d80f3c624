"""What the shards gave in one batch: the rows of the query (`SHARD_RESULT`), read in the driver."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from streaming.common.arrow_stream import widen
from streaming.model.schemas import CHANGES_IN_BATCH, QUARANTINE_IN_BATCH
from streaming.model.totals import Totals, totals_from_json
from streaming.packets import codec
from streaming.state.changes import only_counts


@dataclass(frozen=True)
class ShardResults:
    """What all shards gave in one batch."""

    changes: pa.Table
    quarantine: pa.Table
    totals: Totals

    @classmethod
    def nothing(cls) -> "ShardResults":
        """Return the results of a batch that changes nothing."""
        return cls(CHANGES_IN_BATCH.empty_table(), QUARANTINE_IN_BATCH.empty_table(), Totals())

    @classmethod
    def collect(cls, batch: DataFrame) -> "ShardResults":
        """Run the batch (the one action that foreachBatch may run) and read what the shards gave."""
        rows = batch.toArrow().to_pylist()
        return cls(
            changes=_joined(map(_changes, rows), CHANGES_IN_BATCH),
            quarantine=_joined((codec.from_bytes(row["quarantine"]) for row in rows), QUARANTINE_IN_BATCH),
            totals=sum((totals_from_json(row["totals"]) for row in rows), Totals()),
        )

    @property
    def fingerprint(self) -> str:
        """What tells the changes of this batch from others: how many they are, and which records brought them
        about, in any order.

        Read again after compaction, a batch may lack records that it had: then the shards do not hold what
        the tables say. If only superseded ones are lacking they do: how many commits there were is no part
        of this, and neither are rows that say nothing else.
        """
        changes = self.changes.select(["op", "cause", "before", "source_offset", "source_partition"])
        if (is_no_change := only_counts(changes)).any():
            changes = changes.filter(pa.array(~is_no_change))
        is_set = pc.equal(changes["op"], "set").to_numpy()
        places = changes["source_offset"].to_numpy().astype(np.uint64) * 2 + is_set
        partitions = changes["source_partition"].to_numpy().astype(np.uint64)
        hashes = pd.util.hash_array(places) ^ pd.util.hash_array(partitions)
        return f"{len(changes)}-{int(pd.util.hash_array(hashes).sum(dtype=np.uint64)):016x}"


def _changes(row: dict[str, Any]) -> pa.Table:
    """Read the changes of one row of results; a file of them is read once, and then no longer there."""
    path = row["file"]
    if path is None:
        return codec.from_bytes(row["changes"])
    table = codec.from_file(path)
    Path(path).unlink()
    return table


def _joined(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    filled = [widen(table, schema) for table in tables if len(table)]
    return pa.concat_tables(filled) if filled else schema.empty_table()
