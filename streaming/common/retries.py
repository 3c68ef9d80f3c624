"""Retries after another process was faster; distinguishes failures from requests to end the process."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

ATTEMPTS: Final = 5

T = TypeVar("T")


def retried(failure: type[Exception], act: Callable[[], T], attempts: int = ATTEMPTS) -> T:
    """Call `act` until it does not raise `failure`, at most `attempts` times; the last call may raise it.

    >>> numbers = iter([0, 0, 2])
    >>> retried(ZeroDivisionError, lambda: 1 / next(numbers))
    0.5
    """
    for _ in range(attempts - 1):
        with suppress(failure):
            return act()
    return act()


def raise_if_ending(error: BaseException) -> None:
    """Raise an exception that requests the end of the process; a thread survives any other.

    Panics of delta-rs are such others, and not subclasses of `Exception`.
    """
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error
