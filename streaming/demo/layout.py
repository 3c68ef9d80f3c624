"""Formats the demo's display as lines of text: all of it, or as much as fits on a screen (pure).

Lines are cut at the width of the screen, except commands to paste: the terminal itself wraps these, and
copies each in one piece.
"""

import os
import shlex
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from streaming.common.escapes import printable
from streaming.common.times import clock
from streaming.demo.broker_offsets import OffsetKey
from streaming.demo.scene import Event, LiveGroup, Scene
from streaming.demo.traffic import PURPOSES

INTRODUCTION: Final = (
    "A Kafka broker and consumer groups of several kinds run on this machine;",
    "the job turns their __consumer_offsets into tables. Times are UTC.",
)
ENDING: Final = "Ctrl-C ends it."
EVENTS_HEAD: Final = "EVENTS (UTC)"

_HEAD: Final = "bold"
_LEAST_EVENTS: Final = 3
_LEAST_ROWS: Final = 3  # of offsets, beside the table of groups, which is left out if there is less room
_LOW: Final = 20  # lines below which only one command is shown
_ROOMY: Final = 32  # lines from which on blank lines separate the parts
_WIDEST_NAME: Final = 40  # longer names only shift their own row


class Step(NamedTuple):
    """A step that takes time, with its duration (s) until now or its end."""

    sentence: str
    seconds: float
    is_over: bool = False

    def __str__(self) -> str:
        return f"{self.sentence}{':' if self.is_over else ' ...'} {self.seconds:.0f} s"


# --- whole screens ---------------------------------------------------------------------------------------


def waiting_screen(steps: Iterable[Step], size: os.terminal_size) -> list[Text]:
    """Format the current steps, and the groups that will be shown."""
    purposes = _aligned(("GROUP", "WHAT IT DOES"), sorted(PURPOSES.items()))
    texts = [*INTRODUCTION, "", *map(str, steps), "", ENDING, ""]
    return _cut([*map(Text, texts), *_headed(purposes)], size)


def live_screen(
    scene: Scene, commands: Sequence[Sequence[str]], size: os.terminal_size, now: int, *, page: str
) -> list[Text]:
    """Format the tables, recent events, the address of the page, and commands, for a screen of this size at
    `now` (ms).

    The rows of offsets that fit are taken from all groups in turn; remaining room shows more events. A low
    screen has only the first command.
    """
    seconds = max(0, now - scene.as_of) / 1_000
    said = f"As of {seconds:.0f} s ago. {ENDING} Page: {page} In a terminal:"
    tried = commands if size.lines >= _LOW else commands[:1]
    pasted = [Text(line) for command in tried for line in folded(command, size.columns)]
    height = size.lines - sum(_rows_of(line, size) for line in pasted) - 1
    gap = [Text()] * (size.lines >= _ROOMY)
    groups = [*group_lines(scene), *gap]
    heads = len(gap) + 2
    if height < len(groups) + heads + _LEAST_ROWS + _LEAST_EVENTS:
        groups = []
    room = height - len(groups) - heads
    offsets = offset_lines(scene, most=max(1, room - _LEAST_EVENTS))
    room -= len(offsets) - 1
    events = [Text(event_text(event)) for event in scene.events[-room:]] if room > 0 else []
    rest = [Text()] * (room - len(events))
    body = [*groups, *offsets, *gap, Text(EVENTS_HEAD, _HEAD), *events, *rest][: max(0, height)]
    return [*_cut([*body, Text(said)], size), *pasted]


# --- parts of screens ------------------------------------------------------------------------------------


def group_lines(scene: Scene) -> list[Text]:
    """Format the groups; those of the demo also while they do not exist."""
    nobody = LiveGroup("-", "-")
    names = sorted({*PURPOSES, *scene.groups})
    cells = [(printable(name), *scene.groups.get(name, nobody), PURPOSES.get(name, "")) for name in names]
    return _headed(_aligned(("GROUP", "TYPE", "STATE", "WHAT IT DOES"), cells))


def offset_lines(scene: Scene, most: int | None = None) -> list[Text]:
    """Format the offsets in at most `most` lines below the head; the last line counts those left out."""
    keys = sorted(scene.offsets)
    if most is not None and len(keys) > most:
        keys = fairly_chosen(keys, most - 1)
    lines = _aligned(
        ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LAG", "CHANGE"),
        [_offset_cells(scene, key) for key in keys],
        to_the_right=(2, 3, 4, 5),
    )
    hidden = len(scene.offsets) - len(keys)
    more = [Text(f"... and {hidden} more rows", "dim")] if hidden else []
    styles = [_HEAD, *(_style(scene.changes[key]) for key in keys)]
    return [Text(line, style) for line, style in zip(lines, styles, strict=True)] + more


def event_text(event: Event) -> str:
    """Format an event with the time (UTC) at which it was seen."""
    return f"{clock(event.seen_at)}  {event.sentence}"


def fairly_chosen(keys: Collection[OffsetKey], count: int) -> list[OffsetKey]:
    """Choose `count` keys, in order: one of every group before a second one of any."""
    turns = [
        (turn, key)
        for _, of_group in groupby(sorted(keys), key=lambda key: key.group)
        for turn, key in enumerate(of_group)
    ]
    return sorted(key for _, key in sorted(turns)[: max(0, count)])


def _offset_cells(scene: Scene, key: OffsetKey) -> tuple[str, ...]:
    change = scene.changes[key]
    return (
        printable(key.group),
        printable(key.topic),
        str(key.partition),
        str(scene.offsets[key].offset),
        str(scene.lags.get(key, "")),
        "new" if change is None else f"{change:+d}" if change else "",
    )


def _style(change: int | None) -> str:
    return "green" if change is None or change > 0 else "red" if change < 0 else ""


def _headed(lines: Sequence[str]) -> list[Text]:
    return [Text(line, "" if number else _HEAD) for number, line in enumerate(lines)]


def _aligned(
    heads: Sequence[str], rows: Iterable[Sequence[str]], to_the_right: Collection[int] = ()
) -> list[str]:
    """Format heads and rows in columns as wide as their widest cell."""
    table = [heads, *rows]
    widths = [
        max(width for width in map(cell_len, column) if width <= _WIDEST_NAME)
        for column in zip(*table, strict=True)
    ]
    return ["  ".join(_padded(row, widths, to_the_right)).rstrip() for row in table]


def _padded(row: Sequence[str], widths: Sequence[int], to_the_right: Collection[int]) -> list[str]:
    blanks = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
    return [
        blank + cell if number in to_the_right else cell + blank
        for number, (cell, blank) in enumerate(zip(row, blanks, strict=True))
    ]


# --- fitting ---------------------------------------------------------------------------------------------


def folded(command: Sequence[str], width: int | None = None) -> list[str]:
    """Format a command to paste into a shell: on one line, or if that exceeds the width, on lines that begin
    with options."""
    whole = shlex.join(command)
    if width is None or cell_len(whole) <= width:
        return [whole]
    first, *others = _options_apart(command)
    lines = [first]
    for part in others:
        if cell_len(f"{lines[-1]} {part} \\") > width:
            lines[-1] += " \\"
            lines.append(f"  {part}")
        else:
            lines[-1] += f" {part}"
    return lines


def _options_apart(command: Sequence[str]) -> list[str]:
    """Return the program, and each option with its value."""
    starts = [0, *(place for place, word in enumerate(command) if place and word.startswith("--"))]
    return [shlex.join(command[start:stop]) for start, stop in zip(starts, [*starts[1:], None], strict=True)]


def _rows_of(line: Text, size: os.terminal_size) -> int:
    return max(1, -(-line.cell_len // size.columns))


def _cut(lines: Iterable[Text], size: os.terminal_size) -> list[Text]:
    cut = [line.copy() for line in lines]
    for line in cut:
        line.truncate(size.columns, overflow="ellipsis")
    return cut
