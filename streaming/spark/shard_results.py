"""The results of all shards in one batch: the rows of the query (`SHARD_RESULT`), read in the driver."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from streaming.model.batch_to_write import WrittenRows
from streaming.model.schemas import CHANGES_IN_BATCH, QUARANTINE_IN_BATCH
from streaming.model.totals import Totals, totals_from_json
from streaming.packing import codec
from streaming.spark.fingerprint import Fingerprint
from streaming.state.arrow_stream import widen


@dataclass(frozen=True)
class ShardResults:
    """The results of all shards in one batch.

    `changes` (schema `CHANGES_IN_BATCH`) are those that the driver writes, `written` those in files of the
    table already. The fingerprint is of both.
    """

    changes: pa.Table
    quarantine: pa.Table
    totals: Totals
    fingerprint: Fingerprint
    written: WrittenRows = field(default_factory=WrittenRows)

    @property
    def changed_offsets(self) -> int:
        """The number of changes of offsets."""
        return self.written.offsets + (pc.sum(pc.equal(self.changes["kind"], "offset")).as_py() or 0)

    @property
    def changed_groups(self) -> int:
        """The number of changes of groups."""
        return self.written.rows + len(self.changes) - self.changed_offsets

    @classmethod
    def of(cls, changes: pa.Table, quarantine: pa.Table, totals: Totals) -> "ShardResults":
        """Return the results of a batch with these changes (schema `CHANGES_IN_BATCH`)."""
        return cls(changes, quarantine, totals, Fingerprint.of(changes))

    @classmethod
    def collect(cls, batch: DataFrame) -> "ShardResults":
        """Run the batch (the one action that foreachBatch may run) and read the results of the shards."""
        rows = batch.toArrow().to_pylist()
        written = (_written(row["written"]) for row in rows if row["written"] is not None)
        return cls(
            changes=_joined((row["changes"] for row in rows), CHANGES_IN_BATCH),
            quarantine=_joined((row["quarantine"] for row in rows), QUARANTINE_IN_BATCH),
            totals=sum((totals_from_json(row["totals"]) for row in rows), Totals()),
            fingerprint=sum((Fingerprint.read(row["fingerprint"]) for row in rows), Fingerprint()),
            written=sum(written, WrittenRows()),
        )


def _written(text: str) -> WrittenRows:
    found = json.loads(text)
    return WrittenRows(**found | {"ends": {int(number): end for number, end in found["ends"].items()}})


def _joined(cells: Iterable[bytes], schema: pa.Schema) -> pa.Table:
    tables = (codec.from_bytes(cell) for cell in cells)
    return pa.concat_tables([schema.empty_table(), *(widen(table, schema) for table in tables if len(table))])
