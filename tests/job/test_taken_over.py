"""A process that was suspended while another one took over commits nothing more, wherever it continues."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from log_end_rows import Sample, rows_of
from maintenance_rounds import KEPT, NOW
from table_batches import append, group, heartbeat, offset

from streaming.alerts.episodes import Episode, Finding
from streaming.alerts.table import AlertTable
from streaming.common.times import DAY_MS, HOUR_MS, MINUTE_MS
from streaming.job.rebuild import announce
from streaming.maintenance.lease import LEASE_TRANSACTION
from streaming.maintenance.maintenance import maintain
from streaming.model.errors import OffsetlakeError
from streaming.model.progress import Progress
from streaming.model.schemas import CHANGES, QUARANTINE_IN_BATCH
from streaming.tables.fences import WRITER, OtherWriterError, name_in
from streaming.tables.files import write_files
from streaming.tables.handles import TableHandles
from streaming.tables.rows import quarantine_rows
from streaming.tables.tables import SCHEMAS, Tables

T = TypeVar("T")

LATER = NOW + 2 * HOUR_MS
"""When the lease of a process that was suspended is over."""

_EVERY: Final = 24
"""Of some 100 moments of a round of maintenance, every so many are tried: each takes a second."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Tables of three days, in small files, of which the first process is the writer."""
    tables = Tables(str(tmp_path_factory.mktemp("filled") / "tables")).with_name(WRITER, "one")
    tables.create()
    for number in range(12):
        at = NOW - (9 - number) * DAY_MS if number < 3 else NOW - (12 - number) * MINUTE_MS
        append(tables, {("g", "t", 0): offset(committed_offset=number), "g": group()}, now=at)
        tables.append_log_ends(rows_of([Sample(at, "t", 0, 100 + number)]))
    tables.fold()
    append(tables, {("h", "t", 0): offset()}, now=NOW)
    return tables


def versions(tables: Tables) -> dict[str, int]:
    """The newest version of each table, also of those that a rebuild fills."""
    found = {name: DeltaTable(f"{tables.root}/{name}").version() for name in tables.existing()}
    aside = tables.aside()
    return found | {
        f"rebuild/{name}": DeltaTable(f"{aside.root}/{name}").version() for name in aside.existing()
    }


@contextmanager
def after_opening(opened: int, take_over: Callable[[], T]) -> Iterator[list[T]]:
    """Let another process take over right after tables were opened, or brought up to date, so many times;
    yields what `take_over` returned, if it came to that."""
    opened_until_now, taken = count(1), list[T]()

    def and_wait(opening: Callable[..., DeltaTable | None]) -> Callable[..., DeltaTable | None]:
        def open_and_wait(*place: object) -> DeltaTable | None:
            table = opening(*place)
            if table is not None and next(opened_until_now) == opened:
                taken.append(take_over())
            return table

        return open_and_wait

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tables, "_open", and_wait(Tables._open))
        patch.setattr(TableHandles, "taken", and_wait(TableHandles.taken))
        yield taken


def at_each_moment(
    filled: Tables,
    folder: Path,
    act: Callable[[Tables], object],
    take_over: Callable[[Tables], T],
    *,
    every: int = 1,
    are_open: bool = False,
) -> Iterator[tuple[Tables, T]]:
    """Do something in a copy of the tables, once for each moment at which another process may take over, or
    for some; yield the tables and what `take_over` returned. At last nobody takes over. With `are_open`, the
    tables are open from earlier commits."""
    for opened in count(1, every):
        tables = replace(filled, root=str(folder / str(opened)))
        shutil.copytree(filled.root, tables.root)
        if are_open:
            tables = replace(tables, handles=TableHandles())
            for name in SCHEMAS:
                with tables._newest(name):
                    pass
        before = versions(tables)
        with after_opening(opened, lambda tables=tables: take_over(tables)) as taken:
            try:
                act(tables)
            except (OffsetlakeError, CommitFailedError):
                if not taken:
                    raise
        if not taken:
            assert opened > 1
            assert versions(tables) != before, "it commits something"
            return
        yield replace(tables, names={}, handles=None), taken[0]


# --- the job ----------------------------------------------------------------------------------------------


def batch(tables: Tables) -> None:
    append(tables, {("g", "t", 0): offset(committed_offset=77)}, now=NOW + 1)


def large_batch(tables: Tables) -> None:
    with tables.new_changes() as new:
        progress = tables.progress()
        write_files(tables.delta("changes"), new, tables.read_changes())
        tables.append_changes(
            CHANGES.empty_table(), replace(progress, heartbeat=NOW), is_batch=False, new=new
        )


def refused_records(tables: Tables) -> None:
    row = {"key": b"\0", "error_kind": "malformed", "reason": "cut short"}
    row |= {"source_partition": 0, "source_offset": 5, "source_timestamp": NOW}
    rows, _ = quarantine_rows(pa.Table.from_pylist([row], QUARANTINE_IN_BATCH), sequence=1, batch_time=NOW)
    tables.append_quarantine(rows, Progress(query_id="q", batch_id=1))


def samples(tables: Tables) -> None:
    tables.append_log_ends(rows_of([Sample(NOW, "t", 0, 500)]))


def rebuild(tables: Tables) -> None:
    aside = tables.aside()
    aside.create()
    append(aside, {("g", "t", 0): offset(committed_offset=78)}, now=NOW)


def announcement(tables: Tables) -> None:
    reader: Any = type("Reader", (), {"tables": tables})
    announce(reader, "requested")


def alert(tables: Tables) -> None:
    finding = Finding(severity="warning", subject="the job")
    opened = Episode(id="1", rule="job_behind", revision=1, opened_at=NOW, updated_at=NOW, finding=finding)
    table = AlertTable(tables)
    table.update(table.read(), lambda _: [opened], mark=1, receivers=["log"])


def restated(tables: Tables) -> None:
    DeltaTable(f"{tables.root}/changes").alter.set_table_properties({"delta.checkpointInterval": "20"})
    tables.restate_progress()


JOB: dict[str, Callable[[Tables], object]] = {
    "batch": batch,
    "large batch": large_batch,
    "heartbeat": lambda tables: heartbeat(tables, NOW),
    "sign of its work": lambda tables: tables.sign_work(NOW),
    "refused records": refused_records,
    "samples": samples,
    "fold": lambda tables: tables.fold(),
    "alert": alert,
    "rebuild": rebuild,
    "announcement of a rebuild": announcement,
    "progress restated": restated,
    "maintenance": lambda tables: maintain(tables, KEPT, clock=lambda: NOW, name="one"),
}

LEFT_TO_MORE = (rebuild, large_batch, refused_records, samples)
"""`make test` tries the last three only on tables that are open already: see the next test."""


def become_writer(tables: Tables) -> dict[str, int]:
    other = replace(tables, names={}, live=None, handles=None).with_name(WRITER, "two")
    other.become_writer(after="one")
    if other.aside().existing():
        other.aside().create()
    return versions(other)


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(act, id=name, marks=[pytest.mark.more] if act in LEFT_TO_MORE else [])
        for name, act in JOB.items()
    ],
)
def test_a_job_that_another_has_replaced_commits_nothing_more(
    filled: Tables, tmp_path: Path, act: Callable[[Tables], object]
) -> None:
    every = _EVERY if act is JOB["maintenance"] else 1
    for tables, then in at_each_moment(filled, tmp_path, act, become_writer, every=every):
        assert versions(tables) == then


@pytest.mark.parametrize(
    "act",
    [
        large_batch,
        refused_records,
        samples,
        *(
            pytest.param(JOB[name], id=name, marks=pytest.mark.more)
            for name in ("batch", "heartbeat", "fold")
        ),
    ],
)
def test_nor_to_tables_that_are_open_from_earlier_commits(
    filled: Tables, tmp_path: Path, act: Callable[[Tables], object]
) -> None:
    for tables, then in at_each_moment(filled, tmp_path, act, become_writer, are_open=True):
        assert versions(tables) == then


def test_of_two_jobs_that_start_at_the_same_moment_one_becomes_the_writer(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    one, two = tables.with_name(WRITER, "one"), tables.with_name(WRITER, "two")
    for before, start in (("", Tables.create), ("one", partial(Tables.become_writer, after="one"))):
        first, second = (one, two) if not before else (two, one.with_name(WRITER, "three"))
        start(first)
        with pytest.raises(OtherWriterError):
            start(second)
        assert name_in(tables.delta("changes"), WRITER) == first.names[WRITER]


# --- maintenance ------------------------------------------------------------------------------------------


@pytest.mark.more
def test_a_process_that_was_suspended_while_it_maintained_the_tables_commits_nothing_more(
    filled: Tables, tmp_path: Path
) -> None:
    clock = [NOW]

    def suspended_round(tables: Tables) -> None:
        clock[0] = NOW
        maintain(tables, KEPT, clock=lambda: clock[0], name="one")

    def maintain_later(tables: Tables) -> tuple[bool, dict[str, int]]:
        """Do a round as another process does, once the lease is over; return whether the first had it."""
        has_begun = bool(tables.delta("quarantine").transaction_version(LEASE_TRANSACTION))
        clock[0] = LATER
        maintain(replace(tables, names={}), KEPT, clock=lambda: LATER, name="two")
        return has_begun, versions(tables)

    unnamed, moments = replace(filled, names={}), list[bool]()
    undisturbed = replace(unnamed, root=str(tmp_path / "undisturbed"))
    shutil.copytree(filled.root, undisturbed.root)
    maintain_later(undisturbed)
    for tables, (has_begun, newest) in at_each_moment(
        unnamed, tmp_path, suspended_round, maintain_later, every=_EVERY
    ):
        assert versions(tables) == newest or not has_begun
        assert changes(tables) == changes(undisturbed)
        moments.append(has_begun)
    assert sum(moments) * _EVERY > 60


def changes(tables: Tables) -> list[str]:
    return sorted(map(str, tables.read_changes().to_pylist()))
