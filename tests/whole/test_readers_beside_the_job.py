"""Questions asked while batches are appended, folded, compacted and cleaned up at full speed."""

from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from new_tables import new_tables
from table_batches import Batch, Key, append, group, offset, running

from streaming.common.times import from_ms
from streaming.model.progress import PartitionEnds, Progress
from streaming.queries.offsets import OffsetQueries
from streaming.queries.sql import run_sql
from streaming.settings.model import OFFSETS_TOPIC
from streaming.tables.tables import Tables

T0 = 1_700_000_000_000
BATCHES = 24
KEYS: list[Key] = [("a", "t", 0), ("b", "t", 0), ("c", "t", 0)]


def batch_of(number: int) -> Batch:
    """A batch that brings every offset and the group to this number."""
    offsets: Batch = {key: offset(committed_offset=number) for key in KEYS}
    return {**offsets, "a": group(generation_or_epoch=number)}


def write_and_maintain(tables: Tables) -> None:
    """Append, fold now and then, and remove at once every file that the newest version does not need."""
    for number in range(1, BATCHES + 1):
        append(tables, batch_of(number), live=batch_of(number - 1) if number > 1 else {}, now=T0 + number)
        if number % 2 == 0:
            tables.fold()
        if number % 4 == 0:
            progress = tables.progress()
            for name in ("changes", "offsets", "groups"):
                table = DeltaTable(f"{tables.root}/{name}")
                table.optimize.compact()
                table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
            tables.append_changes(
                tables.read_changes().slice(0, 0), progress, is_batch=False, is_observation=False
            )


def test_no_question_fails_or_sees_part_of_a_batch(tmp_path: Path) -> None:
    tables = new_tables(tmp_path)
    loaded = Progress().with_positions({3: 0}).with_ends({3: PartitionEnds(0, 0)}, now=0)
    append(tables, {}, now=T0, topic=OFFSETS_TOPIC, partitions=loaded.partitions)
    queries = OffsetQueries(tables)
    asked, newest = 0, 0
    with running(lambda: write_and_maintain(tables)) as is_running:
        while is_running():
            number = check_live(queries)
            assert number >= newest
            newest = number
            check_past(queries, number)
            check_sql(tables)
            asked += 1
    assert check_live(queries) == BATCHES
    assert asked > 1


def check_live(queries: OffsetQueries) -> int:
    """Ask for offsets and groups; return the number that all of them have."""
    fetched = queries.fetch_offsets({"a": None, "b": [("t", 0)], "c": None})
    offsets = [one.committed_offset for own in fetched.groups.values() for one in own.partitions]
    number = max(fetched.as_of.progress.sequence - 1, 0)
    assert offsets == [number or -1] * 3 if number else set(offsets) <= {-1}
    listed = queries.list_groups()
    assert listed.rows["generation_or_epoch"].to_pylist() == numbers_of(listed, 1)
    return number


def check_past(queries: OffsetQueries, number: int) -> None:
    """Ask for the batch half way back."""
    moment = from_ms(T0 + number // 2)
    answer = queries.list_offsets(as_of=moment)
    assert answer.as_of.progress.sequence == number // 2 + 1
    assert answer.rows["committed_offset"].to_pylist() == numbers_of(answer, 3)


def check_sql(tables: Tables) -> None:
    query = "SELECT count(DISTINCT committed_offset) AS n FROM live_offsets"
    assert run_sql(tables, query).rows["n"].to_pylist()[0] <= 1


def numbers_of(answer: Any, count: int) -> list[int]:
    number = answer.as_of.progress.sequence - 1
    return [number] * count if number else []
