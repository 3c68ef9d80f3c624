"""Rows that are appended are in the table, in one commit, and the log says how to pass them over."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.fs import DeltaStorageHandler
from storage_faults import parquet_files

from streaming.tables import files as files_module
from streaming.tables.files import ROW_GROUP_ROWS, NewFiles, RecentFiles, statistics, write_files
from streaming.tables.select import select

SCHEMA = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("moment", pa.timestamp("us", tz="UTC")),
        pa.field("value", pa.struct([pa.field("offset", pa.int64()), pa.field("text", pa.string())])),
        pa.field("bytes", pa.binary()),
        pa.field("bucket", pa.int32()),
    ]
)


def rows(count: int, buckets: int = 1) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "name": f"g{number % 7}",
                "offset": number if number % 5 else None,
                "moment": datetime(2026, 1, 1, microsecond=1_000 * (number % 1_000), tzinfo=UTC),
                "value": {"offset": number, "text": "é"} if number % 3 else None,
                "bytes": b"\xff",
                "bucket": number % buckets,
            }
            for number in range(count)
        ],
        SCHEMA,
    )


def appended(
    root: Path, appended: pa.Table, *, row_group_rows: int = ROW_GROUP_ROWS, **commit: Any
) -> DeltaTable:
    table = DeltaTable.create(root, SCHEMA, partition_by=["bucket"], mode="ignore")
    with NewFiles(DeltaStorageHandler(table.table_uri)) as new:
        write_files(table, new, appended, row_group_rows=row_group_rows)
        new.commit(table, [], CommitProperties(**commit))
    table.update_incremental()
    return table


def in_table(table: DeltaTable) -> pa.Table:
    found = select("SELECT * FROM t", t=table)
    return found.select(SCHEMA.names).cast(SCHEMA).sort_by([("bucket", "ascending"), ("moment", "ascending")])


def files(table: DeltaTable) -> list[dict[str, Any]]:
    return pa.table(table.get_add_actions(flatten=True)).to_pylist()


@pytest.mark.parametrize("buckets", [1, 3])
def test_rows_are_in_the_table_by_partition(tmp_path: Path, buckets: int) -> None:
    wanted = rows(100, buckets)
    table = appended(tmp_path, wanted)
    assert in_table(table).equals(wanted.sort_by([("bucket", "ascending"), ("moment", "ascending")]))
    assert sorted(file["partition.bucket"] for file in files(table)) == list(range(buckets))
    for file in files(table):
        assert file["path"].startswith(f"bucket={file['partition.bucket']}/")
        assert "bucket" not in pq.read_schema(tmp_path / file["path"]).names


def test_dictionaries_are_written_as_plain_texts_are(tmp_path: Path) -> None:
    """Also with texts that do not occur, in the file or in one of its row groups."""
    texts = pa.array(["0", *(f"g{number:02}\0" for number in range(30)), "zz"])
    codes = pa.array([*range(1, 26), None], pa.int32())
    encoded = pa.DictionaryArray.from_arrays(codes, texts)
    plain = rows(26).set_column(0, "name", encoded.cast(pa.string()))
    parts = pa.chunked_array([encoded[:7], encoded[7:].cast(pa.string()).dictionary_encode()])
    written = [
        appended(tmp_path / name, table, row_group_rows=10)
        for name, table in (("plain", plain), ("encoded", plain.set_column(0, "name", parts)))
    ]
    found = [pq.ParquetFile(table.file_uris()[0]) for table in written]
    assert len({str(file.schema_arrow) for file in found}) == 1
    assert found[1].read().equals(found[0].read())
    assert in_table(written[1]).equals(in_table(written[0]))
    logged = [
        {k: v for k, v in files(table)[0].items() if k[:3] in ("min", "max", "nul")} for table in written
    ]
    assert logged[0] == logged[1]
    assert (logged[1]["min.name"], logged[1]["max.name"], logged[1]["null_count.name"]) == (
        "g00\0",
        "g24\0",
        1,
    )
    for number in range(3):
        columns = [file.metadata.row_group(number).column(0) for file in found]
        assert columns[0].statistics.equals(columns[1].statistics)
        assert columns[0].total_uncompressed_size == columns[1].total_uncompressed_size  # no other texts


def test_statistics_are_of_the_texts_that_occur() -> None:
    encoded = pa.DictionaryArray.from_arrays(pa.array([2, 1, None]), pa.array(["a", "b", "c", "d"]))
    assert statistics(pa.table({"name": encoded}), ["name"]) == {
        "numRecords": 3,
        "minValues": {"name": "b"},
        "maxValues": {"name": "c"},
        "nullCount": {"name": 1},
    }


def test_many_rows_of_one_partition_become_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "ROWS_WORTH_A_FILE", 10)
    monkeypatch.setattr(files_module, "usable_cores", lambda: 3)
    wanted = rows(100)
    table = appended(tmp_path, wanted)
    assert sorted(file["num_records"] for file in files(table)) == [33, 33, 34]
    assert in_table(table).equals(wanted)
    assert table.version() == 1


def test_several_partitions_are_one_commit_with_what_it_notes(tmp_path: Path) -> None:
    table = appended(
        tmp_path,
        rows(10, buckets=5),
        custom_metadata={"offsetlake.progress": "7"},
        app_transactions=[Transaction("job", 3)],
    )
    assert (table.version(), table.transaction_version("job")) == (1, 3)
    assert table.history(1)[0]["offsetlake.progress"] == "7"


def test_no_rows_are_a_commit_all_the_same(tmp_path: Path) -> None:
    table = appended(tmp_path, SCHEMA.empty_table(), app_transactions=[Transaction("job", 3)])
    assert (table.version(), table.transaction_version("job"), files(table)) == (1, 3, [])


def test_the_table_stays_as_it_was_if_a_file_cannot_be_written(tmp_path: Path) -> None:
    table, held = appended(tmp_path, rows(10)), parquet_files(tmp_path)
    (tmp_path / "bucket=1").write_text("in the way")
    with pytest.raises(OSError, match="bucket=1"):
        appended(tmp_path, rows(10, buckets=2))
    table.update_incremental()
    assert (table.version(), len(in_table(table))) == (1, 10)
    assert parquet_files(tmp_path) == held


def test_the_log_has_bounds_of_texts_numbers_and_moments(tmp_path: Path) -> None:
    [file] = files(appended(tmp_path, rows(10)))
    bounds = {name: (file[f"min.{name}"], file[f"max.{name}"]) for name in ("name", "offset", "moment")}
    assert bounds == {
        "name": ("g0", "g6"),
        "offset": (1, 9),
        "moment": (
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime(2026, 1, 1, microsecond=9_000, tzinfo=UTC),
        ),
    }
    assert file["null_count.offset"] == 2
    assert "min.bytes" not in file


def test_a_table_may_name_the_columns_whose_bounds_are_noted(tmp_path: Path) -> None:
    named = {"delta.dataSkippingStatsColumns": "offset"}
    DeltaTable.create(tmp_path, SCHEMA, partition_by=["bucket"], configuration=named)
    appended(tmp_path, rows(10))
    log = (tmp_path / "_delta_log" / f"{1:020}.json").read_text().splitlines()
    [added] = [json.loads(line)["add"] for line in log if "add" in json.loads(line)]
    assert json.loads(added["stats"])["minValues"] == {"offset": 1}


def test_statistics_leave_out_bounds_of_what_is_null_throughout_alone() -> None:
    told = pa.table({"long": ["a", "b" * 257], "empty": pa.nulls(2, pa.string()), "one": [None, 5]})
    assert statistics(told, told.column_names) == {
        "numRecords": 2,
        "minValues": {"long": "a", "one": 5},
        "maxValues": {"long": "b" * 255 + "c", "one": 5},
        "nullCount": {"long": 0, "empty": 2, "one": 1},
    }


@pytest.mark.parametrize(
    "text", ["\0", "\x7f\u2028", '"\\', "\U0001f422", "\U00020bb7", "\U000e0041", "\U0010ffff"]
)
def test_delta_rs_reads_the_bounds_of_texts_as_they_were_meant(tmp_path: Path, text: str) -> None:
    names = pa.array([text, text * 2])
    [file] = files(appended(tmp_path, rows(2).set_column(0, "name", names)))
    assert (file["min.name"], file["max.name"]) == (text, text * 2)


@pytest.mark.parametrize(
    ("moment", "written"),
    [
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000Z"),
        (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), "9999-12-31T23:59:59.999Z"),
    ],
)
def test_moments_are_written_as_other_engines_read_them(moment: datetime, written: str) -> None:
    told = pa.table({"moment": pa.array([moment], pa.timestamp("us", tz="UTC"))})
    assert statistics(told, ["moment"])["minValues"] == {"moment": written}


def test_files_that_cannot_hold_a_row_are_passed_over(tmp_path: Path) -> None:
    table = appended(tmp_path, rows(10))
    later = rows(10).set_column(1, "offset", pa.array(range(100, 110), pa.int64()))
    appended(tmp_path, later)
    table.update_incremental()
    for file in files(table):
        if file["max.offset"] < 100:
            (tmp_path / file["path"]).unlink()
    found = select('SELECT "offset" FROM t WHERE "offset" > 105', t=table)
    assert sorted(found["offset"].to_pylist()) == [106, 107, 108, 109]


def test_rows_of_recent_files_are_held_up_to_a_size() -> None:
    read = list[str]()

    def rows(name: str) -> list[pa.RecordBatch]:
        def reading() -> list[pa.RecordBatch]:
            read.append(name)
            return [pa.record_batch({"number": pa.array([len(name)] * 1_000, pa.int64())})]

        return recent.rows(name, reading)

    recent = RecentFiles(3 * (8_000 + 4_096))
    for name in ("a", "bb", "ccc", "a", "dddd"):  # which is one too many: bb was asked for longest ago
        assert rows(name)[0]["number"][0].as_py() == len(name)
    for name in ("a", "dddd", "ccc", "bb"):
        assert rows(name)[0]["number"][0].as_py() == len(name)
    assert read == ["a", "bb", "ccc", "dddd", "bb"]
    small = RecentFiles(1_000)
    assert [len(small.rows("a", lambda: rows("a"))[0]) for _ in range(2)] == [1_000] * 2  # read, but not held
