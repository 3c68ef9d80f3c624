"""The handlers of the package's loggers (`streaming` and below) while a command runs."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from streaming.cli.output import warn

_ROOT: Final = logging.getLogger("streaming")


@contextmanager
def logs_to(handler: logging.Handler) -> Iterator[None]:
    """Route log records of level `info` and above to this handler alone within the block."""
    level, propagates = _ROOT.level, _ROOT.propagate
    _ROOT.addHandler(handler)
    _ROOT.setLevel(logging.INFO)
    _ROOT.propagate = False  # py4j, for one, gives the root logger a handler of its own
    try:
        yield
    finally:
        _ROOT.removeHandler(handler)
        _ROOT.setLevel(level)
        _ROOT.propagate = propagates


class Warnings(logging.Handler):
    """Prints warnings and errors like other warnings of a command; for commands without a log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        warn([record.getMessage()])
