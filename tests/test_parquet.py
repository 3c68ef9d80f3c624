"""The files of the tables are small, and other engines than the one that wrote them read the same values."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake
from pyspark.sql import SparkSession

from streaming.parquet import writer_properties

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


def written(folder: Path, properties: WriterProperties | None) -> Path:
    table = DeltaTable.create(folder, SCHEMA)
    properties = properties or writer_properties(table)
    write_deltalake(table, ROWS, mode="append", writer_properties=properties)
    [file] = folder.glob("*.parquet")
    return file


def test_offsets_and_moments_are_written_as_differences_and_names_by_dictionary(tmp_path: Path) -> None:
    columns = pq.read_metadata(written(tmp_path, None)).row_group(0)
    encodings = {
        column.path_in_schema: set(column.encodings)
        for column in (columns.column(number) for number in range(columns.num_columns))
    }
    assert "DELTA_BINARY_PACKED" in encodings["offset"] & encodings["moment"]
    assert "RLE_DICTIONARY" in encodings["name"] & encodings["partition"]
    assert not {"RLE_DICTIONARY", "PLAIN_DICTIONARY"} & (encodings["offset"] | encodings["value.offset"])


def test_files_are_smaller_than_as_delta_rs_would_write_them(tmp_path: Path) -> None:
    plain = written(tmp_path / "plain", WriterProperties(compression="ZSTD"))
    assert written(tmp_path / "ours", None).stat().st_size < 0.7 * plain.stat().st_size


def test_arrow_reads_what_was_written(tmp_path: Path) -> None:
    assert pq.read_table(written(tmp_path, None)).cast(SCHEMA).equals(ROWS)


@pytest.mark.spark
def test_spark_reads_what_was_written(spark: SparkSession, tmp_path: Path) -> None:
    file = written(tmp_path, None)
    wanted = ROWS.sort_by([("moment", "ascending")])
    found = spark.read.parquet(str(file)).toArrow().select(SCHEMA.names).cast(SCHEMA)
    assert found.sort_by([("moment", "ascending")]).equals(wanted)
