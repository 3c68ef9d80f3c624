"""Commands on a real terminal of 80, 100, 120 and 200 columns, with names short, long and wide."""

import re
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from alert_tables import HOUR, RETENTION, Lake
from rich.cells import cell_len
from terminal import on_terminal

from streaming.common.times import now_ms

NAMES: Final = [
    "abc",
    "payments-reconciliation-europe-west-1-v2",
    "g" * 249,
    "請求バッチ",
    "cafe\u0301 🐢",
    " ",
]
WIDTHS: Final = [80, 100, 120, 200]
QUERY: Final = 'SELECT "group", topic, committed_offset, commit_timestamp FROM live_offsets ORDER BY 1'
COMMANDS: Final = {
    "offsets": ["offsets"],
    "groups": ["groups"],
    "history": ["history", "--group", NAMES[1]],
    "sql": ["sql", QUERY],
    "expiring": ["expiring"],
    "removed": ["removed"],
    "status": ["status"],
    "alerts": ["alerts"],
    "maintain": ["maintain"],
}
VIEWS: Final = {"offsets --utc": ["offsets", "--utc"], "offsets --wide": ["offsets", "--wide"]}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], str]:
    """What each command prints at each width, of tables in which each name is a group and a topic."""
    lake = Lake(tmp_path_factory.mktemp("lake") / "tables", start=now_ms() - HOUR)
    for name in NAMES:
        lake.commit(name, (name, 0), ("orders", 1), at=lake.now - RETENTION + 2 * HOUR, leader_epoch=7)
        lake.commit(name, ("gone", 0))
        lake.drop(name, ("gone", 0), cause="deleted")
    lake.evaluate()
    asked = [(command, 80) for command in COMMANDS] + [("offsets", width) for width in WIDTHS[1:]]
    asked += [(view, 200) for view in VIEWS]
    words = COMMANDS | VIEWS
    printed = on_terminal(
        (width, [*words[command], "--table-root", lake.tables.root]) for command, width in asked
    )
    return dict(zip(asked, printed, strict=True))


def test_no_line_is_broken_but_where_a_name_is_longer_than_it(seen: dict[tuple[str, int], str]) -> None:
    for (command, width), text in seen.items():
        for line in [] if command == "offsets --wide" else text.splitlines():
            is_one_name = max(NAMES, key=len) in line and len(line.split()) == 1
            assert cell_len(line) <= width or is_one_name or line.startswith("as of "), line


@pytest.mark.parametrize(
    "command",
    [
        "offsets",
        "sql",
        "removed",
        *(pytest.param(one, marks=pytest.mark.more) for one in ("groups", "expiring", "alerts")),
    ],
)
def test_every_name_can_be_found_and_copied(seen: dict[tuple[str, int], str], command: str) -> None:
    lines = seen[command, 80].splitlines()
    assert [name for name in NAMES if not any(name in line for line in lines)] == []
    assert any('" "' in line for line in lines)


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_of_short_names_take_one_line_beside_a_long_one(
    seen: dict[tuple[str, int], str], width: int
) -> None:
    lines = seen["offsets", width].splitlines()
    words = len(lines[0].split()) + ("COMMIT-TIMESTAMP" in lines[0])  # of two words: the day, and the time
    rows = [line for line in lines if line.startswith(("abc ", "請求"))]
    assert [len(line.split()) for line in rows] == [words] * 4


def test_times_are_short_and_in_full_if_asked_for(seen: dict[tuple[str, int], str]) -> None:
    full = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    brief, utc, wide = (seen[view, 200] for view in ("offsets", *VIEWS))
    rows = [text.partition("\nas of ")[0] for text in (brief, utc, wide)]
    assert [bool(re.search(full, text)) for text in rows] == [False, True, True]
    assert re.search(r"(?m)^abc +orders +1 +100 +\d{4}-\d\d-\d\d \d\d:\d\d$", brief)
    assert "times are UTC; --utc shows them in full; --wide also shows LEADER-EPOCH\n" in brief
    assert "\n--wide also shows LEADER-EPOCH\n" in utc
    assert "LEADER-EPOCH" in wide.splitlines()[0]
    assert "--wide" not in wide


def test_a_row_that_spills_over_goes_on_below_its_heads(seen: dict[tuple[str, int], str]) -> None:
    lines = seen["offsets", 80].splitlines()
    spilled = lines.index("g" * 249)
    assert lines[spilled - 1] == ""
    numbers = [line for line in lines if line.endswith(" 100")]
    assert {cell_len(line) for line in numbers} == {cell_len(lines[0])}
    assert len(numbers) == 2 * len(NAMES)
    assert [line for line in lines[spilled:] if line.endswith(" 100") and line.startswith(" ")] != []


@pytest.mark.parametrize("is_unbuffered", [False, True])
def test_what_is_said_beside_names_comes_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_unbuffered: bool
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1" if is_unbuffered else "")
    lake = Lake(tmp_path / "tables", start=now_ms())
    for name in ("abc", ""):
        lake.commit(name, ("orders", 0))
    asked = ["groups", "--list", "--table-root", lake.tables.root]
    [text] = on_terminal([(80, asked)], with_errors=True)
    first, second, last = text.splitlines()
    assert [first, second, last[:6]] == ['""', "abc", "as of "]


def test_lag_is_in_the_table_if_brokers_were_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offsetlake: Any
) -> None:
    class Broker:
        def log_ranges(self, _: object) -> dict[tuple[str, int], Any]:
            return {}

    monkeypatch.setattr("streaming.cli.commands.queries.broker_of", lambda _: Broker())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lake = Lake(tmp_path / "tables", start=now_ms())
    lake.commit("abc", ("gone", 0))
    ended = offsetlake("offsets", "--bootstrap-server", "b:1", "--table-root", lake.tables.root)
    assert ended.out.splitlines()[0].split()[4:6] == ["LOG-END-OFFSET", "LAG"]
