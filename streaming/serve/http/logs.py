"""What uvicorn and asyncio log goes where the process says what goes wrong, and nowhere else."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_LOGGERS: Final = {
    "uvicorn.error": (logging.ERROR, "building an HTTP response failed"),
    "asyncio": (logging.WARNING, "an event loop complains"),
}
"""From which level on something is said, and what it is about."""

Tell = Callable[[str, str], None]
"""Takes what a sentence is about, and the sentence."""


@contextmanager
def told(tell: Tell) -> Iterator[None]:
    """Hand what is logged within to `tell`, as sentences of one line."""
    before = []
    for name, (level, what) in _LOGGERS.items():
        logger, handler = logging.getLogger(name), _Telling(level, what, tell)
        before.append((logger, handler, logger.propagate))
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, handler, propagated in before:
            logger.removeHandler(handler)
            logger.propagate = propagated


class _Telling(logging.Handler):
    def __init__(self, level: int, what: str, tell: Tell) -> None:
        super().__init__(level)
        self._what, self._tell = what, tell

    def emit(self, record: logging.LogRecord) -> None:
        """Say it in one line."""
        error = record.exc_info[1] if record.exc_info else None
        why = "" if error is None else f" {type(error).__name__}: {error}"
        text = " ".join(record.getMessage().split())
        self._tell(record.name, f"{self._what}: {text}{why}")
