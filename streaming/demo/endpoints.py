"""The listeners of the demo: `offsetlake serve` over its tables as a process, and commands to try them."""

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

KAFKA_PORT: Final = 9192  # as in the documentation; another one if it is taken
HTTP_PORT: Final = 8720

_TOOL: Final = "kafka-consumer-groups.sh"
_TOOL_CLASS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


class EndpointsError(OffsetlakeError):
    """The process with the demo's listeners has ended."""


class Endpoints:
    """Serves the tables to Kafka clients and Prometheus while entered, on this machine only.

    Writes Kafka's own command, which runs from the cached jars, into `directory`.
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
    def page(self) -> str:
        """The address of the pages, for a browser."""
        return f"http://{self.http}/"

    @property
    def commands(self) -> list[list[str]]:
        """Commands to try the listeners, as words of a shell: one for each listener."""
        # through sh: a temporary directory may be mounted noexec
        tool = ["sh", str(self._tool), "--bootstrap-server", self.kafka]
        return [[*tool, "--describe", "--all-groups"], ["curl", "-s", f"http://{self.http}/metrics"]]

    def check(self) -> None:
        """Raise `EndpointsError` with the log if the process has ended: the file will be deleted."""
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
    """Return a shell script for Kafka's own command, from directories of jars."""
    path = ":".join(f"{directory}{os.sep}*" for directory in jars)
    words = [str(find_java()), "-XX:TieredStopAtLevel=1", "-cp", path, _TOOL_CLASS]
    return f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'


def this_program() -> list[str]:
    """Return the command words that run `offsetlake` in any folder, as this process was started."""
    program = Path(sys.argv[0])
    is_command = program.name == "offsetlake" and program.is_file()
    return [str(program.absolute())] if is_command else [sys.executable, "-P", "-m", "streaming.cli"]
