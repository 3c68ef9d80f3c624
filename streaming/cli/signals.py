"""Stops a command at Ctrl-C or SIGTERM, once it has finished its present step, or at SIGTERM as at Ctrl-C."""

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` on Ctrl-C and SIGTERM; a second Ctrl-C raises `KeyboardInterrupt`."""

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    previous: Mapping[int, Any] = {
        number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Raise `SystemExit` on SIGTERM within the block: by itself it would leave the programs that the command
    has started."""

    def handle(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    previous = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
