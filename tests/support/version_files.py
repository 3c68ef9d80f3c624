"""Writes a small table root and state values as the code at hand writes them.

    python -m version_files tests/data/version-N

At a release the files of its formats are to be kept so, if they are others than those of the one before:
`test_upgrades` reads all that are kept, and goes on from there.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from table_batches import Batch, append, group, offset

from streaming.model.progress import PartitionProgress
from streaming.model.schemas import ENTRIES, QUARANTINE_IN_BATCH
from streaming.state.layers import LayerChange, Layers
from streaming.state.stored import Values
from streaming.tables.rows import quarantine_rows
from streaming.tables.tables import Tables

BILLING: Final = ("billing", "orders", 0)
AUDIT: Final = ("audit", "orders", 1)
GONE: Final = ("billing", "returns", 0)

FIRST: Final[Batch] = {
    BILLING: offset(committed_offset=1),
    GONE: offset(committed_offset=5, metadata="m"),
    "billing": group(subscribed_topics=["orders", "returns"]),
}
SECOND: Final[Batch] = {AUDIT: offset(committed_offset=2, leader_epoch=4), GONE: None}
THIRD: Final[Batch] = {BILLING: offset(committed_offset=3)}
"""Three batches; the first two are folded."""

BAD_KEY: Final = b"\x00\x01\x00"
BAD_VALUE: Final = b"\x00\x03garbage"


def write_tables(root: Path) -> None:
    """Fill a table root: three batches, a fold after the second, and a record in quarantine."""
    tables = Tables(str(root))
    tables.create()
    partitions = {3: PartitionProgress(position=12, loaded=True)}
    append(tables, FIRST, topic="__consumer_offsets", cluster_id="cluster-1", partitions=partitions)
    append(tables, SECOND, live=FIRST)
    tables.fold()
    failed = pa.Table.from_pylist([bad_record()], QUARANTINE_IN_BATCH)
    rows, _ = quarantine_rows(failed, sequence=3, batch_time=3_000)
    newest = tables.progress()
    tables.append_quarantine(rows, replace(newest, batch_id=newest.batch_id + 1))
    append(tables, THIRD, live=FIRST)


def bad_record() -> dict[str, object]:
    """A record that could not be decoded, with the columns that every format has."""
    return {
        "key": BAD_KEY,
        "value": BAD_VALUE,
        "source_offset": 9,
        "source_timestamp": 1_500,
        "error_kind": "malformed",
        "record_type": 1,
        "reason": "expected 2 bytes for the length of group at byte 2, found 1",
        "field": "group",
        "at_byte": 2,
        "source_partition": 3,
    }


def write_state(root: Path) -> None:
    """Write the two values of a shard's entries: a base of two, one of which has changed since."""
    base = pa.Table.from_pylist([_entry(BILLING, 1), _entry(AUDIT, 2)], ENTRIES)
    padding = pa.Table.from_pylist([_entry((f"group-{n}", "t", n), n) for n in range(200)], ENTRIES)
    before = Values.of(Layers.of(pa.concat_tables([base, padding])))
    layers = before.layers()
    added = pa.Table.from_pylist([_entry(BILLING, 3)], ENTRIES)
    after = layers.after([LayerChange(np.array([0]), added)])
    values = before.updated(after)
    [base] = values.bases
    assert base is before.bases[0], "the base is large enough for the change to be kept beside it"
    root.mkdir(parents=True)
    assert base.data is not None
    (root / "entries").write_bytes(base.data)
    (root / "entries_recent").write_bytes(values.recent)


def _entry(key: tuple[str, str, int], committed: int) -> dict[str, object]:
    names = ("group", "topic", "partition")
    return {**dict(zip(names, key, strict=True)), "committed_offset": committed, "hidden": False}


if __name__ == "__main__":
    target = Path(sys.argv[1])
    write_tables(target / "tables")
    write_state(target / "state")
