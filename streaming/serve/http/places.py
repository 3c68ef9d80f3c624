"""How many of something there are at the same time, in all and of each address."""

from collections import Counter


class Places:
    """At most `most` places are taken, and `most_of_peer` by each peer. For one event loop."""

    def __init__(self, most: int, most_of_peer: int) -> None:
        self._most, self._most_of_peer = most, most_of_peer
        self._taken: Counter[str] = Counter()

    def take(self, peer: str) -> bool:
        """Take a place; return false if there is none."""
        if self._taken.total() >= self._most or self._taken[peer] >= self._most_of_peer:
            return False
        self._taken[peer] += 1
        return True

    def give_back(self, peer: str) -> None:
        self._taken[peer] -= 1
        if not self._taken[peer]:
            del self._taken[peer]
