"""Tables in which every value tells the batch that wrote it, so that every response tells its snapshot.

Batch b commits b for each offset of every `cycle`th group: those whose number modulo `cycle` is b modulo
`cycle`. The member of such a group is then `m-b`. Batch b also adds the group `new-b`, and removes `new-(b
- KEPT)`. Before it, the log end FIRST_END + b is sampled for each partition. The time of each batch is
noted in a file.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from log_end_rows import Sample, of_topic, rows_of

from streaming.common.times import now_ms
from streaming.maintenance.maintenance import maintain
from streaming.maintenance.trimming import KeepTimes
from streaming.model.schemas import GROUP
from streaming.settings.reading import read_settings
from streaming.tables.handles import TableHandles
from streaming.tables.tables import Tables
from tests.benchmarks.bench_queries import append, changes_of, struct_of

TOPICS: Final = {f"t{number}": f"AAAAAAAAAAEAAAAAAAAA{number}g" for number in range(5)}
"""The topics, and their ids."""
PARTITIONS: Final = 10
"""Of each topic; each group has committed all of them."""
OFFSETS: Final = PARTITIONS * len(TOPICS)
KEPT: Final = 20
"""How many of the groups that come and go there are."""
FIRST_END: Final = 1_000_000_000
EVERY_S: Final = 5.0
FOLD_EVERY: Final = 6
"""Batches between two folds: 30 s, the default of the job."""
MAINTAIN_EVERY: Final = 120
BEFORE_S: Final = 2 * 3_600
"""The time of batches before the first client: health keeps the commits of two hours in memory, and memory is
compared over time."""
_FOLD_BEFORE_EVERY: Final = 240
_A_BATCH: Final = 100
"""Groups of which a batch has commits."""


@dataclass(frozen=True)
class Numbered:
    """Which groups there are, and what each of them has committed at any batch."""

    groups: int

    @property
    def cycle(self) -> int:
        """The batches in which all groups commit once."""
        return self.groups // _A_BATCH

    @property
    def first(self) -> int:
        """The first batch that the tables are filled with."""
        return self.cycle + KEPT

    @property
    def filled(self) -> int:
        """The last batch that the tables are filled with."""
        return self.first + round(BEFORE_S / EVERY_S) - 1

    def name(self, number: int) -> str:
        """Return the name of a group; one half of each batch begins with "a-"."""
        return f"{'ab'[number // self.cycle % 2]}-{number:05}"

    def number(self, name: str) -> int:
        """Return the number of a group, but for those that come and go."""
        return int(name[2:])

    def last(self, number: int, batch: int) -> int:
        """Return the last batch up to this one that committed for a group."""
        return batch - (batch - number) % self.cycle

    def names(self) -> list[str]:
        """Return the names of all groups, but for those that come and go."""
        return [self.name(number) for number in range(self.groups)]


# --- writing ----------------------------------------------------------------------------------------------


@dataclass
class Writer:
    """Writes the batches, each at the time that it has noted before."""

    root: Path
    numbered: Numbered

    def __post_init__(self) -> None:
        self.tables = Tables(str(self.root / "tables"), handles=TableHandles())
        self.batch = self.numbered.first

    def fill(self) -> None:
        """Write the first batch: all groups, as if they had committed one batch after the other. Then write
        the batches of `BEFORE_S` until now."""
        self.tables.create()
        now = now_ms()
        before = [now - round(1_000 * seconds) for seconds in np.arange(BEFORE_S, 0, -EVERY_S).tolist()]
        self._write_first(before[0])
        self.tables.fold()
        for number, at in enumerate(before[1:], start=1):
            self._write_next(at)
            if number % _FOLD_BEFORE_EVERY == 0:
                self.tables.fold()
        self.tables.fold()
        self._maintain()

    def step(self) -> None:
        """Write the next batch now."""
        self._write_next(now_ms())
        if self.batch % FOLD_EVERY == 0:
            self.tables.fold()
        if self.batch % MAINTAIN_EVERY == 0:
            self._maintain()

    def _maintain(self) -> None:
        maintain(self.tables, KeepTimes.of(read_settings()), clock=now_ms)

    def _write_first(self, at: int) -> None:
        numbers = np.arange(self.numbered.groups)
        values = self.batch - (self.batch - numbers) % self.numbered.cycle
        names = pa.array(self.numbered.names())
        new = range(self.batch - KEPT + 1, self.batch + 1)
        names = pa.concat_arrays([names, pa.array([f"new-{number}" for number in new])])
        values = np.append(values, np.array(new))
        self._write(_changes(names, values, None, at), at)

    def _write_next(self, at: int) -> None:
        self.batch += 1
        numbers = np.arange(self.batch % self.numbered.cycle, self.numbered.groups, self.numbered.cycle)
        names = pa.array(map(self.numbered.name, numbers.tolist()))
        before = self.batch - self.numbered.cycle
        added, removed = pa.array([f"new-{self.batch}"]), pa.array([f"new-{self.batch - KEPT}"])
        self._write(
            [
                *_changes(names, np.full(len(names), self.batch), np.full(len(names), before), at),
                *_changes(added, np.array([self.batch]), None, at),
                *_changes(removed, None, np.array([self.batch - KEPT]), at),
            ],
            at,
        )

    def _write(self, changes: list[pa.Table], at: int) -> None:
        with (self.root / "batches.txt").open("a") as times:
            times.write(f"{self.batch} {at}\n")
        ends = [
            Sample(at, topic, number, FIRST_END + self.batch, TOPICS[topic])
            for topic in TOPICS
            for number in range(PARTITIONS)
        ]
        ids = [of_topic(at, topic, topic_id) for topic, topic_id in TOPICS.items()]
        self.tables.append_log_ends(rows_of([*ends, *ids]))
        append(self.tables, pa.concat_tables(changes), at)


def _changes(names: pa.Array, after: np.ndarray | None, before: np.ndarray | None, at: int) -> list[pa.Table]:
    """Return the changes of n groups and all their offsets to these numbers, from those before (None: there
    are none), committed at a moment (ms)."""
    count = len(names) * OFFSETS
    offsets = {
        "kind": pa.repeat("offset", count),
        "group": names.take(pa.array(np.repeat(np.arange(len(names)), OFFSETS))),
        "topic": pa.array(list(TOPICS)).take(_topics(len(names))),
        "partition": pa.array(np.tile(np.arange(PARTITIONS), len(names) * len(TOPICS)), pa.int32()),
        **{name: _offsets(of, at) for name, of in (("after", after), ("before", before)) if of is not None},
    }
    groups = {
        "kind": pa.repeat("group", len(names)),
        "group": names,
        **{
            f"group_{name}": _groups(of, at)
            for name, of in (("after", after), ("before", before))
            if of is not None
        },
    }
    return [_complete(columns, is_removal=after is None) for columns in (offsets, groups)]


def _topics(groups: int) -> pa.Array:
    """Return the number of the topic of each offset of n groups."""
    return pa.array(np.tile(np.repeat(np.arange(len(TOPICS)), PARTITIONS), groups))


def _complete(columns: dict[str, pa.Array], *, is_removal: bool) -> pa.Table:
    count = len(columns["group"])
    more = {"op": pa.repeat("remove" if is_removal else "set", count)}
    more |= {"cause": pa.repeat("unknown", count)} if is_removal else {}
    return changes_of(columns | more, count)


def _offsets(of: np.ndarray, at: int) -> pa.Array:
    """Return the offsets of n groups that have committed a number each."""
    each = pa.array(np.repeat(of, OFFSETS))
    held = {"committed_offset": each, "metadata": pa.repeat("", len(each)), "source_offset": each}
    held["topic_id"] = pa.array(list(TOPICS.values())).take(_topics(len(of)))
    times = pa.repeat(at, len(each))
    return struct_of(held | {"commit_timestamp": times, "source_timestamp": times}, len(each))


def _groups(of: np.ndarray, at: int) -> pa.Array:
    """Return n groups with a member of a number each."""
    return pa.array([_group(number, at) for number in of.tolist()], GROUP)


def _group(number: int, at: int) -> dict[str, Any]:
    member = {"member_id": f"m-{number}", "client_id": "worker", "client_host": "/10.0.0.1"}
    return {
        "type": "classic",
        "protocol_type": "consumer",
        "protocol": "range",
        "state": "Stable",
        "state_timestamp": at,
        "members": [member],
        "subscribed_topics": list(TOPICS),
    }


def keep_writing(root: Path, numbered: Numbered, ahead: int) -> None:
    """Fill the tables, write some batches `ahead`, say so, and go on until this process is ended."""
    writer = Writer(root, numbered)
    writer.fill()
    due = time.monotonic()
    for number in range(10**9):
        if number == ahead:
            print("filled", flush=True)
        writer.step()
        due = max(due + EVERY_S, time.monotonic()) if number >= ahead else time.monotonic() + 1.0
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    keep_writing(Path(sys.argv[1]), Numbered(int(sys.argv[2])), int(sys.argv[3]))
