"""Tables of an older format get what they lack, wherever it stands."""

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.fs import DeltaStorageHandler

from streaming.tables.formats import upgrade
from streaming.tables.select import select


def test_columns_and_fields_of_structs_that_a_table_lacks_are_null_in_its_rows(tmp_path: Path) -> None:
    held = pa.table({"after": [{"offset": 1}], "kind": ["offset"]})
    write_deltalake(tmp_path, held)
    offset, epoch = pa.field("offset", pa.int64()), pa.field("epoch", pa.int32())
    schema = pa.schema([("after", pa.struct([offset, epoch])), ("kind", pa.string()), ("day", pa.date32())])
    table = DeltaTable(tmp_path)
    log = {"delta.checkpointInterval": "20"}
    upgrade(table, DeltaStorageHandler.from_table(table._table), schema, log)
    assert DeltaTable(tmp_path).metadata().configuration.items() >= log.items()
    write_deltalake(
        table, pa.Table.from_pylist([{"after": {"offset": 2, "epoch": 7}}], schema), mode="append"
    )
    rows = select("""SELECT * FROM t ORDER BY "after"['offset']""", t=DeltaTable(tmp_path)).to_pylist()
    assert [(row["after"], row["day"]) for row in rows] == [
        ({"offset": 1, "epoch": None}, None),
        ({"offset": 2, "epoch": 7}, None),
    ]
