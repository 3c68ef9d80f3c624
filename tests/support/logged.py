"""What the package logs, for tests: the messages alone, in their order."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Messages(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.INFO)
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        self._said.append(record.getMessage())


@contextmanager
def logged(name: str = "streaming", *, into: list[str] | None = None) -> Iterator[list[str]]:
    """Give the messages that this logger and those below it log within, `info` and above; in a list that may
    be one that there is."""
    said: list[str] = [] if into is None else into
    logger, handler = logging.getLogger(name), _Messages(said)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
