"""The number of commits a minute, from a counter that is looked at now and then."""

from collections import deque
from threading import Lock
from typing import Final

_SPAN_MS: Final = 60_000
_LEAST_MS: Final = 4_000

_OVERTAKEN_MS: Final = 10_000
"""A request may come so much later than one that began after it."""


class CommitRate:
    """Remembers a counter's values of the last minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque()
        self._lock = Lock()

    def per_minute(self, now: int, count: int) -> float | None:
        """Return the increase per minute until `now` (ms); None until it was seen for some seconds."""
        with self._lock:
            last = self._seen[-1][0] if self._seen else now
            if last - now > _OVERTAKEN_MS:  # the clock went back
                self._seen.clear()
            else:
                now = max(now, last)
            while self._seen and now - self._seen[0][0] > _SPAN_MS:
                self._seen.popleft()
            if not self._seen or now > self._seen[-1][0]:
                self._seen.append((now, count))
            first_at, first = self._seen[0]
            return (count - first) * 60_000 / (now - first_at) if now - first_at >= _LEAST_MS else None
