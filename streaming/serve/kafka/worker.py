"""Threads for work that would delay the event loop; the process can end during their work."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Any

from streaming.serve.kafka.turns import FairQueue

_Work = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class Worker(threading.Thread):
    """Runs work one piece after the other, askers in rotation; a daemon, so that the process can end during
    work."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._work: FairQueue[_Work | None] = FairQueue()

    def do(self, work: Callable[[], Any], asker: Hashable = None) -> Awaitable[Any]:
        """Return an awaitable of the result; work whose awaitable was cancelled is skipped."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._work.put(asker, (work, future, loop))
        return future

    def run(self) -> None:
        """Do the work. The traceback of an error refers to this frame, which therefore keeps nothing: a cycle
        would hold the request until the next garbage collection."""
        while (given := self._work.get()) is not None:
            work, future, loop = given
            if not future.cancelled():
                result, error = _outcome(work)
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(_settle, future, result, error)
                del result, error
            del given, work, future, loop

    def end(self) -> None:
        """Let the thread end after one more piece of work for each asker."""
        self._work.put(self, None)


def _outcome(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:
        return None, error


def _settle(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


async def on_own_thread(work: Callable[[], Any], *, name: str) -> Any:
    """Return the result of work on a thread of its own."""
    worker = Worker(name)
    worker.start()
    try:
        return await worker.do(work)
    finally:
        worker.end()
