"""What uvicorn and asyncio log goes where the process says what goes wrong, and nowhere else."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from streaming.common.rate_limits import RateLimitedLog

_LOGGERS: Final = {
    "uvicorn.error": (logging.ERROR, "building an HTTP response failed"),
    "asyncio": (logging.WARNING, "an event loop complains"),
}
"""From which level on something is said, and what it is about."""


@contextmanager
def forwarded(to: RateLimitedLog, *, unless: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Pass on what is logged within, as sentences of one line."""
    before = []
    for name, (level, what) in _LOGGERS.items():
        logger, handler = logging.getLogger(name), _Forwarding(level, what, to)
        handler.addFilter(lambda _: not unless())
        before.append((logger, handler, logger.propagate))
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, handler, propagated in before:
            logger.removeHandler(handler)
            logger.propagate = propagated


class _Forwarding(logging.Handler):
    def __init__(self, level: int, what: str, to: RateLimitedLog) -> None:
        super().__init__(level)
        self._what, self._to = what, to

    def emit(self, record: logging.LogRecord) -> None:
        """Say it in one line."""
        error = record.exc_info[1] if record.exc_info else None
        why = "" if error is None else f" {type(error).__name__}: {error}"
        text = " ".join(record.getMessage().split())
        self._to.tell(record.name, f"{self._what}: {text}{why}")
