"""The process of the command: it ends as the command does, whatever its threads are at."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

READ_AHEAD = """
import sys, threading, time
from pathlib import Path
import pyarrow.dataset as ds
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import PyFileSystem

class Slow(DeltaStorageHandler):
    def open_input_file(self, path):
        opened.set()
        time.sleep(0.05)
        return super().open_input_file(path)

opened = threading.Event()
files = [file.name for file in Path(sys.argv[1]).glob("*.parquet")]
scanned = ds.dataset(files, format="parquet", filesystem=PyFileSystem(Slow(sys.argv[1])), schema=SCHEMA)
threading.Thread(target=lambda: list(scanned.to_batches()), daemon=True).start()
opened.wait()
sys.argv[1:] = ARGUMENTS
from streaming.cli.__main__ import run
run()
"""
"""Reads tables by threads of Arrow, which ask for files from Python, while the command runs and ends."""

INTERRUPTED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == NAME:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of shells have it ignored
sys.meta_path.insert(0, Interrupting())
from streaming.cli.__main__ import run
run()
"""


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def many_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("many")
    write_deltalake(root, pa.table({"one": range(10)}))
    [file] = root.glob("*.parquet")
    for number in range(200):
        (root / f"{number}.parquet").hardlink_to(file)
    return root


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--version"], 0, "version"),
        (["status", "--table-root", "/nowhere"], 1, "expected a Delta table"),
        (["status", "--no-such-option"], 2, "No such option"),
    ],
)
def test_a_command_ends_well_while_threads_read_ahead(
    many_files: Path, arguments: list[str], code: int, said: str
) -> None:
    schema = "__import__('pyarrow').schema([('one', 'int64')])"
    program = READ_AHEAD.replace("SCHEMA", schema).replace("ARGUMENTS", repr(arguments))
    ended = python(program, str(many_files))
    assert ended.returncode == code, ended.stderr
    assert said in ended.stdout + ended.stderr


@pytest.mark.parametrize("module", ["click", "streaming.cli.commands", "streaming.model.errors"])
def test_ctrl_c_while_modules_are_loaded_ends_the_command_quietly(module: str) -> None:
    ended = python(INTERRUPTED.replace("NAME", repr(module)))
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
