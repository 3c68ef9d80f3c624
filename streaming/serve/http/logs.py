"""Forwards the log records of uvicorn and asyncio to the log of the process, and nowhere else."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from streaming.common.rate_limits import RateLimitedLog

_LOGGERS: Final = {
    "uvicorn.error": (logging.ERROR, "building an HTTP response failed"),
    "asyncio": (logging.WARNING, "an event loop reports"),
}
"""For each logger, the level from which records are forwarded, and the prefix of their messages."""


@contextmanager
def forwarded(to: RateLimitedLog, *, unless: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Forward the records logged within the block, one line each, `unless` it returns true."""
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
        error = record.exc_info[1] if record.exc_info else None
        why = "" if error is None else f" {type(error).__name__}: {error}"
        text = " ".join(record.getMessage().split())
        self._to.warning(record.name, f"{self._what}: {text}{why}")
