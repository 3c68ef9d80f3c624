"""One job at a time on a checkpoint and on a table root; the lock goes with the process, however it ends."""

import errno
import fcntl
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import kafka_clients as kafka
import pytest

from streaming.demo.local_broker import LocalBroker
from streaming.job.reporter import Reporter
from streaming.job.run import rebuild_tables, run_job
from streaming.job.sole_job import LOCK_FILE, sole_job, temporary_folders
from streaming.jvm.ownership import ForeignFileError
from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings

HOLD = """
import sys
from streaming.settings.reading import read_settings
from streaming.job.sole_job import sole_job
with sole_job(read_settings(options={"job.checkpoint": sys.argv[1], "tables.root": sys.argv[2]})):
    print("locked", flush=True)
    sys.stdin.read()
"""


def settings(checkpoint: Path | str, root: Path | str, **options: str) -> Settings:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return read_settings(options={"job.checkpoint": str(checkpoint), "tables.root": str(root), **named})


@contextmanager
def another_job(checkpoint: Path, root: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the locks."""
    command = [sys.executable, "-c", HOLD, str(checkpoint), str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process


@pytest.mark.parametrize("shared", ["checkpoint", "tables"])
def test_a_second_job_on_a_checkpoint_or_table_root_is_told_who_is_there(tmp_path: Path, shared: str) -> None:
    folders = {"checkpoint": tmp_path / "other-checkpoint", "tables": tmp_path / "other-tables"}
    folders[shared] = tmp_path / shared
    with (
        another_job(tmp_path / "checkpoint", tmp_path / "tables") as holder,
        pytest.raises(MisuseError, match=rf"process {holder.pid} is already using {tmp_path / shared}\."),
        sole_job(settings(*folders.values())),
    ):
        pass


def test_kill_9_gives_the_folders_back(tmp_path: Path) -> None:
    with another_job(tmp_path / "checkpoint", tmp_path / "tables") as holder:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    for _ in range(2):
        with sole_job(settings(tmp_path / "checkpoint", tmp_path / "tables")):
            written = (tmp_path / "tables" / LOCK_FILE).read_text()
            assert written == f"process {os.getpid()}\n"


def test_urls_are_not_locked_but_those_of_local_folders_are(tmp_path: Path) -> None:
    with sole_job(settings("hdfs://n/c", "s3://bucket/tables")):
        assert list(tmp_path.iterdir()) == []
    with sole_job(settings(tmp_path.as_uri(), "s3://bucket/tables")), pytest.raises(MisuseError):
        sole_job(settings(tmp_path, "s3://bucket/tables")).__enter__()


def test_it_says_whether_the_table_root_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for root in (tmp_path / "tables", (tmp_path / "tables").as_uri(), tmp_path):
        with sole_job(settings(tmp_path, root)) as is_locked:
            assert is_locked
    with sole_job(settings(tmp_path, "s3://bucket/tables")) as is_locked:
        assert not is_locked

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with sole_job(settings(tmp_path, tmp_path / "tables")) as is_locked:
        assert not is_locked


def test_a_file_in_place_of_a_folder_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OffsetlakeError, match=r"expected a writable folder at .*file") as raised:
        sole_job(settings(tmp_path / "file", tmp_path / "tables")).__enter__()
    assert raised.value.exit_code == 1


def test_nobody_else_can_open_the_lock_file_and_so_lock_it(tmp_path: Path) -> None:
    file = tmp_path / LOCK_FILE
    file.touch(0o644)
    for _ in range(2):
        with sole_job(settings(tmp_path, "s3://bucket/tables")):
            assert file.stat().st_mode & 0o777 == 0o600
        file.unlink()


def test_a_lock_file_that_others_could_open_is_closed_to_them_also_while_one_has_it_locked(
    tmp_path: Path,
) -> None:
    """Else who only reads could keep the job away at every start, by programs one after the other."""
    file = tmp_path / LOCK_FILE
    file.touch(0o644)
    file.chmod(0o644)
    with file.open("rb") as read:
        fcntl.flock(read, fcntl.LOCK_SH)
        with pytest.raises(MisuseError, match="another process"):
            sole_job(settings(tmp_path, "s3://bucket/tables")).__enter__()
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("in_place", ["link", "dangling link", "pipe", "folder"])
def test_what_is_no_file_in_place_of_the_lock_file_is_refused_and_left_alone(
    tmp_path: Path, in_place: str
) -> None:
    folder, file, other = tmp_path / "tables", tmp_path / "tables" / LOCK_FILE, tmp_path / "other"
    folder.mkdir()
    if "link" in in_place:
        file.symlink_to(other)
    else:
        os.mkfifo(file) if in_place == "pipe" else file.mkdir()
    if in_place == "link":
        other.write_text("kept")
    with pytest.raises(OffsetlakeError, match=f"expected a file of the job at {file}, found .* Remove it"):
        sole_job(settings(folder, "s3://bucket/tables")).__enter__()
    assert other.exists() == (in_place == "link")
    assert not other.exists() or other.read_text() == "kept"


@pytest.mark.parametrize("why", ["it has another name", "it is another user's"])
def test_a_file_that_is_not_the_jobs_is_locked_and_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    folder, other = tmp_path / "tables", tmp_path / "other"
    folder.mkdir()
    other.write_text("kept")
    if why == "it has another name":
        (folder / LOCK_FILE).hardlink_to(other)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4_321)
        other.rename(folder / LOCK_FILE)
    before = (folder / LOCK_FILE).stat()
    with (
        sole_job(settings(folder, "s3://bucket/tables")),
        pytest.raises(MisuseError, match="another process"),
    ):
        sole_job(settings(folder, "s3://bucket/tables")).__enter__()
    assert (folder / LOCK_FILE).read_text() == "kept"
    assert (folder / LOCK_FILE).stat().st_mode == before.st_mode


@pytest.mark.broker
@pytest.mark.parametrize("start", [lambda *args: run_job(*args, once=True), rebuild_tables])
def test_the_job_is_refused_before_it_starts_spark(
    broker: LocalBroker, tmp_path: Path, start: Callable[[Settings, Reporter, threading.Event], None]
) -> None:
    kafka.ensure_offsets_topic(broker.bootstrap_servers)
    ours = settings(
        tmp_path / "checkpoint", tmp_path / "tables", source__bootstrap_servers=broker.bootstrap_servers
    )
    with another_job(tmp_path / "checkpoint", tmp_path / "tables"), pytest.raises(MisuseError, match="Stop"):
        start(ours, Reporter(*[lambda _: None] * 2), threading.Event())


# --- temporary folders -------------------------------------------------------------------------------------

HOLD_TEMPORARY = """
import os, sys, tempfile
from pathlib import Path
from streaming.settings.reading import read_settings
from streaming.job import sole_job
from streaming.job.sole_job import temporary_folders
tempfile.tempdir, sole_job._SHORT = sys.argv[1], Path(sys.argv[1])
with temporary_folders(read_settings(options={"job.checkpoint": sys.argv[2]}), os.environ):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr("streaming.job.sole_job._SHORT", folder)
    return folder


def folders_of(settings: Settings, environment: dict[str, str] | None = None) -> list[Path]:
    """Return the local folders of Spark while a job runs, after it has left something there."""
    environment = environment or {}
    with temporary_folders(settings, environment):
        folders = [Path(folder) for folder in environment["SPARK_LOCAL_DIRS"].split(",")]
        for folder in folders:
            assert [*folder.iterdir()] == []
            (folder / "blockmgr-1" / "00").mkdir(parents=True)
            (folder / "librocksdbjni1.so").touch()
    return folders


def test_what_a_killed_job_left_is_deleted_and_nothing_of_others(tmp_path: Path, temporary: Path) -> None:
    [other] = folders_of(settings("s3://bucket/other", tmp_path))
    (temporary / "blockmgr-2").mkdir()
    [first] = folders_of(settings("s3://bucket/checkpoint", tmp_path))
    (tmp_path / "kept").mkdir()
    (first / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "kept" / "file").touch()
    assert folders_of(settings("s3://bucket/checkpoint", tmp_path)) == [first] != [other]
    assert (tmp_path / "kept" / "file").exists()
    assert (temporary / "blockmgr-2").exists()
    assert (other / "librocksdbjni1.so").exists()


def test_bases_of_the_state_stay_until_the_system_is_started_again(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may have lost the end of a file that it had not written to the disk yet."""
    job, boot_id = settings("s3://bucket/checkpoint", tmp_path), tmp_path / "boot_id"
    monkeypatch.setattr("streaming.job.sole_job._BOOT_ID", boot_id)
    found = list[list[str]]()
    for boot in ("first\n", "first\n", "second\n", None, None):
        boot_id.unlink(missing_ok=True)
        if boot:
            boot_id.write_text(boot)
        environment: dict[str, str] = {}
        with temporary_folders(job, environment):
            bases, local = Path(environment["SPARK_OFFSETLAKE_BASES"]), Path(environment["SPARK_LOCAL_DIRS"])
            assert bases.parent == local
            found.append([path.name for path in local.rglob("*") if path.is_file()])
            bases.mkdir(exist_ok=True)
            (bases / f"of-{boot}".strip()).touch()
            (bases / "partial.123").touch()
        assert environment == {}
    assert found == [[], ["of-first"], [], [], []]


def test_temporary_files_are_private(tmp_path: Path, temporary: Path) -> None:
    job = settings("s3://bucket/checkpoint", tmp_path)
    [folder] = folders_of(job)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with temporary_folders(job, {}):
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("by", ["TMPDIR", "spark.local.dir"])
def test_temporary_files_are_not_where_everybody_may_put_other_folders(
    tmp_path: Path, temporary: Path, by: str
) -> None:
    """Who renames the folder gets the sockets of Python workers, and gives Spark blocks of their own."""
    shared = temporary if by == "TMPDIR" else tmp_path / "scratch"
    shared.mkdir(exist_ok=True)
    shared.chmod(0o777)
    chosen = {} if by == "TMPDIR" else {"spark.conf": {"spark.local.dir": str(shared)}}
    job = read_settings(options={"job.checkpoint": "s3://bucket/checkpoint", **chosen})
    with pytest.raises(
        ForeignFileError, match=f"temporary files: .* write {shared}, found mode 0777"
    ) as raised:
        folders_of(job)
    assert "TMPDIR" in str(raised.value)
    assert "OFFSETLAKE_JARS" not in str(raised.value)
    shared.chmod(0o1777)  # as /tmp: only owners rename
    folders_of(job)


@pytest.mark.parametrize("in_place", ["link", "file"])
def test_what_is_not_a_folder_of_ours_is_refused_and_left_alone(
    tmp_path: Path, temporary: Path, in_place: str
) -> None:
    job = settings("s3://bucket/checkpoint", tmp_path)
    [folder] = folders_of(job)
    moved = folder.rename(tmp_path / "moved")
    folder.touch() if in_place == "file" else folder.symlink_to(moved)
    with pytest.raises(OffsetlakeError, match=f"expected a folder of user .* at {folder}, found"):
        folders_of(job)
    assert (moved / "librocksdbjni1.so").exists()


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: 4_321)
    job = settings("s3://bucket/checkpoint", tmp_path)
    for _ in range(2):
        with pytest.raises(OffsetlakeError, match=f"of user 4321 .* found one of user {ours}"):
            folders_of(job)
        [folder] = temporary.iterdir()
        (folder / "file").touch()
    assert (folder / "file").exists()


def test_the_files_of_a_job_that_runs_are_left_alone(tmp_path: Path, temporary: Path) -> None:
    """Its checkpoint is where no lock keeps a second job away."""
    command = [sys.executable, "-c", HOLD_TEMPORARY, str(temporary), "s3://bucket/checkpoint"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        [folder] = temporary.iterdir()
        (folder / "used").touch()
        with pytest.raises(MisuseError, match=f" is already using {folder}") as refused:
            folders_of(settings("s3://bucket/checkpoint", tmp_path))
        assert (folder / "used").exists()
        message = str(refused.value)
        assert "own checkpoint (--checkpoint)" in message
        assert "--table-root" not in message
        [asks] = re.findall("`(.*)` shows which", message)
        if shutil.which("fuser"):
            shown = subprocess.run(shlex.split(asks), capture_output=True, text=True, check=True)
            assert str(process.pid) in shown.stdout.split()
        process.kill()
    assert folders_of(settings("s3://bucket/checkpoint", tmp_path)) == [folder]


def folder_of_sockets(settings: Settings) -> Path:
    """Return the folder of Spark's sockets, after it has been seen to be private and to have one."""
    with temporary_folders(settings, {}) as options:
        [option] = [option.strip('"') for option in options if "unix.domain.socket.dir=" in option]
        folder = Path(option.partition("=")[2])
        assert folder.stat().st_mode & 0o777 == 0o700
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(folder / f".{uuid.uuid4()}.sock"))
    return folder


def test_sockets_are_in_a_private_folder_also_where_the_usual_path_is_too_long_for_them(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = settings("s3://bucket/checkpoint", tmp_path)
    short = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        monkeypatch.setattr(tempfile, "tempdir", str(short))
        assert folder_of_sockets(job).parent == short
        monkeypatch.setattr("streaming.job.sole_job._SHORT", short / "2")
        monkeypatch.setattr(tempfile, "tempdir", f"{temporary}/{'é' * 60}")
        for _ in range(2):  # the second start removes the socket that the first has left
            folder = folder_of_sockets(job)
            assert folder.parent == short / "2"
            assert len([*folder.iterdir()]) == 1
    finally:
        shutil.rmtree(short)


@pytest.mark.parametrize("by", ["environment", "setting"])
def test_local_folders_that_a_user_chose_have_folders_of_the_job(
    tmp_path: Path, temporary: Path, by: str
) -> None:
    chosen = f"{tmp_path}/one, {tmp_path}/two"
    environment = {"SPARK_LOCAL_DIRS": chosen} if by == "environment" else {}
    job = read_settings(
        options={"job.checkpoint": str(tmp_path)} | {"spark.conf": {"spark.local.dir": chosen}}
    )
    for _ in range(2):
        folders = folders_of(job, environment)
        assert [folder.parent for folder in folders] == [tmp_path / "one", tmp_path / "two"]
        assert environment == ({"SPARK_LOCAL_DIRS": chosen} if by == "environment" else {})


def test_on_a_cluster_temporary_files_are_where_its_manager_says(tmp_path: Path, temporary: Path) -> None:
    environment: dict[str, str] = {}
    job = settings("s3://bucket/checkpoint", tmp_path, spark__master="spark://elsewhere:7077")
    with temporary_folders(job, environment) as options:
        assert (options, environment, [*temporary.iterdir()]) == ([], {}, [])


@pytest.mark.parametrize("mark", [",", '"'])
def test_a_name_that_spark_cannot_be_given_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    folder = tmp_path / f"tmp{mark}x"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with pytest.raises(MisuseError, match=f"found {mark} in .*Choose another TMPDIR"):
        folders_of(settings(tmp_path, tmp_path))
    assert [*folder.iterdir()] == []
