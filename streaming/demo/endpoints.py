"""The listeners of the demo: `offsetlake serve` over its tables, a process of its own, and what to try
there."""

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from streaming.demo.child import Child
from streaming.demo.local_broker import free_port
from streaming.jvm.jars import ensure_jars
from streaming.jvm.java import find_java
from streaming.model.errors import OffsetlakeError

KAFKA_PORT: Final = 9192  # as in the documentation; another one where it is taken
HTTP_PORT: Final = 8720

_TOOL: Final = "kafka-consumer-groups.sh"
_TOOL_CLASS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


class EndpointsError(OffsetlakeError):
    """The process that answers for the demo has ended."""


class Endpoints:
    """Answers Kafka's clients and Prometheus from the tables while it is entered, on this machine only.

    Kafka's own command is written into `directory`, to be tried: it runs from the cached jars.
    """

    def __init__(self, table_root: str, directory: Path) -> None:
        self.kafka = f"127.0.0.1:{free_port(KAFKA_PORT)}"
        self.http = f"127.0.0.1:{free_port(HTTP_PORT)}"
        listeners = ["--kafka", self.kafka, "--http", self.http]
        self._arguments = ["serve", "--table-root", table_root, *listeners]
        self._log = directory / "serve.log"
        self._tool = directory / _TOOL
        self._child: Child | None = None

    @property
    def commands(self) -> list[list[str]]:
        """Return what can be asked at the listeners, as words of a shell: one command for each listener."""
        # By its shell: a temporary directory may forbid to run what is in it.
        tool = ["sh", str(self._tool), "--bootstrap-server", self.kafka]
        return [[*tool, "--describe", "--all-groups"], ["curl", "-s", f"http://{self.http}/metrics"]]

    def check(self) -> None:
        """Raise `EndpointsError` if the process has ended, with what it said: the file will be gone."""
        if self._child is not None and not self._child.is_running:
            said = self._log.read_text(encoding="utf-8", errors="replace").strip()
            where = f"Kafka's clients on {self.kafka} and HTTP on {self.http}"
            raise EndpointsError(f"answering {where}: the process has ended.\n{said}")

    def __enter__(self) -> Self:
        self._tool.write_text(tool_script([ensure_jars("tools"), ensure_jars("broker")]))
        command = [*this_program(), *self._arguments]
        self._child = Child(command, log=self._log, directory=Path.cwd())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None:
            self._child.end(signal.SIGTERM)


def tool_script(jars: Sequence[Path]) -> str:
    """Return a script that is Kafka's own command, from directories of jars."""
    path = ":".join(f"{directory}{os.sep}*" for directory in jars)
    words = [str(find_java()), "-XX:TieredStopAtLevel=1", "-cp", path, _TOOL_CLASS]
    return f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'


def this_program() -> list[str]:
    """Return the words that run `offsetlake` in whatever folder, as it was started."""
    program = Path(sys.argv[0])
    is_command = program.name == "offsetlake" and program.is_file()
    return [str(program.absolute())] if is_command else [sys.executable, "-P", "-m", "streaming.cli"]
