"""One job at a time on tables of an object store, which has no locks."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from object_store import ObjectStore
from table_batches import heartbeat

from streaming.common.times import MINUTE_MS, now_ms
from streaming.job import sole_writer as sole_writer_module
from streaming.job.sole_writer import sole_writer
from streaming.model.errors import MisuseError
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings
from streaming.tables.fences import WRITER, OtherWriterError, name_in
from streaming.tables.tables import Tables


def settings_of(tables: Tables, heartbeat_every: str) -> Settings:
    options: dict[str, Any] = {"tables.root": tables.root, "tables.storage_options": tables.storage_options}
    return read_settings(options={**options, "job.heartbeat_every": heartbeat_every})


class Start:
    """A start of a job: what it waited for, and its tables once it is the writer."""

    def __init__(self, tables: Tables, heartbeat_every: str = "700ms", *, is_locked: bool = True) -> None:
        self.waited_for: list[str] = []
        self.stop = threading.Event()
        self._settings = settings_of(tables, heartbeat_every)
        self._tables = tables
        self._block = sole_writer(self._settings, self.stop, waiting=self._waiting, is_locked=is_locked)

    def _waiting(self, text: str) -> Any:
        self.waited_for.append(text)
        return nullcontext()

    def begin(self) -> Tables:
        own = self._tables.with_name(WRITER, self._block.__enter__())
        if not self.stop.is_set():
            own.create()
        return own

    def end(self) -> None:
        self._block.__exit__(None, None, None)

    def kill(self) -> None:
        """End as with `kill -9`: no more signs, and the name stays."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Tables, "end_writing", lambda _: None)
            self.end()


@contextmanager
def at_work(tables: Tables, every_s: float = 0.2) -> Iterator[None]:
    """Let a job have heartbeats."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(every_s):
            heartbeat(tables, now_ms())

    thread = threading.Thread(target=work)
    heartbeat(tables, now_ms())
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_second_job_is_refused_while_the_first_one_works(object_store: ObjectStore) -> None:
    first, second = (Start(object_store.tables("s3://lake/sole-1")) for _ in range(2))
    tables = first.begin()
    with at_work(tables), pytest.raises(MisuseError, match="another job is writing to the tables under s3:"):
        second.begin()
    heartbeat(tables, now_ms())
    first.end()


@pytest.mark.more
def test_a_second_job_waits_for_the_heartbeats_of_the_first_one_as_rare_as_they_are(
    object_store: ObjectStore,
) -> None:
    root = object_store.new_root()
    first, second = Start(object_store.tables(root), "3s"), Start(object_store.tables(root))
    tables = first.begin()
    with at_work(tables, every_s=4), pytest.raises(MisuseError, match="another job is writing"):
        second.begin()
    assert second.waited_for == [f"finding out whether another job writes to {root} (9 s)"]
    first.end()


@pytest.mark.parametrize(
    "ago_ms",
    [pytest.param(0, id="just now", marks=pytest.mark.more), pytest.param(11 * MINUTE_MS, id="long ago")],
)
def test_a_second_job_is_refused_while_the_first_one_still_starts(
    object_store: ObjectStore, ago_ms: int
) -> None:
    root = object_store.new_root()
    killed, first, second = (Start(object_store.tables(root)) for _ in range(3))
    heartbeat(killed.begin(), now_ms() - ago_ms)
    killed.kill()
    tables = first.begin()
    before = tables.progress()
    with pytest.raises(MisuseError, match="another job is writing to the tables under s3:"):
        second.begin()
    assert tables.progress() == before, "nothing says that the tables are read on"
    heartbeat(tables, now_ms())
    first.end()


def test_a_job_that_was_killed_while_it_started_is_replaced(object_store: ObjectStore) -> None:
    root = object_store.new_root()
    first, second = (Start(object_store.tables(root)) for _ in range(2))
    heartbeat(first.begin(), now_ms() - 11 * MINUTE_MS)
    first.kill()
    object_store.tables(root).sign_work(now_ms())
    heartbeat(second.begin(), now_ms())
    assert len(second.waited_for) == 1
    second.end()


@pytest.mark.more
def test_a_second_job_is_refused_when_the_first_one_has_just_created_its_tables(
    object_store: ObjectStore,
) -> None:
    root = object_store.new_root()
    first, second = (Start(object_store.tables(root)) for _ in range(2))
    tables = first.begin()
    assert tables.signs_of_work() == (0, 0, 0)
    with pytest.raises(MisuseError, match="another job is writing to the tables under s3:"):
        second.begin()
    heartbeat(tables, now_ms())
    first.end()


@pytest.mark.more
def test_a_second_job_is_refused_while_the_first_one_has_no_heartbeat_for_long(
    object_store: ObjectStore,
) -> None:
    """As at the end of a rebuild, after the job has said that it rebuilds."""
    root = object_store.new_root()
    first, second = (Start(object_store.tables(root)) for _ in range(2))
    tables = first.begin()
    time.sleep(1)  # until then it signs its start
    heartbeat(tables, now_ms())
    time.sleep(3)
    with pytest.raises(MisuseError, match="another job is writing to the tables under s3:"):
        second.begin()
    heartbeat(tables, now_ms())
    first.end()


def test_a_job_signs_its_work_only_while_it_has_no_heartbeats(object_store: ObjectStore) -> None:
    first = Start(object_store.tables(object_store.new_root()), "1s")
    tables = first.begin()
    with at_work(tables, every_s=0.1):
        time.sleep(1)  # one may be under way
        *_, signed = tables.signs_of_work()
        time.sleep(3)
        assert tables.signs_of_work()[2] == signed
    time.sleep(4)
    assert tables.signs_of_work()[2] > signed
    first.end()


def test_the_first_sign_of_a_job_is_not_lost_to_another_commit(object_store: ObjectStore) -> None:
    tables = object_store.tables(object_store.new_root())
    before = Start(tables)
    before.begin()
    before.end()  # else its thread opens tables, too
    opening, others = Tables._open, iter([lambda: heartbeat(replace(tables, handles=None), 1_000)])

    def open_and_wait(self: Tables, name: str) -> DeltaTable:
        opened = opening(self, name)
        next(others, lambda: None)()
        return opened

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tables, "_open", open_and_wait)
        tables.sign_work(7)
    assert tables.signs_of_work() == (1_000, 0, 7)


def test_a_job_that_was_suspended_is_replaced_and_commits_nothing_more(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tables, "sign_work", lambda *_: None)  # its thread is suspended, too
    first, second = (Start(object_store.tables("s3://lake/sole-2")) for _ in range(2))
    suspended = first.begin()
    heartbeat(suspended, now_ms())
    tables = second.begin()
    assert "another job writes to s3://lake/sole-2" in second.waited_for[0]
    with pytest.raises(OtherWriterError):
        heartbeat(suspended, now_ms())
    heartbeat(tables, now_ms())
    first.end()  # it still runs, and ends
    assert name_in(tables.delta("changes"), WRITER) == tables.names[WRITER]
    second.end()


@pytest.mark.parametrize("how", ["ended", "long ago"])
def test_nobody_is_waited_for_who_has_ended_or_was_silent_for_long(
    object_store: ObjectStore, how: str
) -> None:
    root = object_store.new_root()
    first, second = (Start(object_store.tables(root)) for _ in range(2))
    heartbeat(first.begin(), now_ms() - 11 * MINUTE_MS)
    first.end() if how == "ended" else first.kill()
    second.begin()
    assert second.waited_for == []
    second.end()


def test_a_start_that_is_stopped_while_it_waits_replaces_nobody(object_store: ObjectStore) -> None:
    root = object_store.new_root()
    first, second = (Start(object_store.tables(root)) for _ in range(2))
    tables = first.begin()
    heartbeat(tables, now_ms())
    second.stop.set()
    second.begin()
    second.end()
    heartbeat(tables, now_ms())
    first.end()


def test_in_a_folder_nobody_is_waited_for_since_it_was_locked(tmp_path: Path) -> None:
    first, second = (Start(Tables(str(tmp_path))) for _ in range(2))
    heartbeat(first.begin(), now_ms())
    second.begin()
    assert second.waited_for == []


@pytest.mark.timeout(30)
def test_a_store_that_hangs_does_not_hold_up_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, asked = threading.Event(), threading.Event()

    def hang(_: Tables) -> tuple[int, int, int]:
        asked.set()
        answers.wait()
        return 0, 0, 0

    job = Start(Tables(str(tmp_path)), is_locked=False)
    monkeypatch.setattr(sole_writer_module, "_END_LIMIT_S", 0.2)
    monkeypatch.setattr(Tables, "signs_of_work", hang)
    try:
        job.begin()
        assert asked.wait(10)
        job.end()
    finally:
        answers.set()


def test_in_a_folder_without_locks_a_second_job_is_refused(tmp_path: Path) -> None:
    first, second, third = (Start(Tables(str(tmp_path)), is_locked=False) for _ in range(3))
    tables = first.begin()
    with pytest.raises(MisuseError, match=f"another job is writing to the tables under {tmp_path}"):
        second.begin()
    heartbeat(tables, now_ms())
    first.end()
    third.begin()
    assert third.waited_for == []
    third.end()


def test_a_job_that_can_lock_the_folder_is_refused_while_one_that_could_not_is_at_work(
    tmp_path: Path,
) -> None:
    """As on the machine that an NFS mount without locks comes from."""
    first, second = Start(Tables(str(tmp_path)), is_locked=False), Start(Tables(str(tmp_path)))
    tables = first.begin()
    with at_work(tables), pytest.raises(MisuseError, match="another job is writing to the tables under"):
        second.begin()
    first.end()


def test_tables_that_do_not_exist_yet_have_one_writer(object_store: ObjectStore) -> None:
    root = object_store.new_root()
    first, second = (Start(object_store.tables(root)) for _ in range(2))
    own = [start._block.__enter__() for start in (first, second)]
    tables = [object_store.tables(root).with_name(WRITER, name) for name in own]
    tables[1].create()
    with pytest.raises(OtherWriterError):
        tables[0].create()
    first.end()
    second.end()
