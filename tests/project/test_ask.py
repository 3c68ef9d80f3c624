"""What pages show of the command is what it prints; docs/ask.md: thirty questions of a platform engineer."""

import re

import pytest
from ask_transcript import COLUMNS, PAGE, Entry, entries, pages, printed

SHOWN = [(page, entry) for page in pages() for entry in entries(page.read_text())]
ENTRIES = entries(PAGE.read_text())


@pytest.fixture(scope="module")
def outputs() -> dict[str, str]:
    arguments = list({entry.arguments: 1 for _, entry in SHOWN})
    return dict(zip(arguments, printed(arguments), strict=True))


@pytest.mark.parametrize(
    "entry",
    [entry for _, entry in SHOWN],
    ids=[f"{page.name} {entry.arguments}" for page, entry in SHOWN],
)
def test_an_answer_is_what_the_page_shows(outputs: dict[str, str], entry: Entry) -> None:
    """If a change is meant: `python -m ask_transcript` writes the pages."""
    assert outputs[entry.arguments] == entry.output


def test_thirty_questions_are_asked_in_order() -> None:
    page = PAGE.read_text()
    assert re.findall(r"^## (\d+)\. ", page, re.MULTILINE) == [str(number) for number in range(1, 31)]
    assert page.count("\n## ") == page.count("```console") == len(ENTRIES)
    assert len({entry.arguments for entry in ENTRIES}) == len(ENTRIES)


def test_the_readme_and_the_commands_show_what_is_printed_too() -> None:
    assert {"README.md", "ask.md", "commands.md"} <= {page.name for page, _ in SHOWN}
    shown = " ".join(entry.arguments.split()[0] for page, entry in SHOWN if page.name != "ask.md")
    assert {"offsets", "lag", "health", "restore", "history"} <= set(shown.split())


def test_tables_fit_the_terminal_they_were_printed_on() -> None:
    fitted = [entry for _, entry in SHOWN if not {"--output", "--wide"} & set(entry.arguments.split())]
    assert len(fitted) > len(ENTRIES) / 2
    lines = [line for entry in fitted for line in entry.output.splitlines()]
    assert [line for line in lines if len(line) > COLUMNS and not line.startswith("offsetlake: ")] == []
