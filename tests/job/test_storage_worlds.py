"""Random worlds of one table root: batches, heartbeats, folds and rounds of maintenance, on storage that
refuses, loses answers, and lets others commit first. What the tables say is what a plain dict says, at every
moment."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from batch_results import files_of_rows, write_batch
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from hypothesis import given, settings
from hypothesis import strategies as st
from maintenance_rounds import NOW, round_at
from storage_faults import parquet_files
from test_writer import ENDS, Job, set_offset

from streaming.job.writer import BatchWriter
from streaming.model.errors import OffsetlakeError

Live = dict[str, int]
"""Where each group is."""

BATCHES = st.dictionaries(st.sampled_from("abcdefg"), st.none() | st.integers(0, 99), max_size=7)
STEPS = st.lists(BATCHES | st.sampled_from(["heartbeat", "fold", "round", "restart"]), min_size=1, max_size=9)
MOST_FAULTS = 12
FAULTS = st.lists(
    st.sampled_from(["none", "refused", "lost", "taken for another's", "compacted"]), max_size=MOST_FAULTS
)
"""What becomes of one commit after the other, and then of all others: they arrive."""


def changed(live: Live, group: str, offset: int | None) -> dict[str, Any] | None:
    """Return what a batch says of a group that gets an offset, or loses it; None: it had none."""
    before = None if group not in live else set_offset(group, live[group])["after"]
    if offset is not None:
        return set_offset(group, offset) | {"before": before}
    gone = {"op": "remove", "before": before, "after": None, "cause": "tombstoned"}
    return None if before is None else set_offset(group, live[group]) | gone


class World:
    """A job on storage with faults, and what it has to say."""

    def __init__(self, root: Path, faults: list[str]) -> None:
        self.job = Job(root)
        self.now = NOW
        self.live: Live = {}
        self.past: list[tuple[int, Live]] = []
        self.change_count = 0
        self.batch_id = 0
        self._faults = iter(faults)
        self.writer = self.start()

    def start(self) -> BatchWriter:
        writer = self.job.start()
        writer._clock = lambda: self.now
        return writer

    def step(self, step: Any) -> None:
        self.now += 1_000
        if isinstance(step, dict):
            self.batch(step)
        elif step == "restart":
            self.writer = self.start()
        else:
            act: dict[str, Callable[[], Any]] = {
                "heartbeat": lambda: self.writer.heartbeat(ENDS),
                "fold": self.writer.fold,
                "round": lambda: round_at(self.job.tables, self.now),
            }
            with suppress(OffsetlakeError):
                act[step]()

    def batch(self, groups: dict[str, int | None]) -> None:
        """Let the job apply a batch, and start again until it has."""
        found = [changed(self.live, group, offset) for group, offset in groups.items()]
        rows = [row for row in found if row is not None]
        parts = [rows[place : place + 1] for place in range(len(rows))]
        for _ in range(MOST_FAULTS):
            with suppress(OffsetlakeError):
                write_batch(self.writer, parts, self.batch_id)
                break
            assert self.job.offsets() in (self.live, self.after(groups)), "all of a batch or nothing"
            self.writer = self.start()
        else:
            write_batch(self.writer, parts, self.batch_id)
        self.live = self.after(groups)
        self.change_count += len(rows)
        self.batch_id += 1
        self.past.append((self.now, self.live))

    def after(self, groups: dict[str, int | None]) -> Live:
        return {group: offset for group, offset in (self.live | groups).items() if offset is not None}

    def commit(self, commit: Callable[..., None], table: DeltaTable, *args: Any, **named: Any) -> None:
        """Commit as `DeltaTable.create_write_transaction` does, with the next fault."""
        fault = next(self._faults, "none")
        if fault == "refused":
            raise OSError("no space left")
        if fault == "compacted":
            with suppress(CommitFailedError):
                DeltaTable(table.table_uri).optimize.compact()
        commit(table, *args, **named)
        if fault == "lost":
            raise DeltaError("timed out")
        if fault == "taken for another's":
            raise CommitFailedError("this version exists")

    def check(self) -> None:
        tables = self.job.tables
        assert self.job.offsets() == self.live
        assert len(tables.read_changes()) == self.change_count
        folded = tables.delta("offsets").to_pyarrow_table()["group"].to_pylist()
        assert len(folded) == len(set(folded))

    def check_past(self) -> None:
        for moment, live in self.past:
            rows = self.job.tables.read(as_of=moment).offsets.to_pylist()
            assert {row["group"]: row["committed_offset"] for row in rows} == live

    def check_files(self) -> None:
        """After a fold, and rounds without faults of which one compacts and the next deletes, there are no
        files but those of the tables."""
        self.writer = self.start()
        self.writer.fold()
        tables = self.job.tables
        for _ in range(2):
            round_at(tables, self.now)
        held = {
            Path(uri.removeprefix("file://"))
            for name in tables.existing()
            for uri in tables.delta(name).file_uris()
        }
        assert parquet_files(tables.root) == held
        assert tables.unfolded_rows() == 0


@contextmanager
def faulty(world: World) -> Iterator[None]:
    commit = DeltaTable.create_write_transaction
    with files_of_rows(2), pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            DeltaTable,
            "create_write_transaction",
            lambda table, *a, **n: world.commit(commit, table, *a, **n),
        )
        yield


@settings(max_examples=settings.default.max_examples // 7)
@given(STEPS, FAULTS)
def test_whatever_storage_does_the_tables_say_what_the_batches_said(
    steps: list[Any], faults: list[str]
) -> None:
    with TemporaryDirectory() as root:
        world = World(Path(root), faults)
        with faulty(world):
            for step in steps:
                world.step(step)
                world.check()
            world.check_past()
        world.check_files()
        world.check()
        world.check_past()
