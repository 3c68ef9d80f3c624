"""The replica of an offsets partition equals a plain replay, however the log is cut into batches."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import count, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest
from decoded_records import CLASSIC_VALUE, EPOCH_VALUE, group_document
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plain_replay import Entry, Key, PlainReplay, Record
from table_batches import value_of

from streaming.common import pieces
from streaming.model.schemas import PACKED_RECORDS
from streaming.packing.superseded import drop_superseded
from streaming.state import concerned, encoded
from streaming.state.changes import HIDDEN, TOMBSTONED, TOMBSTONED_AFTER_CHANGE
from streaming.state.group_records import GroupEvent, GroupRecords
from streaming.state.groups import SIMPLE, Group, describe
from streaming.state.layers import LayerChange, Layers
from streaming.state.replay import Shard, replay

MEMBER_VALUE = {
    "instanceId": None,
    "rackId": None,
    "clientId": "c",
    "clientHost": "/h",
    "subscribedTopicNames": ["t"],
    "subscribedTopicRegex": "",
}


@pytest.fixture(autouse=True, params=["small shard", "large shard"], scope="module")
def size_of_shard(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test holds for shards that are merged whole, and for those of which some entries are selected,
    from a base that is encoded now and then."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "large shard":
            numbers, after = count(), Layers.after

            def rewritten_now_and_then(self: Layers, changes: Sequence[LayerChange]) -> Layers:
                found = after(self, changes)
                return found.rewritten() if changes and next(numbers) % 3 else found

            patch.setattr(concerned, "LOOKED_THROUGH", 0)
            patch.setattr(encoded, "_LEAST_REPEATED", 0)
            patch.setattr(Layers, "after", rewritten_now_and_then)
        yield


def to_table(records: list[Record]) -> pa.Table:
    rows = [
        {**asdict(record), "source_timestamp": 1_000 + record.source_offset, "commit_timestamp": 5}
        for record in records
    ]
    return pa.Table.from_pylist(rows, PACKED_RECORDS)


def commit(offset: int, committed: int, group: str = "g", topic: str = "t", partition: int = 0) -> Record:
    return Record(
        source_offset=offset,
        group=group,
        topic=topic,
        partition=partition,
        committed_offset=committed,
        metadata="",
    )


def tombstone(offset: int, group: str = "g", topic: str = "t", partition: int = 0) -> Record:
    return Record(source_offset=offset, group=group, topic=topic, partition=partition, is_tombstone=True)


def unreadable(offset: int, group: str = "g", topic: str = "t", partition: int = 0) -> Record:
    return Record(
        source_offset=offset, group=group, topic=topic, partition=partition, error_kind="unsupported_version"
    )


def group_record(
    offset: int, group: str = "g", record_type: int = 2, part: str = "", *, ends: bool = False
) -> Record:
    value = {2: CLASSIC_VALUE, 3: EPOCH_VALUE, 5: MEMBER_VALUE}[record_type]
    return Record(
        source_offset=offset,
        record_type=record_type,
        group=group,
        topic=None,
        partition=None,
        part=part,
        is_tombstone=ends,
        document=group_document(record_type, group, part, None if ends else value),
    )


def unreadable_group_record(offset: int, group: str = "g") -> Record:
    return Record(
        source_offset=offset,
        record_type=2,
        group=group,
        topic=None,
        partition=None,
        error_kind="unsupported_version",
    )


def garbage(offset: int) -> Record:
    return Record(
        source_offset=offset, record_type=99, group=None, topic=None, partition=None, error_kind="malformed"
    )


class Reader:
    """Keeps what a reader of the change feed knows, and checks each change against it."""

    def __init__(self) -> None:
        self.commits = Counter[Key]()
        self.offsets: dict[Key, dict[str, Any]] = {}
        self.groups: dict[str, dict[str, Any]] = {}

    def apply(self, changes: pa.Table) -> None:
        seen = set()
        for change in changes.to_pylist():
            held: dict[Any, dict[str, Any]] = self.offsets if change["kind"] == "offset" else self.groups
            key = (
                (change["group"], change["topic"], change["partition"])
                if change["kind"] == "offset"
                else change["group"]
            )
            assert (change["kind"], key) not in seen, "at most one change per key"
            seen.add((change["kind"], key))
            after = value_of(change, "after")
            assert value_of(change, "before") == held.get(key)
            assert (change["op"] == "set") == (after is not None)
            assert (change["commits"] is None) == (change["kind"] == "group")
            if change["commits"]:
                self.commits[key] += change["commits"]
            assert (change["cause"] is not None) == (change["op"] == "remove" and change["kind"] == "offset")
            if after is None:
                held.pop(key, None)
            else:
                held[key] = after


def replay_in_batches(records: list[Record], cuts: list[int], *, early_drop: bool) -> tuple[Shard, Reader]:
    shard, reader = Shard.empty(), Reader()
    bounds = sorted({0, len(records), *(cut % (len(records) + 1) for cut in cuts)})
    for start, stop in pairwise(bounds):
        table = to_table(records[start:stop])
        if early_drop:  # in two pieces, as two Arrow batches of one task would be
            half = len(table) // 2
            table = pa.concat_tables([drop_superseded(table[:half]), drop_superseded(table[half:])])
        shard, changes = replay(shard, table)
        reader.apply(changes)
    return shard, reader


def seen_by_plain_replay(records: list[Record]) -> tuple[dict[Key, Entry], dict[str, dict[str, Any]]]:
    plain = PlainReplay()
    for record in records:
        plain.apply(record)
    described = {
        name: (describe(_events(kept)) or SIMPLE).as_row() if kept else SIMPLE.as_row()
        for name, kept in plain.visible_groups().items()
    }
    return plain.visible_offsets(), described


def _events(kept: dict[tuple[int, str], Record]) -> GroupRecords:
    return {
        key: GroupEvent(
            source_partition=record.source_partition,
            group=str(record.group),
            record_type=record.record_type,
            part=record.part,
            value=json.dumps(json.loads(str(record.document))["value"]["data"], separators=(",", ":")),
            source_offset=record.source_offset,
            source_timestamp=1_000 + record.source_offset,
        )
        for key, record in kept.items()
    }


def assert_same(records: list[Record], cuts: list[int], *, early_drop: bool = False) -> Reader:
    shard, reader = replay_in_batches(records, cuts, early_drop=early_drop)
    assert_told(reader, records)
    visible = shard.entries.table.filter(pa.compute.invert(shard.entries.table["hidden"]))
    assert len(visible) == len(reader.offsets)
    return reader


def assert_told(reader: Reader, records: list[Record]) -> None:
    assert reader.commits == Counter(commits_in(records))
    offsets, described = seen_by_plain_replay(records)
    fields = Entry.__dataclass_fields__
    assert {
        key: Entry(**{name: row[name] for name in fields}) for key, row in reader.offsets.items()
    } == offsets
    group_fields = Group.__dataclass_fields__
    told = {name: {f: row[f] for f in group_fields} for name, row in reader.groups.items()}
    assert as_lists(told) == as_lists(described)


def as_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: as_lists(one) for name, one in value.items()}
    return [as_lists(one) for one in value] if isinstance(value, list | tuple) else value


def commits_in(records: list[Record]) -> Iterator[Key]:
    """Give the key of every commit: also of those whose value cannot be read, not of tombstones."""
    for record in records:
        if record.record_type in (0, 1) and record.group is not None and not record.is_tombstone:
            yield record.group, str(record.topic), int(record.partition or 0)


def test_what_is_too_large_for_one_array_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "ARRAY_BYTES", 10_000)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 2_000)

    def large(offset: int, partition: int) -> Record:
        return replace(commit(offset, offset, partition=partition), metadata="m" * 400)

    shard, told = replay(Shard.empty(), to_table([large(n, n) for n in range(40)]))
    _, told_anew = replay(shard, to_table([large(n + 40, n) for n in range(40)]))
    assert [row["after"]["committed_offset"] for row in told.to_pylist() if row["topic"]] == list(range(40))
    assert [row["before"]["committed_offset"] for row in told_anew.to_pylist()] == list(range(40))
    assert max(chunk.nbytes for chunk in told_anew["before"].chunks) < 10_000


NAMES = st.sampled_from(["", "g", "g\0", "g\0h", "\0", "ü-😀"])
TOPICS = st.sampled_from(["t", "t\0", "t\0u", ""])
PARTITIONS = st.sampled_from([0, 1, -1, 2**31 - 1])


@st.composite
def histories(draw: st.DrawFn) -> list[Record]:
    steps = draw(st.lists(st.integers(1, 3), max_size=40))
    offset, records = 0, []
    for step in steps:
        offset += step  # compaction, markers and aborted records leave gaps
        kind = draw(st.sampled_from("ccccctttugggeex!"))
        group, topic, partition = draw(NAMES), draw(TOPICS), draw(PARTITIONS)
        match kind:
            case "c":
                record = commit(offset, draw(st.integers(0, 5)), group, topic, partition)
            case "t":
                record = tombstone(offset, group, topic, partition)
            case "u":
                record = unreadable(offset, group, topic, partition)
            case "x":
                record = unreadable_group_record(offset, group)
            case "!":
                record = garbage(offset)
            case _:
                record_type = draw(st.sampled_from([2, 2, 3, 5]))
                part = draw(st.sampled_from(["m1", "m2"])) if record_type == 5 else ""
                record = group_record(offset, group, record_type, part, ends=kind == "e")
        if record.record_type == 1 and draw(st.booleans()):
            record = Record(**{**asdict(record), "record_type": 0})
        records.append(record)
    return records


@settings(max_examples=max(75, settings().max_examples))
@given(records=histories(), cuts=st.lists(st.integers(0, 40), max_size=4), early_drop=st.booleans())
@example(
    records=[commit(1, 1), group_record(2, ends=True), commit(3, 7, topic="u"), tombstone(4, topic="u")],
    cuts=[2],
    early_drop=True,
)
def test_any_history_in_any_batches_equals_a_plain_replay(
    records: list[Record], cuts: list[int], early_drop: bool
) -> None:
    assert_same(records, cuts, early_drop=early_drop)


@settings(max_examples=max(40, settings().max_examples))
@given(
    logs=st.lists(histories(), min_size=2, max_size=3),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    early_drop=st.booleans(),
)
@example(logs=[[commit(1, 1)], [tombstone(9)]], cuts=[], early_drop=False)
@example(logs=[[commit(5, 1)], [group_record(9, ends=True)], [commit(1, 2)]], cuts=[], early_drop=True)
def test_each_offsets_partition_of_a_shard_is_replayed_as_if_it_were_alone(
    logs: list[list[Record]], cuts: list[int], early_drop: bool
) -> None:
    shard, readers = Shard.empty(), [Reader() for _ in logs]
    for start, stop in pairwise(sorted({0, *cuts, 40})):
        placed = [
            replace(record, source_partition=number)
            for number, log in enumerate(logs)
            for record in log[start:stop]
        ]
        table = to_table(placed[::-1])
        if early_drop:
            table = drop_superseded(table[::-1])
        shard, changes = replay(shard, table)
        for number, reader in enumerate(readers):
            reader.apply(changes.filter(pa.compute.equal(changes["source_partition"], number)))
    for reader, log in zip(readers, logs, strict=True):
        assert_told(reader, log)


def test_the_later_record_wins_and_not_the_larger_offset() -> None:
    reader = assert_same([commit(1, 900), commit(2, 5)], cuts=[1])
    assert reader.offsets["g", "t", 0]["committed_offset"] == 5


def test_records_out_of_order_within_a_batch_are_put_in_log_order() -> None:
    _, changes = replay(Shard.empty(), to_table([commit(9, 2), commit(4, 1)]))
    assert (
        changes.filter(pa.compute.equal(changes["kind"], "offset"))["after"][0]["committed_offset"].as_py()
        == 2
    )


def test_key_types_0_and_1_address_one_entry() -> None:
    old = Record(**{**asdict(commit(1, 10)), "record_type": 0})
    reader = assert_same([old, tombstone(2)], cuts=[1])
    assert reader.offsets == {}


def test_a_tombstone_for_an_entry_that_is_not_held_is_reported_without_a_before() -> None:
    """A first run of the batch may have seen a value, now compacted away, and made a group of it."""
    _, changes = replay(Shard.empty(), to_table([tombstone(7)]))
    told = ("kind", "op", "before", "after", "group_before", "group_after", "source_offset")
    assert [tuple(change[name] for name in told) for change in changes.to_pylist()] == [
        ("offset", "remove", None, None, None, None, 7),
        ("group", "remove", None, None, None, None, 7),
    ]


def test_a_tombstone_for_an_entry_that_is_not_held_leaves_a_group_with_records_alone() -> None:
    shard, _ = replay(Shard.empty(), to_table([group_record(1)]))
    _, changes = replay(shard, to_table([tombstone(7)]))
    assert changes["kind"].to_pylist() == ["offset"]


def test_a_group_tombstone_hides_offsets_and_a_later_commit_shows_them_all_again() -> None:
    history = [commit(1, 10), commit(2, 20, partition=1), group_record(3, ends=True)]
    assert assert_same(history, cuts=[2]).offsets == {}
    reader = assert_same([*history, commit(4, 30, topic="u")], cuts=[2, 3])
    assert {key: row["committed_offset"] for key, row in reader.offsets.items()} == {
        ("g", "t", 0): 10,
        ("g", "t", 1): 20,
        ("g", "u", 0): 30,
    }


def test_a_group_record_that_cannot_be_read_shows_the_groups_offsets_again() -> None:
    history = [group_record(1), commit(2, 10), group_record(3, ends=True), unreadable_group_record(4)]
    for cuts in ([], [3]):
        reader = assert_same(history, cuts=cuts)
        assert reader.offsets["g", "t", 0]["committed_offset"] == 10
        assert reader.groups["g"]["state"] == "Empty"


def test_an_upgrade_in_one_append_keeps_offsets_visible_without_a_change() -> None:
    before = [group_record(1), commit(2, 10)]
    upgrade = [
        group_record(3, ends=True),
        group_record(4, record_type=5, part="m1"),
        group_record(5, record_type=3),
    ]
    _, shard_changes = replay(replay(Shard.empty(), to_table(before))[0], to_table(upgrade))
    kinds = shard_changes["kind"].to_pylist()
    assert kinds == ["group"]
    assert shard_changes["group_after"][0]["type"].as_py() == "consumer"


def test_an_unreadable_commit_keeps_the_last_readable_value_and_says_since_when() -> None:
    reader = assert_same([commit(1, 10), unreadable(2), unreadable(3)], cuts=[1, 2])
    row = reader.offsets["g", "t", 0]
    assert (row["committed_offset"], row["unreadable_source_offset"], row["source_offset"]) == (10, 2, 1)
    assert_same([commit(1, 10), unreadable(2), unreadable(3)], cuts=[])
    reader = assert_same([commit(1, 10), unreadable(2), commit(3, 11)], cuts=[1, 2])
    assert reader.offsets["g", "t", 0]["unreadable_source_offset"] is None


def test_dropping_keeps_the_newest_value_and_the_newest_tombstone_of_each_key() -> None:
    records = [
        commit(1, 1),
        commit(2, 2),
        tombstone(3),
        tombstone(4),
        commit(5, 3),
        garbage(6),
        unreadable(7),
    ]
    kept = drop_superseded(to_table(records))
    assert kept["source_offset"].to_pylist() == [4, 5, 6, 7]


REMOVALS: dict[str, tuple[list[Record], str]] = {
    "tombstone": ([tombstone(3)], TOMBSTONED),
    "tombstones of offset and group": ([tombstone(3), group_record(4, ends=True)], TOMBSTONED),
    "another offset was committed before": ([commit(3, 1, partition=9), tombstone(4)], TOMBSTONED),
    "another group changed before": ([group_record(3, "h"), tombstone(4)], TOMBSTONED),
    "commit before": ([commit(3, 1), tombstone(4)], TOMBSTONED_AFTER_CHANGE),
    "commit before that cannot be read": ([unreadable(3), tombstone(4)], TOMBSTONED_AFTER_CHANGE),
    "the group changed before": ([group_record(3), tombstone(4)], TOMBSTONED_AFTER_CHANGE),
    "the group changed unreadably": ([unreadable_group_record(3), tombstone(4)], TOMBSTONED_AFTER_CHANGE),
    "tombstone of the group alone": ([group_record(3, ends=True)], HIDDEN),
    "commit, then tombstone of the group alone": ([commit(3, 1), group_record(4, ends=True)], HIDDEN),
}


@pytest.mark.parametrize(("batch", "word"), REMOVALS.values(), ids=REMOVALS.keys())
def test_a_removal_says_what_the_shard_knows_of_it(batch: list[Record], word: str) -> None:
    shard, _ = replay(Shard.empty(), to_table([group_record(1), commit(2, 1)]))
    _, changes = replay(shard, to_table(batch))
    words = {(row["kind"], row["op"], row["partition"]): row["cause"] for row in changes.to_pylist()}
    assert words.pop(("offset", "remove", 0)) == word
    assert set(words.values()) <= {None}


def test_an_empty_batch_changes_nothing() -> None:
    shard, _ = replay(Shard.empty(), to_table([commit(1, 1)]))
    after, changes = replay(shard, to_table([]))
    assert len(changes) == 0
    assert after.entries is shard.entries
    assert after.group_records is shard.group_records


def test_a_batch_of_garbage_leaves_the_shard_as_it_was() -> None:
    shard, _ = replay(Shard.empty(), to_table([commit(1, 1), group_record(2)]))
    after, changes = replay(shard, to_table([garbage(3)]))
    assert len(changes) == 0
    assert after.entries is shard.entries
    assert after.group_records is shard.group_records
