"""How soon answered commits are seen in the tables, by a reader with the queries of the job's checkout."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from commit_client import Commit

from tests.benchmarks.bench_follow import PROBE_GROUP, READS_PER_S

_FIRST_READ_WITHIN_S: Final = 60.0
_LAST_ARE_SEEN_WITHIN_S: Final = 30.0


class Latencies:
    """Times the commits of the probed group that are answered within each `with` block, in seconds."""

    def __init__(self, tree: Path | None, tables: Path) -> None:
        self._tree = tree
        self._tables = tables
        self._waiting: dict[Commit, float] = {}
        self._lock = threading.Lock()
        self._is_timing = False
        self._has_read = threading.Event()
        self.seconds: list[float] = []

    def answered(self, commit: Commit, moment: float) -> None:
        """Take note of an answered commit."""
        if self._is_timing and commit.group == PROBE_GROUP:
            with self._lock:
                self._waiting[commit] = moment

    def __enter__(self) -> Self:
        self.seconds = []
        if self._tree is not None:
            program = [sys.executable, str(Path(__file__).with_name("probe_reader.py"))]
            self._reader = subprocess.Popen(
                [*program, str(self._tables), PROBE_GROUP, str(READS_PER_S)],
                env={**os.environ, "PYTHONPATH": str(self._tree)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._thread = threading.Thread(target=self._read, name="latencies", daemon=True)
            self._has_read.clear()
            self._thread.start()
            assert self._has_read.wait(_FIRST_READ_WITHIN_S), "the reader of the tables does not read"
            self._is_timing = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tree is None:
            return
        self._is_timing = False
        deadline = time.monotonic() + _LAST_ARE_SEEN_WITHIN_S
        while error is None and self._waiting and time.monotonic() < deadline:
            assert self._reader.poll() is None, "the reader of the tables has ended"
            time.sleep(0.1)
        assert self._reader.stdin is not None
        self._reader.stdin.close()
        self._reader.wait(60)
        self._thread.join()
        assert error is not None or not self._waiting, f"commits that were never seen: {self._waiting}"

    def _read(self) -> None:
        assert self._reader.stdout is not None
        for line in self._reader.stdout:
            answer = json.loads(line)
            self._has_read.set()
            self._compare(answer["moment"], {int(number): at for number, at in answer["seen"].items()})

    def _compare(self, moment: float, seen: dict[int, int]) -> None:
        with self._lock:
            shown = [
                commit for commit in self._waiting if seen.get(commit.partitions[0], -1) >= commit.offsets[0]
            ]
            self.seconds += [moment - self._waiting.pop(commit) for commit in shown]
