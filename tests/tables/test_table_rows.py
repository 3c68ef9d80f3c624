"""Rows of the tables: milliseconds become timestamps; what no timestamp can hold is clamped and counted."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_batches import Batch, append, as_read, completed, group, offset, replay

from streaming.common.times import FIRST_MS, LAST_MS
from streaming.model.schemas import (
    ASSIGNED,
    CHANGES,
    CHANGES_IN_BATCH,
    MEMBER,
    QUARANTINE,
    QUARANTINE_IN_BATCH,
)
from streaming.tables import rows as rows_module
from streaming.tables.rows import change_rows, quarantine_rows
from streaming.tables.tables import Tables

MOMENTS = {
    FIRST_MS: datetime(1, 1, 1, tzinfo=UTC),
    -1: datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
    0: datetime(1970, 1, 1, tzinfo=UTC),
    1_700_000_000_123: datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
    LAST_MS: datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
}
CLAMPED = {
    FIRST_MS - 1: FIRST_MS,
    -(2**63): FIRST_MS,
    LAST_MS + 1: LAST_MS,
    2**63 - 1: LAST_MS,
}


def rows_of(*changes: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
    table = pa.Table.from_pylist(list(changes), CHANGES_IN_BATCH)
    rows, clamped = change_rows(table, sequence=7, batch_time=1_700_000_000_123)
    assert rows.schema == CHANGES
    return rows.to_pylist(), clamped


@pytest.mark.parametrize(("milliseconds", "moment"), MOMENTS.items())
def test_milliseconds_become_timestamps(milliseconds: int, moment: datetime) -> None:
    value = {"commit_timestamp": milliseconds, "source_timestamp": milliseconds}
    [row], clamped = rows_of({"source_timestamp": milliseconds, "before": value, "after": value})
    assert (
        row["source_timestamp"]
        == row["after"]["commit_timestamp"]
        == row["before"]["source_timestamp"]
        == moment
    )
    assert clamped == 0


@pytest.mark.parametrize(("milliseconds", "nearest"), CLAMPED.items())
def test_moments_outside_the_calendar_are_clamped_and_counted(milliseconds: int, nearest: int) -> None:
    offset_value = {"commit_timestamp": milliseconds, "expire_timestamp": 0}
    values = {"after": offset_value, "group_after": {"state_timestamp": milliseconds}}
    [row], clamped = rows_of({"source_timestamp": milliseconds, **values})
    assert row["source_timestamp"] == row["after"]["commit_timestamp"] == MOMENTS[nearest]
    assert row["group_after"]["state_timestamp"] == MOMENTS[nearest]
    assert clamped == 3


def test_no_timestamp_is_not_clamped() -> None:
    [row], clamped = rows_of({"source_timestamp": None, "after": {"commit_timestamp": None}})
    assert row["source_timestamp"] is row["after"]["commit_timestamp"] is None
    assert clamped == 0


def test_absent_value_is_not_a_value_of_nulls() -> None:
    absent, nulls = rows_of({"after": None}, {"after": {}})[0]
    assert absent["after"] is None
    assert nulls["after"] is not None
    assert set(nulls["after"].values()) == {None}


def test_a_hidden_timestamp_is_not_counted() -> None:
    struct = CHANGES_IN_BATCH.field("after").type
    children = [
        pa.array([LAST_MS + 1]) if field.name == "commit_timestamp" else pa.nulls(1, field.type)
        for field in struct
    ]
    table = pa.Table.from_pylist([{}], CHANGES_IN_BATCH)
    hidden = pa.StructArray.from_arrays(children, fields=list(struct), mask=pa.array([True]))
    table = table.set_column(table.schema.get_field_index("after"), "after", hidden)
    rows, clamped = change_rows(table, sequence=1, batch_time=0)
    assert rows["after"].to_pylist() == [None]
    assert clamped == 0


def test_every_row_carries_sequence_time_and_day_of_its_batch() -> None:
    rows, _ = rows_of({"group": "a"}, {"group": "b"})
    assert [(row["group"], row["sequence"], row["day"]) for row in rows] == [
        ("a", 7, date(2023, 11, 14)),
        ("b", 7, date(2023, 11, 14)),
    ]
    assert {row["batch_time"] for row in rows} == {MOMENTS[1_700_000_000_123]}


def test_no_rows_are_rows_too() -> None:
    assert rows_of() == ([], 0)


@settings(deadline=None)
@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=5), st.integers(0, 2))
def test_sliced_and_chunked_input_is_right(moments: list[int | None], cut: int) -> None:
    changes = pa.Table.from_pylist(
        [{"source_timestamp": moment, "after": {"commit_timestamp": moment}} for moment in moments],
        CHANGES_IN_BATCH,
    )
    chunked = pa.concat_tables([changes.slice(0, cut), changes.slice(cut)])
    rows, clamped = change_rows(chunked, sequence=1, batch_time=0)
    expected = [None if moment is None else min(max(moment, FIRST_MS), LAST_MS) for moment in moments]
    inside = [{"source_timestamp": moment, "after": {"commit_timestamp": moment}} for moment in expected]
    again, _ = change_rows(pa.Table.from_pylist(inside, changes.schema), sequence=1, batch_time=0)
    assert rows.to_pylist() == again.to_pylist()
    assert clamped == 2 * sum(a != b for a, b in zip(moments, expected, strict=True))


def test_quarantine_keeps_bytes_and_reason() -> None:
    record = {
        "key": b"\0\1",
        "value": b"",
        "reason": "key: expected more",
        "field": "group",
        "at_byte": 2,
        "source_partition": 3,
        "source_offset": 4,
        "source_timestamp": 2**63 - 1,
    }
    failed = pa.Table.from_pylist([record], QUARANTINE_IN_BATCH)
    rows, clamped = quarantine_rows(failed, sequence=7, batch_time=0)
    assert rows.schema == QUARANTINE
    [row] = rows.to_pylist()
    assert {name: row[name] for name in record} == {**record, "source_timestamp": MOMENTS[LAST_MS]}
    assert clamped == 1


@pytest.mark.parametrize("many_rows", [0, 1_000])
def test_shards_of_any_number_and_size_become_the_same_rows(
    monkeypatch: pytest.MonkeyPatch, many_rows: int
) -> None:
    monkeypatch.setattr(rows_module, "SMALL_TABLE_ROWS", many_rows)
    shards = [
        pa.Table.from_pylist(
            [{"source_offset": offset, "source_timestamp": LAST_MS + offset} for offset in range(count)],
            CHANGES_IN_BATCH,
        )
        for count in (2, 0, 3)
    ]
    rows, clamped = change_rows(pa.concat_tables(shards), sequence=7, batch_time=0)
    assert rows["source_offset"].to_pylist() == [0, 1, 0, 1, 2]
    assert set(rows["sequence"].to_pylist()) == {7}
    assert clamped == 3
    assert rows.schema == CHANGES


def newest_file(tables: Tables) -> Path:
    return max(Path(tables.root, "changes").rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)


ASSIGNMENT = dict.fromkeys(field.name for field in ASSIGNED) | {"topic": "t", "partitions": [1]}
MEMBERS = [dict.fromkeys(field.name for field in MEMBER) | {"member_id": "m", "assignment": [ASSIGNMENT]}]
WITH_MEMBER = group(members=MEMBERS)


@pytest.mark.parametrize(
    ("batch", "live", "expected"),
    [
        ({("g", "t", 0): offset()}, {}, set()),
        ({("g", "t", 0): offset(), "g": group()}, {}, {"group_after"}),
        ({("g", "t", 0): offset(), "g": WITH_MEMBER}, {"g": group()}, {"group_before", "group_after"}),
        ({"g": None}, {"g": group()}, {"group_before"}),
        ({"g": None}, {}, set()),
    ],
)
def test_files_have_the_columns_of_groups_that_a_row_fills(
    tables: Tables, batch: Batch, live: Batch, expected: set[str]
) -> None:
    if live:
        append(tables, live)
    append(tables, batch, live=live)
    columns = pq.read_schema(newest_file(tables)).names
    assert {name for name in columns if name.startswith("group_")} == expected
    assert as_read(tables) == completed(replay([live, batch]))
