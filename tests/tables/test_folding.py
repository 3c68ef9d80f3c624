"""Folds: whatever they are divided into, one commit after which the table holds what a replay gives."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from storage_faults import parquet_files
from table_batches import Batch, Key, append, as_read, changes_of, completed, group, offset, replay

from streaming.common import pieces
from streaming.common.partitions import offsets_partition
from streaming.tables import folding
from streaming.tables.rows import change_rows
from streaming.tables.select import FilesGoneError
from streaming.tables.tables import Tables

NAMES = [f"g{number}" for number in range(60)]  # some in each bucket
GROUP_TEXTS = ["", "g", "g\0", "g\0h", "\0", "grüße 🐢", "x" * 300, "x" * 299 + "y", "é" * 16_383 + "x"]


def folded(tables: Tables) -> Batch:
    """Return what the folded tables hold; fails where they are not folded up to the newest change."""
    assert tables.folded_up_to() == tables.progress().sequence
    return as_read(tables)


def versions_of(tables: Tables) -> dict[str, int]:
    return {name: tables.delta(name).version() for name in folding.ROWS}


def rows_of_files(tables: Tables) -> list[int]:
    files: list[int] = pa.table(tables.delta("offsets").get_add_actions())["num_records"].to_pylist()
    return files


def history() -> list[Batch]:
    """Three batches in which keys are set, set again, removed, and set after they were removed."""
    first: Batch = {(name, "t", number): offset() for name in NAMES for number in range(3)}
    second: Batch = {(name, "t", 0): offset(committed_offset=2) for name in NAMES[::2]}
    second |= {(name, "t", 1): None for name in NAMES[::3]}
    third: Batch = {(name, "t", 1): offset(committed_offset=3) for name in NAMES[::6]}
    third |= {(name, "t", 0): None for name in NAMES[::4]}
    return [first | {name: group() for name in NAMES}, second | {NAMES[5]: None}, third]


@pytest.fixture(autouse=True)
def in_small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """In files of few rows, too, texts are read as dictionaries."""
    monkeypatch.setattr(folding, "_MOST_BYTES_OF_REPEATED", 1_000_000)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of tables that folds read, one entry for each time."""
    read = list[str]()
    stream = folding.stream

    def noted(sql: str, **tables: Any) -> Any:
        read.extend(tables)
        return stream(sql, **tables)

    monkeypatch.setattr(folding, "stream", noted)
    return read


@pytest.mark.parametrize(
    "folds_after",
    [
        *(
            pytest.param(after, id=name, marks=pytest.mark.more)
            for after, name in (((0, 2), "base"), ((2,), "first"))
        ),
        pytest.param((0, 1, 2), id="each"),
    ],
)
@pytest.mark.parametrize(
    ("bounds", "passes"),
    [
        ({}, 1),
        pytest.param({"_PORTION_BYTES": 1}, 1, marks=pytest.mark.more),  # each bucket a portion
        pytest.param({"_HELD_BYTES": 4_000}, 2, marks=pytest.mark.more),
        ({"_HELD_BYTES": 4_000, "_PORTION_BYTES": 1, "_SPLIT_BYTES": 1, "_FEW_BYTES": 0}, 2),
        ({"_HELD_BYTES": 1}, 16),  # every bucket is larger than may be held
    ],
    ids=["at once", "portions", "passes", "passes and portions", "a pass for each bucket"],
)
def test_a_divided_fold_is_one_commit_of_what_a_replay_gives(
    tables: Tables,
    monkeypatch: pytest.MonkeyPatch,
    reads: list[str],
    bounds: dict[str, int],
    passes: int,
    folds_after: tuple[int, ...],
) -> None:
    for name, value in bounds.items():
        monkeypatch.setattr(folding, name, value)
    for number, batch in enumerate(history()):
        append(tables, batch)
        if number in folds_after:
            before, wanted = versions_of(tables), unfolded_keys(history()[: number + 1], folds_after)
            reads.clear()
            assert tables.fold() == wanted
            assert versions_of(tables) == {name: version + 1 for name, version in before.items()}
            assert folded(tables) == completed(replay(history()[: number + 1]))
            if number == folds_after[0]:
                assert reads.count("changes") >= passes
                assert (reads.count("changes") == len(folding.ROWS)) == (passes == 1)
    assert len(rows_of_files(tables)) == folding.BUCKETS


@pytest.mark.parametrize("parts", [3, *(pytest.param(one, marks=pytest.mark.more) for one in (1, 16))])
def test_a_fold_by_other_processes_is_one_commit_of_what_a_replay_gives(tables: Tables, parts: int) -> None:
    """A batch that comes meanwhile is not in it."""
    meanwhile: Batch = {(NAMES[0], "t", 1): offset(committed_offset=9), NAMES[1]: None}
    batches = [*history(), meanwhile]

    def fold(wanted: folding.BucketsToFold) -> list[folding.FoldedBuckets]:
        if tables.progress().sequence == 3:
            append(tables, meanwhile)
        return [part.folded({}) for part in wanted.divided(parts)]

    append(tables, batches[0])
    tables.fold()
    append(tables, batches[1])
    append(tables, batches[2])
    before = versions_of(tables)
    assert tables.fold(fold) == len({*batches[1], *batches[2]})
    assert versions_of(tables) == {name: version + 1 for name, version in before.items()}
    assert tables.folded_up_to() == 3
    rows = tables.delta("offsets").to_pyarrow_table()
    keys = zip(*(rows[name].to_pylist() for name in folding.KEYS["offsets"]), strict=True)
    assert set(keys) == {key for key in completed(replay(batches[:3])) if isinstance(key, tuple)}
    assert tables.fold(fold) == 2
    assert folded(tables) == completed(replay(batches))


@pytest.mark.parametrize("is_handed_over", [False, True])
def test_of_a_fold_by_other_processes_that_fails_no_file_is_left(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, is_handed_over: bool
) -> None:
    for batch in history():
        append(tables, batch)
    before, left = versions_of(tables), [2]
    write_files = folding.write_files

    def fails_at_second(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            raise RuntimeError("no space left")
        return write_files(*args, **options)

    def fold(wanted: folding.BucketsToFold) -> list[folding.FoldedBuckets]:
        if is_handed_over:
            monkeypatch.setattr(folding.NewFiles, "commit", fails_at_second)
            left[0] = 1
        else:
            monkeypatch.setattr(folding, "_PORTION_BYTES", 1)
            monkeypatch.setattr(folding, "write_files", fails_at_second)
        return [wanted.folded({})]

    with monkeypatch.context() as monkeypatch, pytest.raises(RuntimeError, match="no space left"):
        tables.fold(fold)
    assert versions_of(tables) == before
    assert not parquet_files(Path(tables.root, "offsets"))
    tables.fold()
    assert folded(tables) == completed(replay(history()))


def unfolded_keys(batches: list[Batch], folds_after: tuple[int, ...]) -> int:
    done = max((number + 1 for number in folds_after if number + 1 < len(batches)), default=0)
    return len({key for batch in batches[done:] for key in batch})


def test_rows_are_in_the_file_of_their_bucket(tables: Tables) -> None:
    for batch in history():
        append(tables, batch)
        tables.fold()
    for name in folding.ROWS:
        for row in tables.delta(name).to_pyarrow_table().to_pylist():
            assert row["bucket"] == offsets_partition(row["group"], folding.BUCKETS)


def test_a_fold_of_many_bytes_is_done_piece_by_piece_in_one_commit(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 4_000)
    monkeypatch.setattr(folding, "_FILE_BYTES", 4_000)
    first: Batch = {("g", "t", number): offset(metadata=f"{number:400}") for number in range(40)}
    second: Batch = {key: offset(metadata=f"{key[2]:399}!") for key in first if key[2] % 3 == 0}
    for version, batch in enumerate((first, second), start=1):
        append(tables, batch)
        tables.fold()
        assert tables.delta("offsets").version() == version
        assert max(rows_of_files(tables)) < 10
    assert folded(tables) == completed(first | second)


@pytest.mark.parametrize(
    ("partitions", "repeated"),
    [
        ([1_000], ["group", "topic", "topic_id"]),
        ([1_000, 1], ["group", "topic", "topic_id"]),
        ([1, 1_000], []),
    ],
)
def test_texts_that_repeat_in_the_first_file_are_dictionaries(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, partitions: list[int], repeated: list[str]
) -> None:
    """Also texts of other files and of changes, whether they repeat or not."""
    monkeypatch.setattr(folding, "_MOST_BYTES_OF_REPEATED", 4)
    own = {offsets_partition(name, folding.BUCKETS): name for name in NAMES}
    first: Batch = {
        (own[bucket], "t", number): offset(metadata=f"{number}")
        for bucket, count in enumerate(partitions)
        for number in range(count)
    }
    second: Batch = {(own[bucket], "u", 0): offset(topic_id=None) for bucket in range(len(partitions))}
    append(tables, first)
    tables.fold()
    append(tables, second)
    written, write_files = list[pa.Schema](), folding.write_files

    def noted(table: Any, new: Any, rows: pa.Table, **options: Any) -> None:
        written.append(rows.schema)
        write_files(table, new, rows, **options)

    monkeypatch.setattr(folding, "write_files", noted)
    tables.fold()
    assert folded(tables) == completed(first | second)
    [schema] = (schema for schema in written if "topic" in schema.names)
    assert [field.name for field in schema if pa.types.is_dictionary(field.type)] == repeated


def test_files_that_delta_rs_has_joined_are_folded(tables: Tables) -> None:
    first: Batch = {("g", "t", number): offset(metadata=None, topic_id=None) for number in range(9)}
    second: Batch = {("g", "t\0", 0): offset(), ("g", "t", 3): None, "g": group()}
    append(tables, first)
    tables.fold()
    for name in folding.ROWS:
        tables.delta(name).optimize.compact()
        tables.delta(name).optimize.z_order(["group"])
    append(tables, second)
    tables.fold()
    assert folded(tables) == completed(replay([first, second]))


def test_a_file_without_a_changed_key_keeps_its_rows(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """The changed group is in the same bucket."""
    monkeypatch.setattr(folding, "_PORTION_BYTES", 1)
    same = [name for name in NAMES if offsets_partition(name, folding.BUCKETS) == 3]
    first: Batch = {(name, "t", number): offset(topic_id=None) for name in same[1:] for number in range(3)}
    second: Batch = {(same[0], "t", 0): offset(metadata=None)}
    for batch in (first, second):
        append(tables, batch)
        tables.fold()
    assert folded(tables) == completed(first | second)


def test_a_fold_says_that_a_file_is_gone(tables: Tables) -> None:
    append(tables, {("g", "t", 0): offset()})
    tables.fold()
    append(tables, {("g", "t", 0): offset(committed_offset=9)})
    Path(tables.delta("offsets").file_uris()[0]).unlink()
    with pytest.raises(FilesGoneError, match="not found"):
        tables.fold()


def test_files_of_many_rows_are_sorted_by_group(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "ROW_GROUP_ROWS", 10)
    names = [*GROUP_TEXTS, *(f"group-{number}" for number in range(60))]
    first: Batch = {(name, "t", number): offset() for number in range(3) for name in names}
    second: Batch = {(name, "t", 1): offset(committed_offset=7) for name in names[::2]}
    second |= {(f"a-{number}", "t", 0): offset() for number in range(20)}
    for batch in (first, second):
        append(tables, batch)
        tables.fold()
        groups = [pq.read_table(file)["group"].to_pylist() for file in tables.delta("offsets").file_uris()]
        assert any(len(set(own)) > 1 for own in groups)
        for own in groups:
            assert own == sorted(own, key=str.encode) or len(own) <= 10
    assert folded(tables) == completed(first | second)


def test_buckets_of_few_rows_each_are_not_sorted(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "ROW_GROUP_ROWS", 40)
    sorts = list[int]()
    monkeypatch.setattr(folding, "ranks", lambda groups: sorts.append(len(groups)))
    batch: Batch = {(f"group-{number}", "t", 0): offset() for number in range(160)}
    append(tables, batch)
    tables.fold()
    assert max(rows_of_files(tables)) <= 40 < len(batch)
    assert sorts == []


@pytest.mark.parametrize("held", [folding._HELD_BYTES, 1])
def test_keys_of_any_text_are_distinguished(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(folding, "_HELD_BYTES", held)
    keys: list[Key] = [(name, topic, 0) for name in GROUP_TEXTS for topic in ("t", "t\0", "t\0u")]
    first: Batch = {key: offset(committed_offset=number) for number, key in enumerate(keys)}
    second: Batch = {key: offset(committed_offset=-number) for number, key in enumerate(keys) if number % 2}
    third: Batch = dict.fromkeys(keys[::5])
    for batches in ([first], [second, third]):
        for batch in batches:
            append(tables, batch)
        tables.fold()
    assert folded(tables) == completed(replay([first, second, third]))


@pytest.mark.parametrize("partitions", [(3, 9), (9, 3)])
def test_of_two_offsets_partitions_in_a_batch_the_highest_is_taken(
    tables: Tables, partitions: tuple[int, int]
) -> None:
    append(tables, {("h", "t", 0): offset()})
    batches: list[Batch] = [
        {("g", "t", 0): offset(committed_offset=number, source_partition=number)} for number in partitions
    ]
    newest = tables.progress()
    progress = replace(newest, sequence=newest.sequence + 1, batch_id=newest.batch_id + 1)
    both = pa.concat_tables([changes_of(batch, {}) for batch in batches])
    rows, _ = change_rows(both, sequence=progress.sequence, batch_time=progress.batch_time)
    tables.append_changes(rows, progress, is_batch=True)
    before = as_read(tables)
    assert tables.fold() == 2
    assert folded(tables) == before
    value = before["g", "t", 0]
    assert value is not None
    assert value["committed_offset"] == 9


def test_of_a_fold_that_fails_in_the_middle_nothing_is_seen(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "_PORTION_BYTES", 1)
    first, second, third = history()
    append(tables, first)
    tables.fold()
    append(tables, second)
    append(tables, third)
    before, written = versions_of(tables), list[int]()
    write_files = folding.write_files

    def fails_once(*args: Any, **options: Any) -> Any:
        written.append(1)
        if len(written) == 7:
            raise RuntimeError("as if a thread had no memory")
        return write_files(*args, **options)

    with monkeypatch.context() as failing:
        failing.setattr(folding, "write_files", fails_once)
        with pytest.raises(RuntimeError, match="no memory"):
            tables.fold()
    assert versions_of(tables) == before
    assert as_read(tables) == completed(replay(history()))
    tables.fold()
    assert folded(tables) == completed(replay(history()))
