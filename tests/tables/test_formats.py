"""Tables of an older format get what they lack, wherever it stands."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.fs import DeltaStorageHandler

from streaming.tables.formats import renew_log, upgrade
from streaming.tables.select import select


def test_columns_and_fields_of_structs_that_a_table_lacks_are_null_in_its_rows(tmp_path: Path) -> None:
    held = pa.table({"after": [{"offset": 1}], "kind": ["offset"]})
    write_deltalake(tmp_path, held)
    offset, epoch = pa.field("offset", pa.int64()), pa.field("epoch", pa.int32())
    schema = pa.schema([("after", pa.struct([offset, epoch])), ("kind", pa.string()), ("day", pa.date32())])
    table = DeltaTable(tmp_path)
    upgrade(table, DeltaStorageHandler.from_table(table._table), schema)
    write_deltalake(
        table, pa.Table.from_pylist([{"after": {"offset": 2, "epoch": 7}}], schema), mode="append"
    )
    rows = select("""SELECT * FROM t ORDER BY "after"['offset']""", t=DeltaTable(tmp_path)).to_pylist()
    assert [(row["after"], row["day"]) for row in rows] == [
        ({"offset": 1, "epoch": None}, None),
        ({"offset": 2, "epoch": 7}, None),
    ]


@pytest.mark.parametrize(("held", "renewed"), [("100", "20"), ("500", "500"), (None, None)])
def test_the_log_is_kept_as_now_unless_others_have_said_how(
    tmp_path: Path, held: str | None, renewed: str | None
) -> None:
    interval = "delta.checkpointInterval"
    configuration = {} if held is None else {interval: held}
    write_deltalake(tmp_path, pa.table({"kind": ["offset"]}), configuration=configuration)
    renew_log(DeltaTable(tmp_path), {interval: "20", "delta.logRetentionDuration": "interval 1 hours"})
    table = DeltaTable(tmp_path)
    assert table.metadata().configuration.get(interval) == renewed
    renew_log(table, {interval: "20"})
    assert DeltaTable(tmp_path).version() == (1 if held == "100" else 0), "once is enough"
