"""Threads for work that would delay the event loop; the process can end during their work."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Any

from streaming.serve.kafka.turns import FairQueue


class Worker(threading.Thread):
    """Runs work one piece after the other, askers in rotation; a daemon, so that the process can end during
    work."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._work: FairQueue[Callable[[], None] | None] = FairQueue()

    def do(self, work: Callable[[], Any], asker: Hashable = None) -> Awaitable[Any]:
        """Return an awaitable of the result; work whose awaitable was cancelled is skipped."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(set_it: Callable[[Any], None], value: Any) -> None:
            if not future.done():
                set_it(value)

        def act() -> None:
            if future.cancelled():
                return
            with suppress(RuntimeError):  # the loop has ended
                try:
                    loop.call_soon_threadsafe(settle, future.set_result, work())
                except BaseException as error:
                    loop.call_soon_threadsafe(settle, future.set_exception, error)

        self._work.put(asker, act)
        return future

    def run(self) -> None:
        while (act := self._work.get()) is not None:
            act()
            del act  # and release its references

    def end(self) -> None:
        """Let the thread end after one more piece of work for each asker."""
        self._work.put(self, None)


async def on_own_thread(work: Callable[[], Any], *, name: str) -> Any:
    """Return the result of work on a thread of its own."""
    worker = Worker(name)
    worker.start()
    try:
        return await worker.do(work)
    finally:
        worker.end()
