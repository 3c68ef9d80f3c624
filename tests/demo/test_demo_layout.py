"""The demo's screen: what is shown of the tables and of events at each size, and the command to paste."""

import os
import shlex

import pytest
from rich.text import Text

from streaming.demo.broker_offsets import CommittedOffset, OffsetKey
from streaming.demo.layout import Step, fairly_chosen, folded, live_screen, offset_lines, waiting_screen
from streaming.demo.scene import Event, LiveGroup, Scene
from streaming.demo.traffic import PURPOSES, TOPICS

NOW = 1_700_000_000_000  # 22:13:20 UTC
READS = {
    "audit": "orders",
    "billing": "orders",
    "recommendations": "clicks",
    "replay": "clicks",
    "settlement": "payments",
    "short-lived": "payments",
}
COMMAND = [
    "/home/somebody/src/offsetlake/.venv/bin/offsetlake",
    "offsets",
    "--table-root",
    "/tmp/offsetlake-demo-abcdefgh/warehouse",
]
TOOL = [
    "sh",
    "/tmp/offsetlake-demo-abcdefgh/kafka-consumer-groups.sh",
    "--bootstrap-server",
    "127.0.0.1:9192",
    "--describe",
    "--all-groups",
]
COMMANDS = [COMMAND, TOOL]
PAGE = "http://127.0.0.1:8720/"
SIZES = [(80, 24), (100, 30), (120, 40), (200, 60)]
ODD_SIZES = [(1, 1), (10, 2), (20, 5), (40, 10), (79, 15), (60, 100), (300, 3)]


def cast_scene(events: int = 12) -> Scene:
    """All groups of the cast, with as many events."""
    keys = [
        OffsetKey(group, topic, number) for group, topic in READS.items() for number in range(TOPICS[topic])
    ]
    return Scene(
        as_of=NOW - 1_200,
        groups={name: LiveGroup("classic", "Stable") for name in READS},
        offsets={key: CommittedOffset(1_000 + key.partition) for key in keys},
        changes={key: (-7, 0, 5, None)[number % 4] for number, key in enumerate(keys)},
        events=tuple(Event(seen_at=NOW, sentence=f"happened {number}") for number in range(events)),
    )


def plain(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


def screen_of(scene: Scene, columns: int, lines: int) -> list[str]:
    return plain(live_screen(scene, COMMANDS, os.terminal_size((columns, lines)), NOW, page=PAGE))


def words_of(pasted: str) -> list[str]:
    """What a shell makes of it: a backslash at the end of a line goes with the end of the line."""
    return shlex.split(pasted.replace("\\\n", ""))


def rows_used(lines: list[str], columns: int) -> int:
    return sum(max(1, -(-len(line) // columns)) for line in lines)


def test_a_small_terminal_shows_groups_offsets_and_events_side_by_side() -> None:
    shown = screen_of(cast_scene(), 80, 24)
    assert len(shown) == 24
    assert "GROUP            TYPE     STATE   WHAT IT DOES" in shown
    assert "GROUP            TOPIC     PARTITION  CURRENT-OFFSET  LAG  CHANGE" in shown
    assert [line for line in shown if line.startswith("22:13:20")] == [
        f"22:13:20  happened {number}" for number in range(9, 12)
    ]
    cut = next(line for line in shown if line.startswith("... and "))
    rows = [line for line in shown if "  10" in line]
    assert cut == f"... and {18 - len(rows)} more rows"
    assert {line.split()[0] for line in rows} == set(READS)  # something of every group


def test_a_larger_terminal_shows_all_rows_and_more_events() -> None:
    shown = screen_of(cast_scene(), 120, 40)
    assert len([line for line in shown if "  10" in line]) == 18
    assert not any("more rows" in line for line in shown)
    assert len([line for line in shown if line.startswith("22:13:20")]) > 6
    assert screen_of(cast_scene(), 200, 60)[-4:-2] == ["", screen_of(cast_scene(), 120, 40)[-3]]


def test_a_terminal_of_a_few_lines_leaves_the_groups_out() -> None:
    shown = screen_of(cast_scene(), 80, 12)
    assert not any("WHAT IT DOES" in line for line in shown)
    assert len([line for line in shown if line.startswith("22:13:20")]) == 3
    assert not any("kafka-consumer-groups" in line for line in shown)
    assert any("more rows" in line for line in shown)


@pytest.mark.parametrize("events", [0, 1, 100])
@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_a_screen_is_filled_exactly_and_the_commands_are_last(columns: int, lines: int, events: int) -> None:
    shown = screen_of(cast_scene(events), columns, lines)
    assert rows_used(shown, columns) == lines
    assert all(len(line) <= columns for line in shown)
    said = f"As of 1 s ago. Ctrl-C ends it. Page: {PAGE} In a terminal:"
    assert said in shown
    pasted = "\n".join(shown[shown.index(said) + 1 :])
    assert words_of(pasted) == [*COMMAND, *TOOL]
    assert len(pasted.splitlines()) == {80: 4, 100: 4, 120: 2, 200: 2}[columns]


@pytest.mark.parametrize(("columns", "lines"), ODD_SIZES)
def test_a_screen_of_an_odd_size_does_not_fail(columns: int, lines: int) -> None:
    assert screen_of(cast_scene(), columns, lines)
    assert screen_of(Scene(), columns, lines)
    assert waiting_screen([Step("starting", 1)], os.terminal_size((columns, lines)))


def test_every_group_and_what_it_does_fit_into_80_columns() -> None:
    assert not any("…" in line for line in screen_of(cast_scene(), 80, 24))
    assert all(
        any(purpose in line for line in screen_of(cast_scene(), 80, 24)) for purpose in PURPOSES.values()
    )
    assert set(PURPOSES) == set(READS)


def test_a_group_that_is_not_there_keeps_its_line() -> None:
    shown = screen_of(Scene(groups={"other": LiveGroup("consumer", "Empty")}), 80, 24)
    assert f"short-lived      -         -      {PURPOSES['short-lived']}" in shown
    assert "other            consumer  Empty" in shown


def test_a_long_name_moves_its_own_row_only() -> None:
    scene = cast_scene()
    key = OffsetKey("n" * 249, "orders", 0)
    scene = Scene(offsets={**scene.offsets, key: CommittedOffset(5)}, changes={**scene.changes, key: None})
    lines = plain(offset_lines(scene))
    assert "audit            orders            0            1000           -7" in lines
    assert f"{'n' * 249}  orders            0               5          new" in lines


def test_rows_are_coloured_by_where_they_went() -> None:
    styles = {line.plain.split()[-1]: line.style for line in offset_lines(cast_scene())}
    assert (styles["-7"], styles["+5"], styles["new"]) == ("red", "green", "green")


def test_the_rows_that_are_chosen_are_those_of_all_groups_in_turn() -> None:
    keys = [OffsetKey(group, "t", number) for group in "cab" for number in range(3 if group == "b" else 2)]
    chosen = {
        count: [f"{key.group}{key.partition}" for key in fairly_chosen(keys, count)] for count in range(8)
    }
    assert chosen[0] == []
    assert chosen[2] == ["a0", "b0"]
    assert chosen[4] == ["a0", "a1", "b0", "c0"]
    assert chosen[6] == ["a0", "a1", "b0", "b1", "c0", "c1"]
    assert chosen[7][4] == "b2"


def test_steps_are_shown_with_the_seconds_that_pass() -> None:
    steps = [Step("starting a broker", 2.2, is_over=True), Step("starting Spark", 17)]
    shown = plain(waiting_screen(steps, os.terminal_size((80, 24))))
    assert "starting a broker: 2 s" in shown
    assert "starting Spark ... 17 s" in shown
    assert "Ctrl-C ends it." in shown
    assert any(line.startswith("replay") and PURPOSES["replay"] in line for line in shown)
    assert len(shown) <= 24
    assert not any("…" in line for line in shown)


@pytest.mark.parametrize("width", [20, 80, 200, None])
def test_a_command_can_be_pasted_at_every_width(width: int | None) -> None:
    command = ["/a folder/offsetlake", "offsets", "--table-root", "/tmp/it's/warehouse"]
    assert words_of("\n".join(folded(command, width))) == command
