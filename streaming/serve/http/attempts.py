"""Slows down clients that guess the token: who must wait how long before the next attempt."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

_EVERY_S: Final = 0.2
_AT_ONCE: Final = 10
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 30.0
_DOUBLINGS: Final = 6
_FORGOTTEN_AFTER_S: Final = 600.0
_PEERS: Final = 1_000


@dataclass(frozen=True)
class _Failures:
    count: int
    wait_until: float


class Attempts:
    """Counts failed attempts: at most five per second of all peers (ten at once), and each peer waits after
    each of its own, twice as long as before (0.5 s to 30 s; forgotten ten minutes later).

    An attempt that comes too early must be refused unchecked, and then does not count. Times are monotonic
    seconds. At most 1,000 peers are remembered, those with the newest failures.
    """

    def __init__(self) -> None:
        self._of_peer: OrderedDict[str, _Failures] = OrderedDict()
        self._free_at = 0.0

    def wait_s(self, peer: str, now: float) -> float:
        """Return the time (s) until the peer's next attempt may be checked; 0: it may be now."""
        found = self._failures(peer, now)
        of_all = self._free_at - (_AT_ONCE - 1) * _EVERY_S
        return max(0.0, of_all - now, 0.0 if found is None else found.wait_until - now)

    def failed(self, peer: str, now: float) -> None:
        """Count an attempt with a wrong token."""
        self._free_at = max(self._free_at, now) + _EVERY_S
        found = self._failures(peer, now)
        count = 0 if found is None else found.count
        wait = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** min(count, _DOUBLINGS))
        self._of_peer[peer] = _Failures(count + 1, now + wait)
        self._of_peer.move_to_end(peer)
        if len(self._of_peer) > _PEERS:
            self._of_peer.popitem(last=False)

    def succeeded(self, peer: str) -> None:
        """Forget the failures of a peer."""
        self._of_peer.pop(peer, None)

    def _failures(self, peer: str, now: float) -> _Failures | None:
        found = self._of_peer.get(peer)
        return None if found is None or now - found.wait_until > _FORGOTTEN_AFTER_S else found
