"""A cache of the results of a function for byte strings that recur, such as the keys of records."""

from collections.abc import Callable, Sized
from typing import TypeVar

K = TypeVar("K", bound=Sized | None)
V = TypeVar("V")


class KeyCache(dict[K, V]):
    """The results of a function by key, kept for short keys; a full cache is emptied.

    A lookup is that of a dict, `cache[key]`, which takes a third to a half of the time of
    `functools.lru_cache`; and that would keep long keys, too.
    """

    def __init__(self, make: Callable[[K], V], *, most_keys: int, longest: int) -> None:
        super().__init__()
        self._make = make
        self._most_keys = most_keys
        self._longest = longest

    def __missing__(self, key: K) -> V:
        made = self._make(key)
        if key is not None and len(key) <= self._longest:
            if len(self) >= self._most_keys:
                self.clear()
            self[key] = made
        return made
