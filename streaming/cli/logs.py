"""Where a command has what the package logs: loggers of the standard library, all below `streaming`."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from streaming.cli.output import warn

_ROOT: Final = logging.getLogger("streaming")


@contextmanager
def logs_to(handler: logging.Handler) -> Iterator[None]:
    """Have what is logged within, `info` and above, handled by this handler and no other."""
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
    """Prints warnings and errors as the other warnings of a command; for those that print no log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        warn([record.getMessage()])
