"""Turns and work of many askers, shared so that one that asks for much does not delay the others.

An asker is a principal or, without sign-in, an address.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Hashable
from threading import Condition
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Turns:
    """A number of turns at a time. A free one goes to the asker that has the fewest, and among these to the
    one that got its last turn first. No asker has all turns at a time, except if there is only one."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._most_of_one = max(count - 1, 1)
        self._taken: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}

    @property
    def are_taken(self) -> bool:
        """Whether no turn is free."""
        return self._taken.total() >= self._count

    @property
    def are_wanted(self) -> bool:
        """Whether somebody waits for a turn."""
        return bool(self._waiting)

    async def take(self, asker: Hashable) -> None:
        """Wait for a turn, to be given back."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(asker, deque()).append(future)
        self._give()
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._leave(asker, future)
            else:  # the turn came at the same moment
                self.give_back(asker)
            raise

    def give_back(self, asker: Hashable) -> None:
        self._taken[asker] -= 1
        self._taken += Counter()  # without those that have none
        if asker in self._waiting:
            self._waiting[asker] = self._waiting.pop(asker)  # now the last
        self._give()

    def _give(self) -> None:
        while not self.are_taken:
            askers = [one for one in self._waiting if self._taken[one] < self._most_of_one]
            if not askers:
                return
            asker = min(askers, key=self._taken.__getitem__)
            futures = self._waiting.pop(asker)
            future = futures.popleft()
            if futures:
                self._waiting[asker] = futures  # the last, too
            if not future.cancelled():
                self._taken[asker] += 1
                future.set_result(None)

    def _leave(self, asker: Hashable, future: asyncio.Future[None]) -> None:
        futures = self._waiting.get(asker, deque())
        if future in futures:
            futures.remove(future)
        if not futures:
            self._waiting.pop(asker, None)


class FairQueue(Generic[Item]):
    """A queue between threads, from which askers are served in rotation."""

    def __init__(self) -> None:
        self._items: dict[Hashable, deque[Item]] = {}
        self._is_filled = Condition()

    def put(self, asker: Hashable, item: Item) -> None:
        with self._is_filled:
            self._items.setdefault(asker, deque()).append(item)
            self._is_filled.notify()

    def get(self) -> Item:
        """Wait for an item, and remove it."""
        with self._is_filled:
            while not self._items:
                self._is_filled.wait()
            asker = next(iter(self._items))
            items = self._items.pop(asker)
            item = items.popleft()
            if items:
                self._items[asker] = items  # now the last
            return item
