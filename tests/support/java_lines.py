"""Runs a Java program of the tests that answers JSON lines with JSON lines."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from java_programs import java_program


class JavaError(Exception):
    """The Java program answered with an exception; the text is its own."""


class JavaLines:
    """The running program; see `start_java_lines`. The program bounds how long an answer takes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return the answer; raises `JavaError`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the Java program ended with exit code {self._process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise JavaError(answer["error"])
        return answer


@contextmanager
def start_java_lines(name: str, jars: Sequence[Path], *arguments: str) -> Iterator[JavaLines]:
    """Run `java/<name>.java` with the jars of these folders, until the end of the block.

    Leaving the block closes its input, which ends it.
    """
    with subprocess.Popen(
        java_program(name, jars, *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        yield JavaLines(process)
