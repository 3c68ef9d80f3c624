"""Calls that Ctrl-C ends although their library does not notice it."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def started(call: Callable[[], T]) -> "Future[T]":
    """Make a call in a thread: waiting for its result can be interrupted, and the process can end before it.

    >>> started(lambda: 7).result()
    7
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="offsetlake-call", daemon=True).start()
    return future
