"""The real job as a process of its own, to be watched, or killed with all that belongs to it: see `bombs`."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bombs.sitecustomize import kill_session
from processes import JVM, Parts, parts_of, processes_of_session

from streaming.tables.tables import Tables

ROOT: Final = Path(__file__).parents[2]
_BOMBS: Final = Path(__file__).parent / "bombs"
_LIMIT_S: Final = 300.0  # six seconds are usual; a busy machine takes twenty times as long
_OF_OTHERS: Final = ("pandas", "pyarrow", "click")
"""Modules that stand in the job's current folder, where anybody may have put them: none may be imported."""
SETTINGS: Final = """
[job]
memory = "2560MiB"
trigger = "500ms"
state_partitions = 2
heartbeat_every = "1s"
check_topic_every = "2s"
[tables]
fold_every = "1s"
maintain_every = "5s"
[alerts]
log = "off"
[spark]
master = "local[2]"
log_file = "{directory}/spark.log"
"""


@dataclass
class JobProcess:
    """Starts of a job with tables and a checkpoint of its own under `directory`, one after the other.

    In `settings`, `{directory}` stands for that folder. `table_root` is another place of the tables, and
    `storage_options` are for reading them there in this process.
    """

    directory: Path
    bootstrap: str
    settings: str = SETTINGS
    more_settings: str = ""
    checkpoint: str = ""
    table_root: str = ""
    storage_options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    python_path: tuple[Path, ...] = ()
    starts: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = self.settings.format(directory=self.directory) + self.more_settings
        (self.directory / "settings.toml").write_text(settings)
        for name in _OF_OTHERS:
            (self.directory / f"{name}.py").write_text("raise SystemExit('imported from the current folder')")

    @property
    def tables(self) -> Tables:
        """The tables of the job."""
        return Tables(self.table_root or str(self.directory / "tables"), self.storage_options)

    @property
    def output(self) -> str:
        """What the present or last start has printed."""
        return self.output_file.read_text()

    @property
    def parts(self) -> Parts:
        """The processes of the present start, and which part of the job each is."""
        driver = self.driver.pid
        return parts_of(processes_of_session(driver), driver)

    @property
    def driver(self) -> subprocess.Popen[bytes]:
        """The driver of the present or last start."""
        assert self.process is not None, "the job has not been started"
        return self.process

    def said(self, pattern: str) -> bool:
        """Tell whether the present or last start has printed a line that begins so, after its time."""
        return re.search(rf"^\S+Z (?:{pattern})", self.output, re.MULTILINE) is not None

    def check(self) -> None:
        """Fail if the job has ended."""
        assert self.driver.poll() is None, f"the job has ended:\n{self.output[-2_000:]}"

    def start(self, command: str = "run", *options: str, bomb: str | None = None) -> None:
        """Start `offsetlake run` (or another command) with a bomb: `<point>:<how manieth time>`."""
        self.starts += 1
        folders = (*self.python_path, ROOT) if bomb is None else (_BOMBS, ROOT)
        environment = {**os.environ, **self.environment, "PYTHONPATH": ":".join(map(str, folders))}
        if bomb is not None:
            environment["BOMB_OF_JOB"] = bomb
        arguments = [command, "--bootstrap-server", self.bootstrap, "--config", "settings.toml"]
        arguments += ["--checkpoint", self.checkpoint or str(self.directory / "checkpoint")]
        arguments += ["--table-root", self.tables.root, *options]
        with self.output_file.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "streaming.cli", *arguments],
                cwd=self.directory,
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait(self, timeout_s: float = _LIMIT_S) -> int:
        """Wait for the end of the process, and of all that it started; return its exit code."""
        try:
            code = self.driver.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the job did not end in {timeout_s:g} s:\n{self.output}") from None
        deadline = time.monotonic() + timeout_s
        while processes_of_session(self.driver.pid):
            assert time.monotonic() < deadline, "processes of the job outlive it"
            time.sleep(0.1)
        return code

    def stop(self) -> int:
        """Stop the job as a service manager does; return its exit code."""
        self.driver.send_signal(signal.SIGTERM)
        return self.wait()

    def suspend(self) -> None:
        """Suspend all processes of the job, as a hypervisor does with a machine."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let all processes of the job go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for pid in processes_of_session(self.driver.pid):
            os.kill(pid, number)

    @property
    def is_running(self) -> bool:
        """Whether the driver's process exists."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """Kill all processes of the job."""
        if self.process is not None:
            kill_session(self.process.pid)
            self.process.wait()

    def kill_one(self, *, driver: bool) -> None:
        """Kill the driver alone, or the JVM alone, once it exists."""
        if driver:
            self.driver.kill()
            return
        while JVM not in (parts := self.parts).values():
            self.check()
            time.sleep(0.05)
        os.kill(next(pid for pid, part in parts.items() if part == JVM), signal.SIGKILL)

    @property
    def output_file(self) -> Path:
        """Where the present or last start prints to."""
        return self.directory / f"out-{self.starts}.txt"
