"""What pages show of the command, docs/ask.md above all: a company on a terminal of 100 columns.

`PYTHONPATH=.:tests/support .venv/bin/python -m ask_transcript` writes the outputs into the pages again.
"""

import re
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ask_world import AskWorld, write_ask_world
from terminal import on_terminal

from streaming.common.times import parse_moment

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "ask.md"
COLUMNS: Final = 100
NOW: Final = parse_moment("2026-11-22T09:14:07Z", 2**53, name="now").ms
"""When the page asks; the world's last heartbeat is four seconds before."""

_ENTRY: Final = re.compile(
    r"^\$ offsetlake (?P<arguments>(?!serve |check ).+)\n(?P<output>(?:(?!\$ |```).*\n)+)(?=\$ |```)",
    re.MULTILINE,
)
"""A command, and the lines up to the next one or the end of the block: what it prints. `serve` does not end,
and `check` asks brokers: test_docs_commands.py runs them."""


class Entry(NamedTuple):
    """The arguments of a command on a page, and its output there."""

    arguments: str
    output: str


def pages() -> list[Path]:
    """Return the pages that show what commands print."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [page for page in found if entries(page.read_text())]


def entries(page: str) -> list[Entry]:
    """Return the commands of a page of which it shows what they print."""
    return [Entry(*found.groups()) for found in _ENTRY.finditer(page)]


def write_company(directory: Path) -> AskWorld:
    """Write the tables of the company, in the folder where its commands run."""
    return write_ask_world(directory / "warehouse", NOW - 4_000)


def printed(arguments: Sequence[str], directory: Path) -> list[str]:
    """Return what each command prints about the company, standard error and output as a person sees them."""
    asked = [(COLUMNS, shlex.split(words, comments=True)) for words in arguments]
    return on_terminal(asked, directory=directory, now=NOW, with_errors=True)


def main() -> None:
    """Run every command of the pages and write what it prints into them."""
    asked = {entry.arguments: "" for page in pages() for entry in entries(page.read_text())}
    with tempfile.TemporaryDirectory() as name:
        write_company(Path(name))
        outputs = dict(zip(asked, printed(list(asked), Path(name)), strict=True))

    def answered(found: re.Match[str]) -> str:
        start = found.start("output") - found.start()
        return f"{found[0][:start]}{outputs[found['arguments']]}"

    for page in pages():
        page.write_text(_ENTRY.sub(answered, page.read_text()))


if __name__ == "__main__":
    main()
