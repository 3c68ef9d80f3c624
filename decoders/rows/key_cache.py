"""A cache of function results for byte strings that recur, such as keys of records."""

from collections.abc import Callable, Sized
from typing import TypeVar

K = TypeVar("K", bound=Sized | None)
V = TypeVar("V")


class KeyCache(dict[K, V]):
    """The results of a function by key, cached for short keys; a full cache is emptied.

    A lookup is `cache[key]`, as fast as in any dict: a third to a half of the time of `functools.lru_cache`,
    which would also keep long keys.
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
