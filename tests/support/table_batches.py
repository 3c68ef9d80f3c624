"""Batches for tests of the tables: made of plain dicts, appended as the job does, read back, and replayed."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pyarrow as pa
from hypothesis import strategies as st

from streaming.common.times import DAY_MS, FIRST_MS, LAST_MS
from streaming.model.progress import PartitionProgress, Progress
from streaming.model.schemas import CHANGES, CHANGES_IN_BATCH, GROUP_VALUE, OFFSET_VALUE
from streaming.tables.handles import TableHandles
from streaming.tables.progress_rows import observation_row
from streaming.tables.rows import change_rows
from streaming.tables.snapshot import LiveRows
from streaming.tables.tables import Tables

Key = tuple[str, str, int]
Row = dict[str, Any]
Batch = dict[Key | str, Row | None]
"""What one batch changes: an offset (by its key) or a group (by its name) gets a value; None removes it."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
QUERY = "query-1"
OFFSET: Row = {"committed_offset": 7, "metadata": "", "commit_timestamp": 1_000}
GROUP: Row = {"type": "classic", "protocol_type": "consumer", "state": "Stable", "members": []}
POSITION: Row = {"source_partition": 3, "source_offset": 11, "source_timestamp": 2_000}


# --- writing batches -------------------------------------------------------------------------------------


def append(
    tables: Tables,
    batch: Batch,
    *,
    live: Batch | None = None,
    now: int | None = None,
    records_at: int | None = None,
    **changed: Any,
) -> Progress:
    """Append one batch as the job does: one sequence and one batch id further than the newest commit.

    `live` holds the values before it; the rest changes the progress. The records are as old as the batch,
    unless `records_at` says otherwise.
    """
    tables = _opened_once(tables)
    newest = tables.progress()
    sequence, batch_id = newest.sequence + 1, newest.batch_id + 1
    now = sequence * 1_000 if now is None else now
    changes = changes_of(batch, live or {})
    changes = changes.set_column(
        changes.schema.get_field_index("source_timestamp"),
        "source_timestamp",
        pa.repeat(now if records_at is None else records_at, len(changes)),
    )
    rows, _ = change_rows(changes, sequence=sequence, batch_time=now)
    after = replace(newest, query_id=QUERY, batch_id=batch_id, sequence=sequence, batch_time=now)
    known = {"partitions": newest.partitions or {3: PartitionProgress(loaded=True)}}
    after = with_all_partitions(replace(after, heartbeat=now, **(known | changed)))
    tables.append_changes(rows, after, is_batch=True)
    return after


def _opened_once(tables: Tables) -> Tables:
    """Return the same tables, which are opened for the first step and brought up to date for the others."""
    return tables if tables.handles else replace(tables, handles=TableHandles())


def heartbeat(tables: Tables, now: int, **changed: Any) -> None:
    """Append a heartbeat as the job does; `changed` of the progress."""
    tables = _opened_once(tables)
    progress = with_all_partitions(replace(tables.progress(), heartbeat=now, **changed))
    tables.append_changes(CHANGES.empty_table(), progress, is_batch=False)


def with_all_partitions(progress: Progress) -> Progress:
    """Let those offsets partitions before the last one that are not given be as it is: a job knows all. Of
    those that are given as None nothing is known."""
    known: dict[int, Any] = dict(progress.partitions)
    last = max(known, default=-1)
    every = {number: known.get(number, known[last]) for number in range(last + 1)}
    return replace(progress, partitions={number: one for number, one in every.items() if one is not None})


def live_on(tables: Tables, since: int, until: int) -> None:
    """Leave a heartbeat for every day, as if the job had been at work with nothing to read."""
    progress = tables.progress()
    days = [replace(progress, heartbeat=moment) for moment in range(since, until + 1, DAY_MS)]
    rows = pa.concat_tables([observation_row(day) for day in days])
    tables.append_changes(rows, days[-1], is_batch=False, is_observation=False)


def changes_of(batch: Batch, live: Batch) -> pa.Table:
    rows = [change(key, value, live.get(key)) for key, value in batch.items()]
    return pa.Table.from_pylist(rows, CHANGES_IN_BATCH)


def change(key: Key | str, value: Row | None, before: Row | None) -> Row:
    is_group = isinstance(key, str)
    group, topic, partition = (key, None, None) if isinstance(key, str) else key
    return {
        "kind": "group" if is_group else "offset",
        "op": "remove" if value is None else "set",
        "group": group,
        "topic": topic,
        "partition": partition,
        "group_before" if is_group else "before": before,
        "group_after" if is_group else "after": value,
        "cause": "unknown" if value is None else None,
        **{name: (value or before or POSITION)[name] for name in POSITION},
    }


def value_of(change: Row, side: Literal["before", "after"]) -> Row | None:
    """Return the value of a row of `changes` before or after it, of an offset or of a group."""
    value: Row | None = change[side if change["kind"] == "offset" else f"group_{side}"]
    return value


def offset(**changed: Any) -> Row:
    return OFFSET | POSITION | changed


def group(**changed: Any) -> Row:
    return GROUP | POSITION | changed


def groups_of_offsets(groups: int, partitions: int, metadata: str) -> Batch:
    """Return groups `g0`, `g1` ... of which each has offsets of so many partitions of the topic `t`."""
    names = [f"g{number}" for number in range(groups)]
    batch: Batch = {
        (name, "t", partition): offset(source_partition=0, metadata=metadata)
        for name in names
        for partition in range(partitions)
    }
    return batch | {name: group(source_partition=0) for name in names}


# --- reading, and the replay it must equal ---------------------------------------------------------------


def replay(batches: list[Batch]) -> Batch:
    live: Batch = {}
    for batch in batches:
        live |= batch
    return {key: value for key, value in live.items() if value is not None}


def as_read(tables: Tables, groups: list[str] | None = None) -> Batch:
    """Read offsets and groups back into the form of a batch."""
    return live_in(tables.read(groups))


def live_in(snapshot: LiveRows) -> Batch:
    """Give a snapshot the form of a batch; a key that comes twice fails."""
    rows = [*snapshot.offsets.to_pylist(), *snapshot.groups.to_pylist()]
    live: Batch = {key_of(row): {name: as_ms(value) for name, value in row.items()} for row in rows}
    assert len(live) == len(rows)
    return live


def key_of(row: Row) -> Key | str:
    return (row.pop("group"), row.pop("topic"), row.pop("partition")) if "topic" in row else row.pop("group")


def as_ms(value: Any) -> Any:
    return (value - EPOCH) // timedelta(milliseconds=1) if isinstance(value, datetime) else value


def completed(live: Batch) -> Batch:
    """Fill in the columns that a value leaves out."""
    names = {True: GROUP_VALUE, False: OFFSET_VALUE}
    return {
        key: dict.fromkeys(field.name for field in names[isinstance(key, str)]) | (value or {})
        for key, value in live.items()
    }


# --- histories -------------------------------------------------------------------------------------------

GROUP_IDS = st.sampled_from(
    ["", "g", "it's", 'say "hi"', "grüße 🐢", "a\\'b", "\0", "g\0", "g\0h", "x" * 100, "x" * 99 + "y", "%_"]
)
TOPICS = st.sampled_from(["orders", "order's", "orders\0", "t" * 249])
TIMESTAMPS = st.one_of(st.integers(FIRST_MS, LAST_MS), st.sampled_from([FIRST_MS, -1, 0, LAST_MS]))
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


POSITIONS = {"source_partition": st.integers(0, 49), "source_offset": INT64, "source_timestamp": TIMESTAMPS}
OFFSETS = st.fixed_dictionaries(
    {
        **POSITIONS,
        "committed_offset": optional(INT64),
        "leader_epoch": optional(INT32),
        "metadata": optional(TEXTS),
        "commit_timestamp": TIMESTAMPS,
        "expire_timestamp": optional(TIMESTAMPS),
        "topic_id": optional(st.just("AAAAAAAAAAEAAAAAAAAAAg")),
        "unreadable_source_offset": optional(INT64),
    }
)
ASSIGNMENTS = st.lists(
    st.fixed_dictionaries(
        {
            "topic": optional(TEXTS),
            "topic_id": optional(st.just("id")),
            "subtopology": optional(TEXTS),
            "task_type": st.sampled_from([None, "active"]),
            "partitions": st.lists(INT32, max_size=2),
        }
    ),
    max_size=2,
)
MEMBERS = st.fixed_dictionaries(
    {
        "member_id": TEXTS,
        "group_instance_id": optional(TEXTS),
        "client_id": TEXTS,
        "client_host": TEXTS,
        "rack_id": optional(TEXTS),
        "member_epoch": optional(INT32),
        "is_classic": optional(st.booleans()),
        "subscribed_topics": optional(st.lists(TEXTS, max_size=1)),
        "subscribed_regex": optional(TEXTS),
        "assignment": optional(ASSIGNMENTS),
        "target_assignment": optional(ASSIGNMENTS),
        "subscription_bytes": optional(st.binary(max_size=2)),
        "assignment_bytes": optional(st.binary(max_size=2)),
    }
)
GROUPS = st.fixed_dictionaries(
    {
        **POSITIONS,
        "type": st.just("classic"),
        "protocol_type": TEXTS,
        "protocol": optional(TEXTS),
        "state": st.sampled_from(["Empty", "Stable"]),
        "generation_or_epoch": optional(INT32),
        "state_timestamp": optional(TIMESTAMPS),
        "members": st.lists(MEMBERS, max_size=2),
        "subscribed_topics": optional(st.lists(TEXTS, max_size=2)),
        "assignment_epoch": optional(INT32),
    }
)
BATCHES = st.builds(
    lambda offsets, groups: {**offsets, **groups},
    st.dictionaries(st.tuples(GROUP_IDS, TOPICS, st.integers(0, 1)), optional(OFFSETS), max_size=4),
    st.dictionaries(GROUP_IDS, optional(GROUPS), max_size=3),
)


def in_one_partition(batch: Batch) -> Batch:
    """Let every group keep to one offsets partition, as Kafka does."""
    return {
        key: value and {**value, "source_partition": sum((key if isinstance(key, str) else key[0]).encode())}
        for key, value in batch.items()
    }


# --- readers beside a writer -----------------------------------------------------------------------------


class running:  # noqa: N801 (reads as a word)
    """Runs a function in a thread for the length of a block, and raises what it raised."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work,))

    def __enter__(self) -> Callable[[], bool]:
        self._thread.start()
        return self._thread.is_alive

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._failure = error
