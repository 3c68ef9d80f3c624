"""The clients of a soak: a process for each library, which asks with many of them as it is told by lines."""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import client_programs
from client_programs import HERE, Program
from java_programs import java_program

from streaming.jvm.jars import ensure_jars

LIMIT_S: Final = 150.0


@dataclass(frozen=True)
class Library:
    """A client library: its program, and how many clients there are by listener."""

    program: Callable[[], Program]
    clients: Mapping[str, int]
    fetches_many: bool = True
    """Whether it fetches the offsets of several groups in one request."""
    asks_ends: bool = True
    leaving: int = 0
    """How many of the clients at each listener connect for each question, and leave."""


def _python(name: str, folder: str = "") -> Program:
    path = os.pathsep.join([str(HERE.parent), folder])
    return Program([sys.executable, str(HERE / "soak" / f"{name}.py")], {"PYTHONPATH": path})


def _kafkajs() -> Program:
    program = client_programs.kafkajs()
    node, script = program.command
    return replace(program, command=[node, str(Path(script).with_name("soak.js"))])


def _go(command: str) -> Program:
    return Program([client_programs.kadm().command[0], command])


LIBRARIES: Final[Mapping[str, Library]] = {
    "librdkafka": Library(
        lambda: _python("librdkafka"),
        {"plain": 16, "all": 8, "tokens": 8, "past": 4},
        fetches_many=False,
        leaving=2,
    ),
    "kafka-python": Library(
        lambda: _python("kafka_python", client_programs.kafka_python().environment["PYTHONPATH"]),
        {"plain": 10, "few": 6},
    ),
    "Java's Admin": Library(
        lambda: Program(java_program("SoakAdmins", [ensure_jars("broker")])),
        {"plain": 14, "all": 6, "few": 6, "past": 4},
    ),
    "kadm": Library(lambda: _go("soak-kadm"), {"plain": 14, "few": 8, "past": 4}, leaving=2),
    "Sarama": Library(lambda: _go("soak-sarama"), {"plain": 12}, fetches_many=False, asks_ends=False),
    "kafkajs": Library(_kafkajs, {"plain": 14, "all": 6}, fetches_many=False),
}


class Asker:
    """A process that asks. `process` is there between `start` and `stop`."""

    def __init__(self, program: Program, log: Path) -> None:
        self._program, self._log = program, log
        self._waiting: dict[str, asyncio.Future[list[str]]] = {}

    async def start(self) -> None:
        with self._log.open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self._program.command,
                env={**os.environ, **self._program.environment},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        self._reading = asyncio.create_task(self._read())

    async def stop(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        self._reading.cancel()

    async def ask(self, number: str, words: str) -> list[str]:
        """Let a client ask; return the words of the line that comes back."""
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self.tell(number, words)
        try:
            return await asyncio.wait_for(future, LIMIT_S)
        finally:
            self._waiting.pop(number, None)

    def tell(self, number: str, words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{number} {words}\n".encode())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            number, *words = line.decode().split()
            if (future := self._waiting.get(number)) is not None and not future.done():
                future.set_result(words)
