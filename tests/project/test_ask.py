"""docs/ask.md: thirty questions of a platform engineer, each with a command and its output."""

import pytest
from ask_transcript import COLUMNS, PAGE, Entry, entries, printed

ENTRIES = entries(PAGE.read_text())


@pytest.fixture(scope="module")
def outputs() -> dict[str, str]:
    arguments = [entry.arguments for entry in ENTRIES]
    return dict(zip(arguments, printed(arguments), strict=True))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.arguments)
def test_an_answer_is_what_the_page_shows(outputs: dict[str, str], entry: Entry) -> None:
    """If a change is meant: `python -m ask_transcript` writes the page."""
    assert outputs[entry.arguments] == entry.output


def test_thirty_questions_are_asked_in_order() -> None:
    assert [entry.question.split(".")[0] for entry in ENTRIES] == [str(number) for number in range(1, 31)]
    page = PAGE.read_text()
    assert page.count("\n## ") == page.count("```console") == len(ENTRIES)
    assert len({entry.arguments for entry in ENTRIES}) == len(ENTRIES)


def test_tables_fit_the_terminal_they_were_printed_on() -> None:
    fitted = [entry for entry in ENTRIES if not {"--output", "--wide"} & set(entry.arguments.split())]
    assert len(fitted) > len(ENTRIES) / 2
    lines = [line for entry in fitted for line in entry.output.splitlines()]
    assert [line for line in lines if len(line) > COLUMNS and not line.startswith("offsetlake: ")] == []
