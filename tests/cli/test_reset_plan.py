"""Files for `kafka-consumer-groups --reset-offsets --from-file`, as the class of that tool reads them."""

import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from hostile_names import NAMES
from java_lines import JavaLines, start_java_lines

from streaming.jvm.jars import ensure_jars
from streaming.queries.reset_csv import names_left_out, reset_lines

pytestmark = pytest.mark.broker  # its jars; none is started

Position = tuple[str, str, int, int]

ODD: Final = [
    char
    for char in map(chr, range(0x110000))
    if char < "\x80" or unicodedata.category(char) in ("Cc", "Cf", "Zs", "Zl", "Zp")
]
TEXTS: Final = [
    *NAMES,
    *(text for odd in ODD for text in (odd, f"{odd}a", f"a{odd}", f"a{odd}b", f'"{odd}', f' {odd} "')),
]


@pytest.fixture(scope="module")
def tool() -> Iterator[JavaLines]:
    jars = [ensure_jars(name) for name in ("tools", "broker")]
    with start_java_lines("ResetPlan", jars) as java:
        yield java


def read_by(tool: JavaLines, file: Path, groups: Sequence[str], rows: Sequence[Position]) -> set[Position]:
    """What the tool, asked with `--group` for groups, takes from the file of these rows."""
    table = pa.table(
        dict(zip(("group", "topic", "partition", "committed_offset"), zip(*rows, strict=True), strict=True))
    )
    lines = reset_lines(table, one_group=len(groups) == 1)
    file.write_text("".join(lines), encoding="utf-8", newline="")
    plan = tool.ask({"file": str(file), "groups": [*groups]})["plan"]
    return {(group, topic, partition, at) for group, topic, partition, at in plan}


@pytest.mark.parametrize("groups", [["one"], ["one", "two"]], ids=len)
def test_the_tool_reads_every_name_that_is_not_left_out(
    tool: JavaLines, tmp_path: Path, groups: list[str]
) -> None:
    rows = [(text, text, number, number) for number, text in enumerate(dict.fromkeys(TEXTS))]
    left_out = {text for text in TEXTS if any(bad in text for bad in "\0\r\n")}
    kept = {row for row in rows if row[0] not in left_out}
    expected = {("one", *row[1:]) for row in kept} if len(groups) == 1 else kept
    assert read_by(tool, tmp_path / "positions.csv", groups, rows) == expected
    table = pa.table({"group": [*TEXTS], "topic": [*TEXTS]})
    kinds = len(groups)  # the form for one group has no groups
    assert len(names_left_out(table, one_group=len(groups) == 1)) == kinds * len(left_out)


@pytest.mark.parametrize("position", [("g", "1", 2, 3), ("1", "2", 3, 4), ("", "t", 0, 5), ("g", "", 0, 5)])
def test_the_form_with_groups_is_never_taken_for_that_of_one_group(
    tool: JavaLines, tmp_path: Path, position: Position
) -> None:
    """The tool tries the first line; names may be numbers."""
    assert read_by(tool, tmp_path / "positions.csv", [position[0], "other"], [position]) == {position}
