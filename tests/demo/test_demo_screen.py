"""The demo on a real pseudo-terminal: what it shows after resizing, and what it leaves behind."""

import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.text import Text
from small_terminal import SmallTerminal
from test_demo_layout import COMMANDS, NOW, PAGE, cast_scene

from streaming.common.screen import Screen
from streaming.demo.display import Display
from streaming.demo.layout import live_screen
from streaming.demo.scene import Event, Scene

RESIZES = [(60, 24), (80, 12), (120, 40), (40, 10), (200, 60), (79, 23), (20, 3)]


class Pty:
    """A pseudo-terminal with `out` as its program's end, and what it shows."""

    def __init__(self) -> None:
        self._master, slave = pty.openpty()
        self.out = os.fdopen(slave, "w", encoding="utf-8")
        self.terminal = SmallTerminal(80, 24)
        self.resize(80, 24)

    def resize(self, columns: int, lines: int) -> None:
        """Let the program's last output arrive, then change the size as a window does."""
        self.shown()
        fcntl.ioctl(self.out, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.terminal.resize(columns, lines)

    def shown(self) -> list[str]:
        """What the terminal shows once it has got all that was written."""
        self.terminal.write(self.read())
        return self.terminal.shown()

    def read(self) -> str:
        """What was written since the last time."""
        written = b""
        while select.select([self._master], [], [], 0)[0]:
            written += os.read(self._master, 65_536)
        return written.decode()

    def wait_for(self, condition: Callable[[list[str]], bool]) -> list[str]:
        deadline = time.monotonic() + 10
        while not condition(self.shown()):
            assert time.monotonic() < deadline, "\n".join(self.shown())
            time.sleep(0.02)
        return self.shown()

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def close(self) -> None:
        self.out.close()
        os.close(self._master)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pty]:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("streaming.demo.display._TICK_S", 0.05)
    monkeypatch.setenv("COLUMNS", "55")  # is not the terminal's width
    terminal = Pty()
    yield terminal
    terminal.close()


def afresh(scene: Scene, columns: int, lines: int, tmp_path: Path) -> list[str]:
    """What a terminal of this size shows of a scene that is drawn on it for the first time."""
    size = os.terminal_size((columns, lines))
    with (tmp_path / "frame.txt").open("w+") as out:
        Screen(out).draw(live_screen(scene, COMMANDS, size, scene.as_of, page=PAGE), size)
        out.seek(0)
        terminal = SmallTerminal(columns, lines)
        terminal.write(out.read())
    return terminal.shown()


def without_age(rows: list[str]) -> list[str]:
    return [row for row in rows if not row.startswith("As of")]


@pytest.mark.parametrize(("columns", "lines"), RESIZES)
def test_nothing_of_former_frames_remains_after_resizing(
    terminal: Pty, tmp_path: Path, columns: int, lines: int
) -> None:
    scene = cast_scene()
    with Display(terminal.out, COMMANDS, page=PAGE) as display:
        display.show(scene)
        assert without_age(terminal.shown()) == without_age(afresh(scene, 80, 24, tmp_path))
        for size in [(columns, lines), (80, 24), (columns, lines)]:
            terminal.resize(*size)
            expected = without_age(afresh(scene, *size, tmp_path))
            terminal.wait_for(lambda shown, expected=expected: without_age(shown) == expected)


def test_a_frame_that_is_drawn_just_after_resizing_does_not_stay(terminal: Pty, tmp_path: Path) -> None:
    scene = cast_scene()
    screen = Screen(terminal.out)
    size = screen.size
    terminal.resize(50, 15)
    screen.draw(live_screen(scene, COMMANDS, size, NOW, page=PAGE), size)  # made for 80 columns
    size = screen.size
    assert size == (50, 15)
    screen.draw(live_screen(scene, COMMANDS, size, NOW, page=PAGE), size)
    assert without_age(terminal.shown()) == without_age(afresh(scene, 50, 15, tmp_path))


def test_events_and_offsets_that_follow_replace_the_former_ones(terminal: Pty, tmp_path: Path) -> None:
    with Display(terminal.out, COMMANDS, page=PAGE) as display:
        for count in (0, 3, 12):
            scene = cast_scene(count)
            display.show(scene)
            assert without_age(terminal.shown()) == without_age(afresh(scene, 80, 24, tmp_path))


def test_seconds_pass_while_something_is_started(terminal: Pty) -> None:
    with Display(terminal.out, COMMANDS, page=PAGE) as display:
        display.begin("starting a Kafka broker")
        terminal.wait_for(lambda shown: "starting a Kafka broker ... 1 s" in shown)
        display.begin("starting Spark")
        assert "starting a Kafka broker: 1 s" in terminal.shown()
        assert "starting Spark ... 0 s" in terminal.shown()


def test_the_terminal_is_given_back_as_it_was(terminal: Pty) -> None:
    terminal.out.write("$ make demo\r\n")
    terminal.out.flush()
    before = terminal.shown()
    with Display(terminal.out, COMMANDS, page=PAGE) as display:
        display.show(cast_scene())
        assert terminal.shown() != before
        assert (terminal.terminal.is_alternate, terminal.terminal.shows_cursor) == (True, False)
    assert terminal.shown() == before
    assert (terminal.terminal.is_alternate, terminal.terminal.shows_cursor) == (False, True)


def test_the_terminal_is_given_back_when_the_demo_fails(terminal: Pty) -> None:
    def fail() -> None:
        with Display(terminal.out, COMMANDS, page=PAGE) as display:
            display.show(cast_scene())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert terminal.shown() == [""] * 24
    assert terminal.terminal.shows_cursor


def test_the_end_is_printed_on_the_usual_screen(terminal: Pty) -> None:
    terminal.resize(120, 60)
    with Display(terminal.out, COMMANDS, page=PAGE) as display:
        display.show(cast_scene(100))
        display.close_screen()
        display.begin("stopping the consumer groups")
        display.conclude(cast_scene(101), "the tables agree with the broker: 18 offsets of 6 groups")
        shown = terminal.shown()
    assert any(row.endswith("stopping the consumer groups ...") for row in shown)
    assert any(row.endswith("the tables agree with the broker: 18 offsets of 6 groups") for row in shown)
    assert len([row for row in shown if "  10" in row]) == 18
    assert len([row for row in shown if "  happened " in row]) == 21  # the last ones, and the new one


def test_only_rows_that_changed_are_written(terminal: Pty) -> None:
    size = os.terminal_size((80, 24))
    screen = Screen(terminal.out)
    lines = [Text("first"), Text("second"), Text("third")]
    screen.draw(lines, size)
    terminal.shown()
    screen.draw([*lines[:2], Text("3")], size)
    written = terminal.read()
    assert "second" not in written
    assert "first" in written  # over which the terminal echoes what is typed
    terminal.terminal.write(written)
    assert terminal.shown()[:4] == ["first", "second", "3", ""]


def test_what_is_typed_is_drawn_over(terminal: Pty) -> None:
    with Display(terminal.out, COMMANDS, page=PAGE) as display:
        display.show(cast_scene())
        first_row = terminal.shown()[0]
        terminal.type("hello")
        terminal.wait_for(lambda shown: shown[0] != first_row)
        terminal.wait_for(lambda shown: shown[0] == first_row)


def test_a_full_row_keeps_its_last_character_and_a_wide_line_is_folded(terminal: Pty) -> None:
    terminal.resize(10, 6)
    screen = Screen(terminal.out)
    lines = [Text("0123456789"), Text("x" * 25), Text("end"), Text("left out 1"), Text("left out 2")]
    screen.draw(lines, screen.size)
    assert terminal.shown() == ["0123456789", "x" * 10, "x" * 10, "x" * 5, "end", "left out 1"]


def test_a_terminal_that_cannot_place_text_gets_lines(terminal: Pty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with Display(terminal.out, COMMANDS, page=PAGE) as display:
        display.begin("starting Spark")
        assert not terminal.terminal.is_alternate
        assert any("starting Spark ..." in row for row in terminal.shown())


# --- without a terminal ----------------------------------------------------------------------------------


def test_a_pipe_gets_readable_lines(tmp_path: Path) -> None:
    with (tmp_path / "out.txt").open("w") as out, Display(out, COMMANDS, page=PAGE) as display:
        display.begin("starting Spark (some 20 s are usual)")
        display.show(cast_scene(2))
        display.show(cast_scene(3))
        display.close_screen()
        display.begin("stopping the consumer groups")
        display.conclude(cast_scene(3), "the tables agree")
    text = (tmp_path / "out.txt").read_text()
    assert text.isascii()
    assert "\x1b" not in text
    lines = text.splitlines()
    assert [line for line in lines if "happened" in line] == [
        f"22:13:20  happened {number}" for number in range(3)
    ]
    assert any(line.endswith("  starting Spark (some 20 s are usual) ...") for line in lines)
    told = [line.partition("  in another terminal: ")[2] for line in lines]
    assert [one for one in told if one] == [" ".join(command) for command in COMMANDS]
    assert len([line for line in lines if " s ago; LAG as of" in line]) == 2  # at first, and at the end
    assert len([line for line in lines if "  10" in line]) == 2 * 18
    assert lines[-1].endswith("  the tables agree")


def test_a_pipe_gets_how_long_a_step_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.demo.display._STEP_EVERY_MS", 300)
    file = tmp_path / "out.txt"
    with file.open("w") as out, Display(out, COMMANDS, page=PAGE) as display:
        display.begin("starting Spark")
        deadline = time.monotonic() + 10
        while "starting Spark ... 1 s" not in file.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_reader_that_has_gone_ends_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.demo.display._STEP_EVERY_MS", 100)
    reader, writer = os.pipe()
    out = os.fdopen(writer, "w")

    def wait() -> None:
        with Display(out, COMMANDS, page=PAGE) as display:
            display.begin("starting Spark")
            os.close(reader)
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline:
                display.check()
                time.sleep(0.05)

    with pytest.raises(BrokenPipeError):
        wait()
    with pytest.raises(BrokenPipeError):
        out.close()


def test_an_event_is_reported_once(tmp_path: Path) -> None:
    events = tuple(Event(seen_at=NOW, sentence=sentence) for sentence in ("one", "two"))
    with (tmp_path / "out.txt").open("w") as out, Display(out, COMMANDS, page=PAGE) as display:
        display.show(Scene(events=events[:1]))
        display.show(Scene(events=events))
    assert (tmp_path / "out.txt").read_text().count("  one\n") == 1
    assert (tmp_path / "out.txt").read_text().count("  two\n") == 1
