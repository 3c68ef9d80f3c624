"""A contestant while it runs: its processes, what they use, and what they have used at the end."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from bombs.sitecustomize import kill_session
from processes import (
    WORKERS,
    Parts,
    forked_worker_seconds,
    parts_of,
    processes_of_session,
    processor_seconds,
    proportional_memory,
    thread_seconds,
)

_LIMIT_S: Final = 900.0
_LOOK_EVERY_S: Final = 0.2
_REAPER: Final = Path(__file__).with_name("reaper.py")


@dataclass(frozen=True)
class Command:
    """What is started, with what is added to the environment."""

    arguments: Sequence[str]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Used:
    """What a command and all that it started have used up to now, in seconds of processor time."""

    moment: float
    parts: Counter[str]
    threads: Counter[str]

    def per_second_since(self, earlier: "Used") -> "Used":
        """What was used in cores (1 = a core) between two moments."""
        seconds = self.moment - earlier.moment
        return Used(
            seconds,
            Counter({name: (self.parts[name] - earlier.parts[name]) / seconds for name in self.parts}),
            Counter({name: (self.threads[name] - earlier.threads[name]) / seconds for name in self.threads}),
        )


@dataclass(frozen=True)
class Ended:
    """A command that has ended: exit code, when it began and ended (of time.time()), processor time."""

    code: int
    started: float
    ended: float
    processor_seconds: float

    @property
    def seconds(self) -> float:
        """From the start to the end."""
        return self.ended - self.started

    def but_ended(self, moment: float) -> "Ended":
        """The same, with the moment when its work was done in place of its exit."""
        return replace(self, ended=moment)


class Watched:
    """A command that runs in a session of its own, from the `with` block's begin until it ends or its end."""

    def __init__(self, command: Command, folder: Path) -> None:
        self._command = command
        self._folder = folder
        self._facts = folder / "reaper.jsonl"
        self.output_file = folder / "output.txt"

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._facts.unlink(missing_ok=True)
        with self.output_file.open("wb") as output:
            self._reaper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_REAPER), str(self._facts), *self._command.arguments],
                cwd=self._folder,
                env={**os.environ, **self._command.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.wait_until(lambda: len(self._told()) > 0, "the start")
        self._workers = _Workers(self)
        self._workers.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reaper.poll() is None:
            kill_session(self._reaper.pid)
            self._reaper.wait()
        self._workers.finish()

    @property
    def pid(self) -> int:
        """The process of the command itself."""
        return int(self._told()[0]["pid"])

    @property
    def started(self) -> float:
        """When the command was started (of time.time())."""
        return float(self._told()[0]["started"])

    @property
    def parts(self) -> Parts:
        """Its processes, and which part of it each is."""
        found = parts_of(processes_of_session(self._reaper.pid), self.pid)
        return {pid: part for pid, part in found.items() if pid != self._reaper.pid}

    def used(self) -> Used:
        """Read the processor time up to now, with that of processes that have ended."""
        parts = self.parts
        orphans = parts_of([self._reaper.pid], self.pid)  # those that the reaper had to wait for
        seconds = processor_seconds({**parts, **orphans})
        seconds[WORKERS] += self._workers.seconds_of_ended(parts)
        return Used(time.time(), seconds, thread_seconds(parts))

    def memory(self) -> Counter[str]:
        """Read how much memory each part has (bytes, shared pages in proportion)."""
        return proportional_memory(self.parts)

    @property
    def is_running(self) -> bool:
        """Whether anything of it is left."""
        return self._reaper.poll() is None

    def check(self) -> None:
        """Fail if it has ended."""
        assert self.is_running, self.said("has ended")

    def wait_until(self, is_so: Callable[[], bool], what: str, limit_s: float = _LIMIT_S) -> None:
        """Wait until something is so; fail if the command ends before."""
        deadline = time.monotonic() + limit_s
        while not is_so():
            self.check()
            assert time.monotonic() < deadline, self.said(f"was waited for in vain: {what}")
            time.sleep(0.05)

    def wait(self, limit_s: float = _LIMIT_S) -> Ended:
        """Wait until nothing of it is left; fail if it does not succeed."""
        try:
            self._reaper.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.said(f"did not end in {limit_s:g} s")) from None
        self._workers.finish()
        end = self._told()[1]
        used = end["processor_seconds"] + self._workers.seconds_of_ended(end["waited"])
        return Ended(end["code"], self.started, end["ended"], used)

    def stop(self) -> Ended:
        """Stop it as a service manager does."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        return self.wait(120)

    def _told(self) -> list[dict[str, Any]]:
        """What the reaper has told, whole lines only."""
        with suppress(FileNotFoundError):
            return [json.loads(line) for line in self._facts.read_text().split("\n")[:-1]]
        return []

    def said(self, what: str) -> str:
        """Compose a message with the end of what it has printed."""
        output = self.output_file.read_text(errors="replace")
        return f"{' '.join(self._command.arguments[:4])} {what}; it has said:\n{output[-2_000:]}"


class _Workers(threading.Thread):
    """Looks at Python workers again and again: only the last look tells what one that has ended had used."""

    def __init__(self, watched: Watched) -> None:
        super().__init__(name="workers", daemon=True)
        self._watched = watched
        self._done = threading.Event()
        self._seen: dict[int, float] = {}

    def run(self) -> None:
        """Look until told to stop."""
        while not self._done.wait(_LOOK_EVERY_S):
            self._seen.update(forked_worker_seconds(self._watched.parts))

    def finish(self) -> None:
        """Look no more."""
        self._done.set()
        self.join()

    def seconds_of_ended(self, counted: Container[int]) -> float:
        """The processor time of those that have ended: all but those that are counted elsewhere."""
        return sum(seconds for pid, seconds in list(self._seen.items()) if pid not in counted)


class PeakMemory(threading.Thread):
    """Looks at a command's memory at once and every second; `peak`: its parts when it had most in all."""

    def __init__(self, watched: Watched) -> None:
        super().__init__(name="peak memory", daemon=True)
        self._watched = watched
        self._done = threading.Event()
        self.peak: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()

    def run(self) -> None:
        """Look until told to stop."""
        pause_s = 0.1
        while not self._done.wait(pause_s):
            self.peak = max(self.peak, self._watched.memory(), key=Counter.total)
            pause_s = min(1.0, 2 * pause_s)
