"""The files of the tables are small, and other engines than the one that wrote them read the same values."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake
from pyspark.sql import SparkSession

from streaming.tables.files import arrow_options, writer_properties

SCHEMA = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("moment", pa.timestamp("us", tz="UTC")),
        pa.field("value", pa.struct([pa.field("offset", pa.int64()), pa.field("text", pa.string())])),
        pa.field("items", pa.list_(pa.int64())),
        pa.field("bytes", pa.binary()),
    ]
)


def row(offset: int | None, moment: int | None = None) -> dict[str, Any]:
    return {
        "name": "orders",
        "partition": 7,
        "offset": offset,
        "moment": moment,
        "value": None if offset is None else {"offset": offset, "text": "é"},
        "items": [offset],
        "bytes": b"\x00\xff",
    }


LAST_US = 253_402_300_799_999_999  # the end of the year 9999
ROWS = pa.Table.from_pylist(
    [
        row(None),
        row(0, 0),
        row(2**63 - 1, LAST_US),
        row(-(2**63), -LAST_US // 10),
        *(row(offset, 1_700_000_000_000_000 + offset) for offset in range(1_000)),
    ],
    SCHEMA,
)


def by_delta(folder: Path, properties: WriterProperties | None = None) -> Path:
    table = DeltaTable.create(folder, SCHEMA)
    properties = properties or writer_properties(table)
    write_deltalake(table, ROWS, mode="append", writer_properties=properties)
    [file] = folder.glob("*.parquet")
    return file


def by_arrow(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    pq.write_table(ROWS, folder / "rows.parquet", **arrow_options(SCHEMA))
    return folder / "rows.parquet"


Write = Callable[[Path], Path]
both_writers = pytest.mark.parametrize("write", [by_delta, by_arrow])


def encodings(file: Path) -> dict[str, set[str]]:
    columns = pq.read_metadata(file).row_group(0)
    return {
        column.path_in_schema: set(column.encodings)
        for column in (columns.column(number) for number in range(columns.num_columns))
    }


@both_writers
def test_offsets_and_moments_are_written_as_differences_and_names_by_dictionary(
    tmp_path: Path, write: Write
) -> None:
    found = encodings(write(tmp_path))
    assert "DELTA_BINARY_PACKED" in found["offset"] & found["moment"]
    assert "RLE_DICTIONARY" in found["name"] & found["partition"]
    assert not {"RLE_DICTIONARY", "PLAIN_DICTIONARY"} & (found["offset"] | found["value.offset"])


def test_so_does_arrow_write_fields_of_structs_and_elements_of_lists(tmp_path: Path) -> None:
    found = encodings(by_arrow(tmp_path))
    assert "DELTA_BINARY_PACKED" in found["value.offset"] & found["items.list.element"]
    assert "RLE_DICTIONARY" in found["value.text"]


@both_writers
def test_files_are_smaller_than_as_delta_rs_would_write_them(tmp_path: Path, write: Write) -> None:
    plain = by_delta(tmp_path / "plain", WriterProperties(compression="ZSTD"))
    assert write(tmp_path / "ours").stat().st_size < 0.7 * plain.stat().st_size


@both_writers
def test_arrow_reads_what_was_written(tmp_path: Path, write: Write) -> None:
    assert pq.read_table(write(tmp_path)).cast(SCHEMA).equals(ROWS)


@pytest.mark.spark
@both_writers
def test_spark_reads_what_was_written(spark: SparkSession, tmp_path: Path, write: Write) -> None:
    file = write(tmp_path)
    wanted = ROWS.sort_by([("moment", "ascending")])
    found = spark.read.parquet(str(file)).toArrow().select(SCHEMA.names).cast(SCHEMA)
    assert found.sort_by([("moment", "ascending")]).equals(wanted)
