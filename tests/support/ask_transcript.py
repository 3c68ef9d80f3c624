"""docs/ask.md: its questions, and what the command answers to them on a terminal of 100 columns.

`PYTHONPATH=.:tests/support .venv/bin/python -m ask_transcript` writes the answers into the page again.
"""

import re
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ask_world import write_ask_world
from terminal import on_terminal

from streaming.common.times import parse_moment

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "ask.md"
COLUMNS: Final = 100
NOW: Final = parse_moment("2026-11-22T09:14:07Z", 2**53, name="now").ms
"""When the page asks; the world's last heartbeat is four seconds before."""

_ENTRY: Final = re.compile(
    r"^## (?P<question>\d+\. .+)\n(?:(?!##|```).*\n)*"
    r"```console\n\$ offsetlake (?P<arguments>.+)\n(?P<output>(?:(?!```).*\n)*)```$",
    re.MULTILINE,
)


class Entry(NamedTuple):
    """A question of the page, the arguments of the command that answers it, and its output."""

    question: str
    arguments: str
    output: str


def entries(page: str) -> list[Entry]:
    """Return what a page asks."""
    return [Entry(*found.groups()) for found in _ENTRY.finditer(page)]


def printed(arguments: Sequence[str]) -> list[str]:
    """Return what each command prints about the company, standard error and output as a person sees them."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_ask_world(directory / "warehouse", NOW - 4_000)
        asked = [(COLUMNS, shlex.split(words)) for words in arguments]
        return on_terminal(asked, directory=directory, now=NOW, with_errors=True)


def main() -> None:
    """Run every command of the page and write what it prints into the page."""
    page = PAGE.read_text()
    outputs = iter(printed([entry.arguments for entry in entries(page)]))

    def answered(found: re.Match[str]) -> str:
        start = found.start("output") - found.start()
        return f"{found[0][:start]}{next(outputs)}```"

    PAGE.write_text(_ENTRY.sub(answered, page))


if __name__ == "__main__":
    main()
