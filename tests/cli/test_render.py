"""Rendering: JSON and CSV are for programs, the table is for people, and text from the log stays text."""

import csv
import io
import json
import typing
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from csv_texts import without_escapes
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.cli.layout.forms import SQL
from streaming.cli.output import FORMATS, Format
from streaming.cli.render import TableStyle, print_rows
from streaming.model import schemas
from streaming.model.schemas import GROUPS, OFFSETS

OFFSET = {
    "group": "billing",
    "topic": "orders",
    "partition": 3,
    "committed_offset": 2**53 + 1,
    "metadata": "",
    "commit_timestamp": 1_700_000_000_123_000,
    "source_timestamp": -1_000,
}
IDENTITY = {"member_id": "m-1", "group_instance_id": None, "client_id": "c", "client_host": "/10.0.0.1"}
MEMBER = dict.fromkeys(schemas.MEMBER.names) | IDENTITY


def printed(rows: list[dict[str, Any]], output: Format, schema: pa.Schema = OFFSETS) -> str:
    out = io.StringIO()
    print_rows(pa.Table.from_pylist(rows, schema), output, SQL, TableStyle(), out)
    return out.getvalue()


# --- JSON ------------------------------------------------------------------------------------------------


def test_json_is_one_array_of_objects_with_the_columns_of_the_table() -> None:
    [row] = json.loads(printed([OFFSET], "json"))
    assert list(row) == OFFSETS.names
    assert row["committed_offset"] == 2**53 + 1
    assert row["metadata"] == ""
    assert row["leader_epoch"] is None


TIMES = {
    1_700_000_000_123_000: "2023-11-14T22:13:20.123Z",
    0: "1970-01-01T00:00:00.000Z",
    -1_000: "1969-12-31T23:59:59.999Z",
    -62_135_596_800_000_000: "0001-01-01T00:00:00.000Z",
    253_402_300_799_999_000: "9999-12-31T23:59:59.999Z",
}


@pytest.mark.parametrize(("microseconds", "text"), TIMES.items())
@pytest.mark.parametrize("output", FORMATS)
def test_timestamps_are_iso_8601_in_utc_with_milliseconds(
    output: Format, microseconds: int, text: str
) -> None:
    assert text in printed([{**OFFSET, "commit_timestamp": microseconds}], output)


def test_json_keeps_lists_and_structs() -> None:
    [row] = json.loads(printed([{"group": "", "members": [MEMBER], "subscribed_topics": []}], "json", GROUPS))
    assert row["members"] == [MEMBER]
    assert row["subscribed_topics"] == []


def test_json_has_one_object_on_a_line() -> None:
    lines = printed([{"group": "a"}, {"group": "b"}], "json").splitlines()
    assert [json.loads(line.strip("[], "))["group"] for line in lines] == ["a", "b"]


@settings(deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"))))
def test_json_gives_back_any_text(texts: list[str]) -> None:
    rows = json.loads(printed([{"group": text} for text in texts], "json"))
    assert [row["group"] for row in rows] == texts


# --- CSV -------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8")) | st.text("\0\u24000a,\"\\'= \t")))
def test_csv_gives_back_any_text_and_holds_no_nul(texts: list[str]) -> None:
    text = printed([{"group": text} for text in texts], "csv")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert "\0" not in text
    assert [without_escapes(row["group"]) for row in rows] == texts


FORMULAS = [
    '=HYPERLINK("http://x")',
    "+1",
    "-5",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "\ttext",
    "  =1",
    "\u00a0=1",
    "\u3000=1",
    *("\uff1d1", "\uff0b1", "\uff0d1", "\uff201"),
    "'quoted",
    "''",
]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_no_text_in_csv_is_a_formula(kind: pa.DataType) -> None:
    out = io.StringIO(newline="")
    print_rows(pa.table({"=name": pa.array(FORMULAS).cast(kind)}), "csv", SQL, TableStyle(), out)
    [name], *rows = csv.reader(io.StringIO(out.getvalue(), newline=""))
    assert name == "'=name"
    assert [text for [text] in rows] == [f"'{text}" for text in FORMULAS]
    assert [without_escapes(text) for [text] in rows] == FORMULAS


def test_numbers_in_csv_stay_numbers() -> None:
    numbers = pa.table(
        {
            "lag": [-5],
            "part": [-0.5],
            "least": [float("-inf")],
            "exact": [Decimal("-1.50")],
            "coded": pa.array([-7]).dictionary_encode(),
            "null": pa.array([None], pa.string()),
            "empty": [""],
            "members": [["=1\u2400"]],
            "is": [True],
        }
    )
    out = io.StringIO()
    print_rows(numbers, "csv", SQL, TableStyle(), out)
    assert out.getvalue().splitlines()[1] == '-5,-0.5,-Infinity,-1.50,-7,,"","[""=1\u2400\u2400""]",true'


def test_csv_changes_no_text_without_nul() -> None:
    """A backslash above all, which JSON in metadata has."""
    [row] = csv.DictReader(io.StringIO(printed([{"metadata": '{"a\\n": "\\0"}'}], "csv")))
    assert row["metadata"] == '{"a\\n": "\\0"}'


def test_csv_has_no_nul_in_its_head() -> None:
    out = io.StringIO()
    print_rows(pa.table({"a\0": ["\0"]}), "csv", SQL, TableStyle(), out)
    assert out.getvalue() == "a\u24000\n\u24000\n"


def test_csv_tells_null_from_empty_text() -> None:
    header, line = printed([{"group": "", "topic": None, "partition": 0}], "csv").splitlines()
    assert header == ",".join(OFFSETS.names)
    assert line == '"",,0' + "," * (len(OFFSETS.names) - 3)


def test_csv_holds_lists_as_json() -> None:
    rows = csv.DictReader(io.StringIO(printed([{"group": "g", "members": [MEMBER]}], "csv", GROUPS)))
    assert json.loads(next(rows)["members"]) == [MEMBER]


# --- the table -------------------------------------------------------------------------------------------


def test_wide_table_is_not_folded_in_a_pipe() -> None:
    lines = printed([{**OFFSET, "group": "g" * 300, "metadata": "m" * 300}], "table").splitlines()
    [line] = [line for line in lines if "billing" in line or "ggg" in line]
    assert "g" * 300 in line
    assert "m" * 300 in line


HOSTILE = {
    "[red]alert[/red]": "[red]alert[/red]",
    "[/]": "[/]",
    ":warning:": ":warning:",
    "\x1b[31mred\x1b[0m": r"\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07": r"\x1b]0;title\x07",
    "a\nb\tc\rd": r"a\nb\tc\rd",
    "\x9b31m": r"\x9b31m",
    "\0": r"\x00",
    "right\u202eleft": r"right\u202eleft",
    "": '""',
    "https://example.org": "https://example.org",
    "grüße 🐢": "grüße 🐢",
}


@pytest.mark.parametrize(("text", "shown"), HOSTILE.items(), ids=map(repr, HOSTILE))
def test_text_from_the_log_is_shown_and_not_interpreted(text: str, shown: str) -> None:
    lines = printed([{"group": text, "topic": "t"}], "table").splitlines()
    assert any(line.split() == [*shown.split(), "t", *["-"] * (len(OFFSETS.names) - 2)] for line in lines)


def test_members_and_topics_are_listed_for_people() -> None:
    group = {
        "group": "g",
        "members": [MEMBER, {**MEMBER, "member_id": "m\x1b"}],
        "subscribed_topics": ["a", "b"],
    }
    text = printed([group], "table", GROUPS)
    assert "m-1/10.0.0.1, m\\x1b/10.0.0.1" in text
    assert "a, b" in text


def test_numbers_stand_to_the_right() -> None:
    lines = printed([{"group": "g", "partition": 5}, {"group": "g", "partition": 12}], "table").splitlines()
    assert [line.index("5") + 1 for line in lines if "5" in line] == [
        line.index("12") + 2 for line in lines if "12" in line
    ]


@pytest.mark.parametrize(("columns", "width"), [("60", 60), ("100", 100), ("7", 40), ("0", 80), ("wide", 80)])
def test_a_terminal_gets_lines_of_its_width_which_the_environment_may_name(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", columns)
    rows = pa.table({f"c{number:02}": [1] for number in range(50)})
    lines = []
    for view in (TableStyle(), TableStyle(is_wide=True)):
        terminal = Terminal()
        print_rows(rows, "table", SQL, view, terminal)
        lines.append(terminal.getvalue().splitlines()[0])
    assert width - 5 < len(lines[0]) <= width
    assert len(lines[1]) == 50 * 5 - 2


# --- all of them -----------------------------------------------------------------------------------------

EMPTY = {"json": "[]\n", "csv": ",".join(OFFSETS.names) + "\n"}


@pytest.mark.parametrize(("output", "text"), EMPTY.items())
def test_empty_result_is_still_a_document(output: Format, text: str) -> None:
    assert printed([], output) == text


def test_empty_table_has_a_header() -> None:
    assert printed([], "table").split()[: len(OFFSETS.names)] == OFFSETS.names


def test_every_format_has_a_name() -> None:
    assert typing.get_args(Format) == FORMATS
