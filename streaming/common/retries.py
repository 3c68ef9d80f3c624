"""Retries what fails only because another process was faster, and tells failures from what ends a process."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

ATTEMPTS: Final = 5

T = TypeVar("T")


def retried(failure: type[Exception], act: Callable[[], T], attempts: int = ATTEMPTS) -> T:
    """Do something; retry while it raises `failure`. The last attempt may raise it.

    >>> numbers = iter([0, 0, 2])
    >>> retried(ZeroDivisionError, lambda: 1 / next(numbers))
    0.5
    """
    for _ in range(attempts - 1):
        with suppress(failure):
            return act()
    return act()


def raise_if_ending(error: BaseException) -> None:
    """Raise what tells the process to end; anything else is a failure, which a thread outlives.

    Panics of delta-rs are such failures, and no `Exception`.
    """
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error
