"""What must hold of the tables at any time, whatever happened to the job; and a reader who never leaves."""

import threading
from collections import Counter
from typing import Any, Self

import pyarrow as pa
from table_batches import value_of

from streaming.demo.broker_offsets import CommittedOffset, OffsetKey
from streaming.model.schemas import GROUPS, OFFSETS
from streaming.tables.tables import Tables, TablesMissingError

Key = tuple[str, str, str | None, int | None]


def table_offsets(tables: Tables) -> dict[OffsetKey, CommittedOffset]:
    """Return the live offsets as `kafka_clients.broker_offsets` gives the broker's."""
    rows = tables.read().offsets.to_pylist()
    offsets = {
        OffsetKey(row["group"], row["topic"], row["partition"]): CommittedOffset(
            row["committed_offset"], row["leader_epoch"], row["metadata"]
        )
        for row in rows
    }
    assert len(offsets) == len(rows), "an offset is there twice"
    return offsets


def check_history(tables: Tables) -> None:
    """Replay all changes from nothing: each meets the value that it says was there, and what they lead to is
    what the tables show."""
    rows = tables.read_changes().to_pylist()
    live: dict[Key, dict[str, Any]] = {}
    for row in rows:
        key = _key(row)
        before, after = value_of(row, "before"), value_of(row, "after")
        assert before == live.get(key), f"sequence {row['sequence']}: {key}"
        assert (row["op"] == "set") == (after is not None)
        if after is None:
            live.pop(key, None)
        else:
            live[key] = after
    assert _rows(live, "offset", OFFSETS) == _shown(tables.read().offsets)
    assert _rows(live, "group", GROUPS) == _shown(tables.read().groups)
    _check_sequences(rows, tables.progress().sequence)


def check_quarantine(tables: Tables, expected: set[tuple[int, int]]) -> None:
    """Every record that could not be decoded is there once: its partition and offset in the topic."""
    rows = tables.read_quarantine().select(["source_partition", "source_offset"]).to_pylist()
    places = Counter((row["source_partition"], row["source_offset"]) for row in rows)
    assert places == Counter(expected)


def _check_sequences(rows: list[dict[str, Any]], newest: int) -> None:
    """One for each batch that changed something, without gaps; and each key at most once in it."""
    times: dict[int, set[Any]] = {}
    for row in rows:
        times.setdefault(row["sequence"], set()).add(row["batch_time"])
    assert sorted(times) == list(range(1, newest + 1))
    assert {len(of_batch) for of_batch in times.values()} <= {1}
    in_order = [max(times[sequence]) for sequence in sorted(times)]
    assert in_order == sorted(in_order)
    assert max(Counter((row["sequence"], _key(row)) for row in rows).values()) == 1


def _key(row: dict[str, Any]) -> Key:
    return row["kind"], row["group"], row["topic"], row["partition"]


def _rows(live: dict[Key, dict[str, Any]], kind: str, schema: pa.Schema) -> set[str]:
    """Return the live rows of a kind, as text so that they can be compared in any order."""
    names = ("kind", "group", "topic", "partition")
    every = [dict(zip(names, key, strict=True)) | value for key, value in live.items() if key[0] == kind]
    columns = [name for name in schema.names if name != "source_partition"]
    return {str([row[name] for name in columns]) for row in every}


def _shown(rows: pa.Table) -> set[str]:
    columns = [name for name in rows.column_names if name != "source_partition"]
    texts = [str([row[name] for name in columns]) for row in rows.to_pylist()]
    assert len(set(texts)) == len(texts)
    return set(texts)


class Reader(threading.Thread):
    """Reads the tables all the time: that never fails, and never goes back."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(name="reader", daemon=True)
        self._tables = tables
        self._done = threading.Event()
        self.reads = 0
        self.failure: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join(60)

    def run(self) -> None:
        """Read until told to end."""
        newest = 0
        try:
            while not self._done.wait(0.2):
                try:
                    snapshot = self._tables.read()
                except TablesMissingError:
                    assert self.reads == 0, "the tables were there before"
                    continue
                assert snapshot.progress.sequence >= newest
                newest = snapshot.progress.sequence
                self.reads += 1
        except BaseException as error:
            self.failure = error
