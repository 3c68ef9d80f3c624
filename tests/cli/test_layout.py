"""Tables for people: what matters fits the width, and no cell is cut or broken, however long a name is."""

from collections import Counter
from collections.abc import Sequence
from datetime import date
from itertools import takewhile
from math import inf
from typing import Any

import pyarrow as pa
import pytest
from command_columns import COLUMNS
from hypothesis import given
from hypothesis import strategies as st

from streaming.alerts.listing import ALERT_LIST
from streaming.cli.layout import forms
from streaming.cli.layout.cells import CellTexts, shortened, size_of
from streaming.cli.layout.forms import Form, head
from streaming.cli.layout.lines import Column, count_sizes, fitting_widths, folded, full_widths, lines_of
from streaming.cli.layout.tables import brief_lines, uncut_lines
from streaming.common.escapes import printable
from streaming.lag.log_ranges import with_log_ends, with_stakes
from streaming.model.schemas import GROUPS, OFFSETS, TIMESTAMP
from streaming.queries.expiring import EXPIRING
from streaming.queries.removed import PRINTED

WIDTHS = [80, 100, 120, 200]
TODAY = date(2026, 11, 22)
NOON = 1_795_348_985_123_000  # 2026-11-22T12:03:05.123Z
SHORT = ["abc", "日本", "é🐢"]
NAMES = [
    *SHORT,
    "e\u0301" * 3,  # three columns, six characters
    "payments-reconciliation-europe-west-1-v2",
    "請求" * 10,
    "orders." * 35 + "last",
    "日本語グループ" * 17,
    " ",
    "ends with a blank ",
]
NAMED = ("group", "topic", "pattern", "worst_group")


def value(field: pa.Field, name: str, number: int) -> Any:
    """A value for a column of a command, in the row of a name."""
    if field.name in NAMED:
        return name
    if pa.types.is_timestamp(field.type):
        return NOON - number * 3_600_000_000
    if pa.types.is_integer(field.type):
        return number * 1_000
    if pa.types.is_floating(field.type):
        return number * 1_000.5
    if pa.types.is_boolean(field.type):
        return True
    if field.name == "members":
        member = {"member_id": name, "group_instance_id": None, "client_id": "c", "client_host": "/10.0.0.1"}
        return [member] * number
    if pa.types.is_list(field.type):
        if pa.types.is_integer(field.type.value_type):
            return list(range(number))
        return [name] * (number % 2)
    return f'group "{name}": a sentence' if field.name == "summary" else "word"


def rows_of(schema: pa.Schema, names: Sequence[str]) -> pa.Table:
    rows = [{f.name: value(f, name, number) for f in schema} for number, name in enumerate(names)]
    return pa.Table.from_pylist(rows, schema)


def brief(rows: pa.Table, form: Form, width: int, today: date | None = TODAY) -> list[str]:
    """The lines of a table on a terminal; a row that takes several of them gives several."""
    return "\n".join(brief_lines(rows, form, room=width, today=today)).split("\n")


def uncut(rows: pa.Table, form: Form) -> list[str]:
    return "\n".join(uncut_lines(rows, form)).split("\n")


# --- every command, at every width -----------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", COLUMNS)
def test_every_name_is_in_one_line_and_what_is_too_long_is_alone_there(command: str, width: int) -> None:
    schema, form = COLUMNS[command]
    lines = brief(rows_of(schema, NAMES), form, width)
    if set(NAMED) & set(schema.names):
        assert [name for name in NAMES if not any(printable(name) in line for line in lines)] == []
    words = {printable(name) for name in NAMES} | {f'"{name}":' for name in NAMES}
    too_long = [line for line in lines if size_of(line) > width]
    assert [line for line in too_long if line.strip() not in words] == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", COLUMNS)
def test_short_rows_fit_whatever_the_width(command: str, width: int) -> None:
    schema, form = COLUMNS[command]
    lines = brief(rows_of(schema, SHORT), form, width)
    assert max(map(size_of, lines)) <= width
    rows = [line for line in takewhile(lambda line: line[:5] not in ("times", "--wid"), lines[1:]) if line]
    if command != "alerts" or width > 80:  # whose sentences are long
        assert len(rows) == len(SHORT)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", ["offsets", "groups", "history", "expiring", "removed"])
def test_short_rows_stay_on_one_line_beside_a_name_that_is_too_long(command: str, width: int) -> None:
    schema, form = COLUMNS[command]
    lines = brief(rows_of(schema, [*SHORT, "x" * 249]), form, width)
    assert [sum(name in line for line in lines) for name in SHORT] == [1] * len(SHORT)
    rows = lines[1 : next(number for number, line in enumerate(lines) if "xxx" in line)]
    assert not any(line.startswith(" ") for line in rows)
    assert max(map(size_of, rows)) <= width


@pytest.mark.parametrize("command", COLUMNS)
def test_a_pipe_gets_every_column_and_every_row_on_a_line(command: str) -> None:
    schema, form = COLUMNS[command]
    lines = [line for line in uncut(rows_of(schema, NAMES), form) if line]
    assert lines[0].split() == [head(name) for name in schema.names if name not in form.unseen]
    assert len(lines) == 1 + len(NAMES)
    has_moments = any(pa.types.is_timestamp(one.type) for one in schema if one.name not in form.unseen)
    assert ("2026-11-22T12:03:05.123Z" in lines[1]) is has_moments


@pytest.mark.parametrize("command", COLUMNS)
def test_every_column_of_a_command_has_its_place(command: str) -> None:
    schema, form = COLUMNS[command]
    placed = [*form.always, *form.kept, *form.room, *form.wide, *form.unseen]
    assert Counter(placed) == Counter(schema.names)
    assert set(form.counted) <= set(placed)


# --- which columns ---------------------------------------------------------------------------------------


def offsets(*names: str, **values: Any) -> pa.Table:
    row = {"topic": "orders", "partition": 0, "committed_offset": 5, "commit_timestamp": NOON, "metadata": ""}
    return pa.Table.from_pylist([row | {"group": name} | values for name in names], OFFSETS)


def test_offsets_on_a_terminal() -> None:
    assert brief(offsets("billing", leader_epoch=3), forms.OFFSETS, 80) == [
        "GROUP    TOPIC   PARTITION  CURRENT-OFFSET  COMMIT-TIMESTAMP",
        "billing  orders          0               5  12:03:05",
        "times are UTC; --utc shows them in full; --wide also shows LEADER-EPOCH",
    ]


def test_columns_that_are_empty_throughout_are_left_out_and_not_spoken_of() -> None:
    lines = brief(offsets("billing", committed_offset=None, commit_timestamp=None), forms.OFFSETS, 80)
    assert lines == [
        "GROUP    TOPIC   PARTITION  CURRENT-OFFSET",
        "billing  orders          0               -",
    ]
    assert brief(offsets(), forms.OFFSETS, 80) == ["GROUP  TOPIC  PARTITION  CURRENT-OFFSET"]


def test_lag_that_was_asked_for_is_there_even_if_it_is_not_known_of_any_partition() -> None:
    rows = with_log_ends(offsets("g"), {})
    assert brief(rows, forms.OFFSETS, 80)[0].split()[-1] == "COMMIT-TIMESTAMP"
    assert [line.split() for line in brief(rows, forms.OFFSETS_WITH_ENDS, 80)[:2]] == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "COMMIT-TIMESTAMP"],
        ["g", "orders", "0", "5", "-", "-", "12:03:05"],
    ]
    without, asked = EXPIRING.empty_table(), with_stakes(EXPIRING.empty_table(), {})
    assert ["LAG" in brief(table, forms.EXPIRING, 80)[0] for table in (without, asked)] == [False, True]


@pytest.mark.parametrize("width", WIDTHS)
def test_when_an_offset_was_removed_is_there_however_long_names_are(width: int) -> None:
    row = {"group": "g" * 40, "topic": "t" * 35, "partition": 0, "removed_offset": 1, "removed_at": NOON}
    rows = pa.Table.from_pylist([row | {"cause": "deleted"}], PRINTED)
    assert "REMOVED-AT" in brief(rows, forms.REMOVED, width)[0]


def test_less_important_columns_give_way_in_the_order_of_their_rank() -> None:
    form = Form(always=("group",), room=("second", "third", "first"))
    rows = pa.table({"group": ["g"], "first": [1], "second": ["s" * 20], "third": ["t" * 20]})
    assert brief(rows, form, 60)[0].split() == ["GROUP", "FIRST", "SECOND", "THIRD"]
    assert brief(rows, form, 50)[0].split() == ["GROUP", "SECOND", "THIRD"]
    assert brief(rows, form, 45)[:1] + brief(rows, form, 45)[-1:] == [
        "GROUP  FIRST  SECOND",
        "--wide also shows THIRD",
    ]


def test_members_are_counted_on_a_terminal() -> None:
    member = {"member_id": "m-1", "group_instance_id": None, "client_id": "c", "client_host": "/10.0.0.1"}
    row = {"group": "g", "type": "consumer", "state": "Stable", "members": [member] * 2}
    rows = pa.Table.from_pylist([row], GROUPS)
    assert brief(rows, forms.GROUPS, 80) == [
        "GROUP  TYPE      STATE   #MEMBERS",
        "g      consumer  Stable         2",
        "--wide also shows MEMBERS",
    ]
    assert "m-1/10.0.0.1, m-1/10.0.0.1" in uncut(rows, forms.GROUPS)[1]


def test_the_columns_of_a_query_are_the_users_own() -> None:
    rows = pa.table({"n": [1], "Sum of\tall": [None], "n of it": ["x" * 90], "last": ["y" * 30]})
    assert brief(rows, forms.SQL, 80) == [
        "n  Sum of\\tall  n of it  last",
        "1  -",
        f"  {'x' * 90}",
        f"                         {'y' * 30}",
    ]
    wide = pa.table({f"column_{number}": [number] for number in range(10)})
    assert brief(wide, forms.SQL, 80)[-1] == "--wide also shows column_8, column_9"
    assert uncut(wide, forms.SQL)[0].split() == wide.column_names


def test_a_column_of_a_query_gives_way_to_those_on_its_left_but_not_to_a_long_cell() -> None:
    rows = pa.table({"a": ["x" * 12] * 2, "b": ["y" * 12] * 2, "c": ["z" * 9] * 2})
    assert [line.split() for line in brief(rows, forms.SQL, 60)] == [
        ["a", "b", "c"],
        *[["x" * 12, "y" * 12, "z" * 9]] * 2,
    ]
    assert brief(rows, forms.SQL, 36)[0].split() == ["a", "b"]
    long = pa.table({"a": ["x" * 40, "x"], "n": [1, 2]})
    assert brief(long, forms.SQL, 40) == ["a  n", "x" * 40, "   1", "x  2"]


def test_heads_of_a_query_that_would_not_be_seen_are_quoted() -> None:
    rows = pa.table({"": ["x"], "a ": ["y"]})
    assert brief(rows, forms.SQL, 80) == uncut(rows, forms.SQL) == ['""  "a "', "x   y"]


def test_two_columns_of_a_query_may_have_one_name() -> None:
    rows = pa.Table.from_arrays([pa.array([1]), pa.array(["a"])], names=["n", "n"])
    assert brief(rows, forms.SQL, 80) == uncut(rows, forms.SQL) == ["n  n", "1  a"]


# --- times -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        ("2026-11-22T00:00:00.000Z", "00:00:00"),
        ("2026-11-22T23:59:59.999Z", "23:59:59"),
        ("2026-11-23T00:00:00.000Z", "2026-11-23 00:00"),
        ("2026-11-21T23:59:59.123456Z", "2026-11-21 23:59"),
        ("<value out of range: 9223372036854775807>", "<value out of range: 9223372036854775807>"),
        ("-0001-11-21T23:59:59.123Z", "-0001-11-21T23:59:59.123Z"),
    ],
)
def test_times_of_today_are_times_of_the_day_and_others_have_their_day(moment: str, text: str) -> None:
    assert shortened(moment, "2026-11-22") == text


def test_times_are_in_full_if_asked_for() -> None:
    rows = pa.table({"at": pa.array([NOON, None], TIMESTAMP)})
    assert brief(rows, forms.SQL, 80, today=None) == ["at", "2026-11-22T12:03:05.123Z", "-"]
    assert brief(rows, forms.SQL, 80) == ["at", "12:03:05", "-", "times are UTC; --utc shows them in full"]


# --- names that are too long -----------------------------------------------------------------------------


def test_a_name_that_is_too_long_spills_over_in_its_own_row() -> None:
    assert brief(offsets("a", "g" * 90, "c"), forms.OFFSETS, 60) == [
        "GROUP  TOPIC   PARTITION  CURRENT-OFFSET  COMMIT-TIMESTAMP",
        "a      orders          0               5  12:03:05",
        "",
        "g" * 90,
        "       orders          0               5  12:03:05",
        "",
        "c      orders          0               5  12:03:05",
        "times are UTC; --utc shows them in full",
    ]


def test_what_is_too_long_and_the_same_in_the_next_row_is_there_once() -> None:
    rows = pa.concat_tables([offsets("g" * 50, partition=number) for number in range(3)])
    lines = brief(rows, forms.OFFSETS, 80)
    assert lines[1:5] == [
        "g" * 50,
        *(f"       orders          {n}               5  12:03:05" for n in range(3)),
    ]


def test_groups_are_set_apart() -> None:
    for lines in (
        brief(offsets("a", "a", "b"), forms.OFFSETS, 80),
        uncut(offsets("a", "a", "b"), forms.OFFSETS),
    ):
        assert [line.split(" ")[0] for line in lines[1:5]] == ["a", "a", "", "b"]
        assert lines[1] != ""


def test_where_even_the_heads_are_too_long_rows_take_several_lines() -> None:
    rows = pa.table({"a" * 30: [1, 2], "b" * 30: ["x", "y"]})
    form = Form(always=tuple(rows.column_names))
    assert brief(rows, form, 40) == [
        "A" * 30,
        "  " + "B" * 30,
        " " * 29 + "1",
        "  x",
        " " * 29 + "2",
        "  y",
    ]


WORDS = st.one_of(
    st.sampled_from(NAMES),
    st.integers(1, 300).map(lambda count: "w" * count),
    st.text(st.characters(codec="utf-8"), max_size=20),
)


@given(
    st.lists(st.tuples(WORDS, WORDS, st.integers(-(10**18), 10**18), WORDS), max_size=8),
    st.integers(40, 200),
    st.booleans(),
)
def test_no_cell_is_ever_broken_or_lost(
    values: list[tuple[str, str, int, str]], width: int, is_own: bool
) -> None:
    rows = pa.Table.from_pylist(
        [dict(zip("abcd", row, strict=True)) for row in values],
        pa.schema([("a", pa.string()), ("b", pa.string()), ("c", pa.int64()), ("d", pa.string())]),
    )
    parts = CellTexts(rows)
    rank = {"a": 0, "b": 0, "c": 0, "d": 1}
    columns = [
        Column(head=name, sizes=sizes, rank=rank[name], is_rigid=name == "c")
        for name, sizes in zip("abcd", count_sizes(4, parts), strict=True)
    ]
    up_to = width / 3 if is_own else inf
    widths = fitting_widths(columns, width, up_to=up_to)
    lines = "\n".join(lines_of(columns, widths, parts, room=width)).split("\n")
    assert list(widths)[:3] == [0, 1, 2]
    cells = [[printable(a), printable(b), str(c), printable(d)] for a, b, c, d in values]
    for row in cells:
        assert all(any(row[number] in line for line in lines) for number in widths)
    alone = {cell for row in cells for cell in row}
    assert [line for line in lines if size_of(line) > width and line.strip() not in alone] == []
    assert all(line.isprintable() and line == line.rstrip(" ") for line in lines)
    fewest = fitting_widths(columns[:3], width)
    spilled = [sum(columns[n].spilled(w, up_to=up_to) for n, w in one.items()) for one in (widths, fewest)]
    assert spilled[0] <= spilled[1]


@given(st.text(st.sampled_from("ab 日́"), max_size=60), st.integers(5, 40))
def test_sentences_are_broken_between_words_alone(text: str, room: int) -> None:
    lines = folded(text, room)
    assert " ".join(lines) == text
    assert all(size_of(line) <= room or " " not in line.strip(" ") for line in lines)


def test_a_long_sentence_goes_on_below_its_row() -> None:
    row = {"severity": "warning", "rule": "job_behind", "group": "g" * 40, "summary": "w" * 70 + " and more"}
    rows = pa.Table.from_pylist([row, row | {"summary": "short"}, row], ALERT_LIST)
    assert brief(rows, forms.ALERTS, 80)[1:] == [
        f"warning   job_behind  {'g' * 40}",
        f"  {'w' * 70} and",
        "  more",
        f"warning   job_behind  {'g' * 40}  short",
        f"warning   job_behind  {'g' * 40}",
        f"  {'w' * 70} and",
        "  more",
    ]


def test_long_sentences_begin_below_each_other_whatever_the_width() -> None:
    row = {"severity": "warning", "rule": "r", "group": "g"}
    rows = pa.Table.from_pylist([row | {"summary": "w" * size} for size in (185, 190)], ALERT_LIST)
    assert brief(rows, forms.ALERTS, 200)[2::2] == ["  " + "w" * size for size in (185, 190)]


@given(st.lists(st.tuples(WORDS, st.integers(0, 10**18)), max_size=8))
def test_a_pipe_has_each_row_on_a_line_with_its_cells_below_their_heads(
    values: list[tuple[str, int]],
) -> None:
    rows = pa.table({"a": pa.array([a for a, _ in values], pa.string()), "n": [n for _, n in values]})
    lines = uncut(rows.cast(pa.schema([("a", pa.string()), ("n", pa.int64())])), forms.SQL)
    assert len(lines) == 1 + len(values)
    assert len({size_of(line) for line in lines}) == 1
    for (name, number), line in zip(values, lines[1:], strict=True):
        assert line.startswith(printable(name))
        assert line.endswith(f"  {number}")


def test_many_rows_are_laid_out_a_part_at_a_time() -> None:
    rows = pa.table({"n": range(25_000)})
    parts = CellTexts(rows)
    assert [len(cells[0]) for cells in parts] == [10_000, 10_000, 5_000]
    assert [len(cells[0]) for cells in parts] == [10_000, 10_000, 5_000]
    columns = [Column(head="n", sizes=sizes) for sizes in count_sizes(1, parts)]
    assert full_widths(columns) == {0: 5}


# --- names that would not be seen ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["", " ", "   ", " a", "a ", "\u2800", "\u3164", "\u0301a", "\u0301", "\ufe0f"]
)
def test_names_whose_begin_or_end_would_not_be_seen_are_quoted(name: str) -> None:
    assert printable(name) == f'"{name}"'


@pytest.mark.parametrize("name", ["a", "a b", "日本", "e\u0301", "-"])
def test_other_names_are_as_they_are(name: str) -> None:
    assert printable(name) == name


@given(st.text())
def test_printable_text_is_printable_and_seen(text: str) -> None:
    assert printable(text).isprintable()
    assert size_of(printable(text)) > 0
