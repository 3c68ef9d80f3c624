"""Pauses between attempts to deliver: each refused message has its own."""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

from streaming.alerts.table import TrackedEpisode

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 300.0
"""Between attempts; each pause is twice as long as the one before."""

MOST_REFUSALS: Final = 20
"""A message that is refused this often, while others are accepted, is not sent again."""


class Backoff:
    """Pauses that double, up to the longest. Moments are seconds of a monotonic clock."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._pause_s = min(FIRST_PAUSE_S, longest_s)
        self.until: float | None = None

    def begin(self, now: float) -> None:
        self.until = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, self._longest_s)

    def end(self) -> None:
        """End the pause; the next one is short again."""
        self.until, self._pause_s = None, min(FIRST_PAUSE_S, self._longest_s)


@dataclass
class _Refused:
    """A refused revision of an episode: the number of refusals that counted, and the number of accepted
    deliveries at the last refusal."""

    revision: int
    backoff: Backoff
    count: int = 0
    taken: int = -1


class Refusals:
    """The messages that a receiver has refused, by episode id.

    A refusal counts if the receiver has accepted another message since the last one: a receiver that accepts
    nothing refuses no message in particular.
    """

    def __init__(self, longest_pause_s: float) -> None:
        self._longest_pause_s = longest_pause_s
        self._refused: dict[str, _Refused] = {}
        self._taken = 0

    @property
    def next_at(self) -> float | None:
        """When the next refused message is due (s); None: there is none."""
        moments = [one.backoff.until for one in self._refused.values() if one.backoff.until is not None]
        return min(moments, default=None)

    def due_at(self, tracked: TrackedEpisode) -> float | None:
        """Return when a message is due again (s); None: this revision was not refused."""
        held = self._refused.get(tracked.episode.id)
        if held is None or held.revision != tracked.episode.revision:
            return None
        return held.backoff.until

    def take(self, tracked: Sequence[TrackedEpisode]) -> None:
        """Record that a delivery of these messages was accepted."""
        self._taken += 1
        for one in tracked:
            self._refused.pop(one.episode.id, None)

    def refuse(self, tracked: TrackedEpisode, now: float) -> bool:
        """Record that a message was refused at `now` (s). Return whether it must not be sent again."""
        held = self._refused.get(tracked.episode.id)
        if held is None or held.revision != tracked.episode.revision:
            held = _Refused(tracked.episode.revision, Backoff(self._longest_pause_s))
            self._refused[tracked.episode.id] = held
        held.count += self._taken > held.taken
        held.taken = self._taken
        held.backoff.begin(now)
        is_too_often = held.count >= MOST_REFUSALS
        if is_too_often:
            del self._refused[tracked.episode.id]
        return is_too_often

    def keep(self, pending: Container[str]) -> None:
        """Drop the records of all episodes but these (ids)."""
        self._refused = {identity: one for identity, one in self._refused.items() if identity in pending}
