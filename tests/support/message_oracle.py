"""Kafka's own generated classes as the judge of bytes (`java/MessageOracle.java`), and damage to judge."""

import json
import random
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from java_programs import java_program

RunOracle = Callable[..., list[str]]  # with the jars given: takes arguments and `lines`


@dataclass(frozen=True)
class Line:
    """Bytes and what Kafka makes of them: JSON, or `!` and an exception."""

    kind: str
    key: bytes | None
    value: bytes | None
    answer: str = ""

    @property
    def is_refused(self) -> bool:
        return self.answer.startswith("!")

    @property
    def document(self) -> Any:
        return json.loads(self.answer)


def to_hex(data: bytes | None) -> str:
    return "-" if data is None else data.hex()


def from_hex(text: str) -> bytes | None:
    return None if text == "-" else bytes.fromhex(text)


def run(jars: Path, *arguments: str, lines: Iterable[str] = ()) -> list[str]:
    """Run the oracle to its end and return the lines that it prints."""
    command = java_program("MessageOracle", [jars], *arguments)
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def generated(printed: Iterable[str]) -> list[Line]:
    """The messages that the oracle has made."""
    return [
        Line(kind, from_hex(key), from_hex(value), answer)
        for kind, key, value, answer in (line.split("\t") for line in printed)
    ]


def answered(run_oracle: RunOracle, lines: list[Line]) -> list[Line]:
    """The same bytes with what the oracle makes of them."""
    texts = ["\t".join([line.kind, to_hex(line.key), to_hex(line.value)]) for line in lines]
    answers = run_oracle("read", lines=texts)
    return [
        Line(line.kind, line.key, line.value, answer) for line, answer in zip(lines, answers, strict=True)
    ]


def damaged(data: bytes | None, rng: random.Random) -> bytes | None:
    """The bytes cut short, or with a few replaced, put in or taken out."""
    if not data or rng.random() < 0.3:
        return data
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(changed) + 1)
        match rng.randrange(5):
            case 0:
                del changed[place:]
            case 1:
                changed[place : place + 1] = bytes(
                    [rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, 0xED, rng.randrange(256)])]
                )
            case 2:
                changed[place:place] = rng.choice([b"\x80", b"\xff" * 4, b"\xed\xa0\x80", b"\xf0\x9f", b"\0"])
            case 3:
                del changed[place : place + rng.randint(1, 4)]
            case 4:
                changed[place : place + 5] = rng.choice([b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x10"])
    return bytes(changed)
