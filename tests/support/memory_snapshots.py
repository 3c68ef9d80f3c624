"""Snapshots for tests: what one holds as plain rows, and what the tables say in the same form."""

from typing import Any

from log_end_rows import Sample
from table_batches import as_ms

from streaming.queries.offsets import OffsetQueries
from streaming.serve.memory.offsets import KINDS
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.serve.memory.tailer import Tailer
from streaming.tables.log_ends import SampleFiles, newest_ends
from streaming.tables.tables import Tables

Rows = list[dict[str, Any]]

_NUMBERS = (
    "committed_offset",
    "leader_epoch",
    "commit_timestamp",
    "expire_timestamp",
    "unreadable_source_offset",
    "source_partition",
    "source_timestamp",
)


def whole(tables: Tables, now: int = 0) -> MemorySnapshot:
    """The snapshot as one that begins now reads it."""
    tailer = Tailer(tables, clock=lambda: now)
    assert tailer.poll()
    return tailer.current


def offsets_in(snapshot: MemorySnapshot) -> Rows:
    """The offsets of a snapshot, in its order."""
    columns, topics = snapshot.offsets.columns, snapshot.topics
    ids = [None if place < 0 else topics.ids.name(place) for place in columns.topic_id.tolist()]
    return [
        {
            "group": snapshot.groups.names.name(group),
            "topic": topics.names.name(int(topics.topic[place])),
            "partition": int(topics.partition[place]),
            "topic_id": topic_id,
            "metadata": text.decode(),
            **{name: int(getattr(columns, name)[row]) for name in _NUMBERS},
        }
        for row, (group, place, topic_id, text) in enumerate(
            zip(
                snapshot.offsets.groups().tolist(),
                columns.place.tolist(),
                ids,
                columns.metadata.to_pylist(),
                strict=True,
            )
        )
    ]


def groups_in(snapshot: MemorySnapshot) -> Rows:
    """The groups of a snapshot that are described, in its order."""
    return [
        {"group": name, **snapshot.groups.rows.slice(place, 1).to_pylist()[0]}
        for place, name in enumerate(snapshot.groups.names.texts.to_pylist())
        if snapshot.groups.is_described[place]
    ]


def offsets_answered(tables: Tables) -> Rows:
    """The offsets as questions to the tables answer, with -1 for null as Kafka writes it."""
    left_out = {"source_offset"}
    return [
        {name: _as_written(name, as_ms(value)) for name, value in row.items() if name not in left_out}
        for row in OffsetQueries(tables).list_offsets().rows.to_pylist()
    ]


def groups_answered(tables: Tables) -> Rows:
    rows = OffsetQueries(tables).list_groups().rows.to_pylist()
    return [{name: as_ms(value) for name, value in row.items()} for row in rows]


def _as_written(name: str, value: Any) -> Any:
    return value if value is not None or name == "topic_id" else "" if name == "metadata" else -1


def ends_in(snapshot: MemorySnapshot) -> Rows:
    """The log ends of a snapshot that are known, in its order."""
    topics, ends = snapshot.topics, snapshot.topics.ends
    return [
        {
            "topic": topics.names.name(int(topics.topic[place])),
            "topic_id": None if ends.sample_id[place] < 0 else topics.ids.name(int(ends.sample_id[place])),
            "partition": int(topics.partition[place]),
            "sampled_at": int(ends.sampled_at[place]),
            "log_start": int(ends.log_start[place]),
            "log_end": int(ends.log_end[place]),
        }
        for place in range(len(topics.partition))
        if ends.log_end[place] >= 0
    ]


def ends_answered(tables: Tables, samples: list[Sample], until: int) -> Rows:
    """What the table answers as of the newest sample up to a moment."""
    latest = max((sample.at for sample in samples if sample.at <= until), default=0)
    rows = newest_ends(SampleFiles(tables.delta("log_ends")), None, as_of=latest).to_pylist()
    return sorted(
        ({name: _as_written(name, as_ms(value)) for name, value in row.items()} for row in rows),
        key=lambda row: (row["topic"].encode(), row["partition"]),
    )


def check_whole(snapshot: MemorySnapshot) -> None:
    """See that a snapshot is what it says of itself: in order, its index right, and not to be written to."""
    names = snapshot.groups.names
    assert list(names.places) == sorted(names.places) == names.texts.to_pylist()
    assert [names.place(name) for name in names.places] == list(range(len(names)))
    assert len(snapshot.offsets.starts) == len(names) + 1 == len(snapshot.groups.rows) + 1
    for place in range(len(names)):
        own = snapshot.offsets.of(place).place.tolist()
        assert own == sorted(set(own))
        assert own or snapshot.groups.is_described[place]
    columns = [getattr(snapshot.offsets.columns, name) for name in KINDS]
    columns += [
        snapshot.offsets.starts,
        snapshot.committing,
        snapshot.end_offsets,
        snapshot.topics.ends.log_end,
    ]
    columns += [snapshot.groups.is_described, snapshot.topics.topic, snapshot.topics.partition]
    assert not any(column.flags.writeable for column in columns)
