"""Tables of an older format get what they lack, wherever it stands."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.fs import DeltaStorageHandler

from streaming.model.schemas import TABLES_FORMAT
from streaming.tables.formats import as_held, columns_of, renew_log, upgrade
from streaming.tables.select import select

WIDE = [pa.field("a", pa.int32())]


def in_present_format(path: Path, rows: pa.Table) -> DeltaTable:
    configuration = {"offsetlake.format": str(TABLES_FORMAT)}
    table = DeltaTable.create(path, rows.schema, configuration=configuration, raise_if_key_not_exists=False)
    write_deltalake(table, rows, mode="append")
    return DeltaTable(path)


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


def test_columns_that_a_table_lacks_are_null_in_queries_and_can_be_reckoned_with(tmp_path: Path) -> None:
    table = in_present_format(tmp_path, pa.table({"kind": ["offset", "group"]}))
    kinds = [pa.int32(), pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.date32(), pa.struct(WIDE)]
    lacking = [pa.field(f"c{number}", kind) for number, kind in enumerate(kinds)]
    wanted = pa.schema([lacking[0], pa.field("kind", pa.string()), *lacking[1:]])
    rows = select(f"SELECT {columns_of(table, wanted)} FROM t", t=table)
    assert (
        rows.cast(wanted).drop_columns("kind").to_pylist() == [dict.fromkeys([f.name for f in lacking])] * 2
    )
    view = as_held(table, "t", wanted)
    assert view is not None
    [summed] = select(
        f'SELECT sum("c0") AS n, max("c4") AS t, count(*) AS k FROM ({view})', t=table
    ).to_pylist()
    assert summed == {"n": None, "t": None, "k": 2}
    assert as_held(table, "t", pa.schema([("kind", pa.string())])) is None, "the table itself has all"


def test_a_table_of_the_present_format_gets_columns_that_it_lacks(tmp_path: Path) -> None:
    written = in_present_format(tmp_path, pa.table({"kind": ["offset"]})).version()
    schema = pa.schema([("kind", pa.string()), ("commits", pa.int32())])
    for _ in range(2):
        table = DeltaTable(tmp_path)
        upgrade(table, DeltaStorageHandler.from_table(table._table), schema)
    assert DeltaTable(tmp_path).version() == written + 1, "once is enough"
    assert select('SELECT "commits" FROM t', t=DeltaTable(tmp_path)).to_pylist() == [{"commits": None}]


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
