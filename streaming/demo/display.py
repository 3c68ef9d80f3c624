"""Displays the demo: on a terminal as a live screen, elsewhere as lines."""

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, TextIO

from rich.console import Console
from rich.text import Text

from streaming.common.rate_limits import Interval
from streaming.common.screen import Screen, with_style
from streaming.common.times import clock, now_ms
from streaming.demo.layout import (
    ENDING,
    EVENTS_HEAD,
    INTRODUCTION,
    Step,
    event_text,
    folded,
    group_lines,
    live_screen,
    offset_lines,
    waiting_screen,
)
from streaming.demo.scene import Scene

_TICK_S: Final = 0.25
_STEP_EVERY_MS: Final = 10_000  # of a long step, without a screen
_PRINT_EVERY_MS: Final = 10_000  # of the tables, likewise
_EVENTS_AT_THE_END: Final = 20


class Display:
    """The display on `out` while entered; a thread refreshes elapsed times.

    `commands` are commands for another terminal, the most important first, and `page` is an address for a
    browser. If the thread could not write, the
    next call raises its error.
    """

    def __init__(self, out: TextIO, commands: Sequence[Sequence[str]], *, page: str) -> None:
        self._out = out
        self._console = Console(file=out, highlight=False)
        self._screen = Screen(out) if Screen.is_possible(out) else None
        self._commands, self._page = commands, page
        self._begun: list[tuple[str, float]] = []  # steps, with the start of each (s)
        self._scene: Scene | None = None
        self._printed_events = 0
        self._step_interval = Interval(_STEP_EVERY_MS, at_once=False)
        self._table_interval = Interval(_PRINT_EVERY_MS, at_once=True)
        self._lock = threading.RLock()
        self._end = threading.Event()
        self._failure: Exception | None = None
        self._clock = threading.Thread(
            target=self._let_time_pass, name="offsetlake-demo-display", daemon=True
        )

    def __enter__(self) -> Self:
        if self._screen is not None:
            self._screen.open()
        else:
            self._print([*map(Text, INTRODUCTION), Text(ENDING)])
        self._clock.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._clock.join()
        with suppress(OSError):  # the terminal is gone
            self.close_screen()

    def begin(self, sentence: str) -> None:
        self.check()
        with self._lock:
            self._begun.append((sentence, time.monotonic()))
            self._step_interval = Interval(_STEP_EVERY_MS, at_once=False)
            if self._screen is None:
                self._say(f"{sentence} ...")
            else:
                self._draw(self._screen)

    def show(self, scene: Scene) -> None:
        self.check()
        with self._lock:
            is_first, self._scene = self._scene is None, scene
            self._begun = []
            if self._screen is not None:
                self._draw(self._screen)
                return
            if is_first:
                self._say(f"in a browser: {self._page}")
                for command in self._commands:
                    self._say(f"in another terminal: {folded(command)[0]}")
            self._print_events()
            if self._table_interval.is_due():
                self._print_tables()

    def close_screen(self) -> None:
        """Return to lines, at the end at the latest; does nothing without a screen."""
        with self._lock:
            screen, self._screen = self._screen, None
            if screen is not None:
                screen.close()
                self._printed_events = max(
                    0, len(self._scene.events if self._scene else ()) - _EVENTS_AT_THE_END
                )

    def conclude(self, scene: Scene, sentence: str) -> None:
        """Print the last scene, events not printed yet, and the conclusion."""
        self.check()
        with self._lock:
            self._scene, self._begun = scene, []
            self._print_tables()
            if len(scene.events) > self._printed_events:
                self._print([Text(EVENTS_HEAD)])
                self._print_events()
                self._print([Text()])
            self._say(sentence)

    def check(self) -> None:
        """Raise the error of the thread, if any."""
        if self._failure is not None:
            raise self._failure

    def _let_time_pass(self) -> None:
        try:
            while not self._end.wait(_TICK_S):
                self._tick()
        except Exception as error:
            self._failure = error

    def _tick(self) -> None:
        with self._lock:
            if self._screen is not None:
                self._draw(self._screen)
            elif self._begun and self._step_interval.is_due():
                self._say(str(self._steps()[-1]))

    def _draw(self, screen: Screen) -> None:
        size = screen.size
        if self._scene is None:
            screen.draw(waiting_screen(self._steps(), size), size)
        else:
            screen.draw(live_screen(self._scene, self._commands, size, now_ms(), page=self._page), size)

    def _steps(self) -> list[Step]:
        """Return the steps up to the current one; each ended when the next one began."""
        ends = [*(began for _, began in self._begun[1:]), time.monotonic()]
        return [
            Step(sentence, end - began, is_over=number < len(ends))
            for number, ((sentence, began), end) in enumerate(zip(self._begun, ends, strict=False), 1)
        ]

    def _print_events(self) -> None:
        assert self._scene is not None
        events = self._scene.events
        self._print([Text(event_text(event)) for event in events[self._printed_events :]])
        self._printed_events = len(events)

    def _print_tables(self) -> None:
        assert self._scene is not None
        age = max(0, now_ms() - self._scene.as_of) / 1_000
        self._say(f"the tables, as of {age:.0f} s ago; LAG as of the last sample of log ends:")
        tables = [*group_lines(self._scene), Text(), *offset_lines(self._scene)]
        self._print([Text(), *tables, Text()])

    def _say(self, sentence: str) -> None:
        self._print([Text(f"{clock(now_ms())}  {sentence}")])

    def _print(self, lines: Iterable[Text]) -> None:
        for line in lines:
            self._out.write(f"{with_style(line, self._console)}\n")
        self._out.flush()
