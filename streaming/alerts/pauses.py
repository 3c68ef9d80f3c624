"""When to send again what a receiver did not take: each message that was refused has pauses of its own."""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

from streaming.alerts.table import Told

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 300.0
"""Between attempts; each pause is twice the one before."""

MOST_REFUSALS: Final = 20
"""So often a message may be refused while others are taken; then it is given up."""


class Backoff:
    """Pauses that grow, up to the longest. Moments are seconds of a clock that is never set."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._pause_s = min(FIRST_PAUSE_S, longest_s)
        self.until: float | None = None

    def begin(self, now: float) -> None:
        """Begin a pause, twice as long as the one before."""
        self.until = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, self._longest_s)

    def end(self) -> None:
        """End the pause; the next one is the first again."""
        self.until, self._pause_s = None, min(FIRST_PAUSE_S, self._longest_s)


@dataclass
class _Refused:
    """A revision of an episode that was refused: how often while others were taken, and how many these were
    up to then."""

    revision: int
    backoff: Backoff
    count: int = 0
    taken: int = -1


class Refusals:
    """The messages that a receiver has refused, by the ids of their episodes.

    A refusal counts if the receiver has taken another message since the one before: one that takes nothing
    has refused no message in particular.
    """

    def __init__(self, longest_pause_s: float) -> None:
        self._longest_pause_s = longest_pause_s
        self._refused: dict[str, _Refused] = {}
        self._taken = 0

    @property
    def next_at(self) -> float | None:
        """When the next one is to be sent again; None: there is none."""
        moments = [one.backoff.until for one in self._refused.values() if one.backoff.until is not None]
        return min(moments, default=None)

    def due_at(self, told: Told) -> float | None:
        """Return when a message may be sent again; None: it was not refused as it is now."""
        held = self._refused.get(told.episode.id)
        if held is None or held.revision != told.episode.revision:
            return None
        return held.backoff.until

    def take(self, told: Sequence[Told]) -> None:
        """Note that messages were taken."""
        self._taken += 1
        for one in told:
            self._refused.pop(one.episode.id, None)

    def refuse(self, told: Told, now: float) -> bool:
        """Note that a message was refused; return whether it is to be given up."""
        held = self._refused.get(told.episode.id)
        if held is None or held.revision != told.episode.revision:
            held = _Refused(told.episode.revision, Backoff(self._longest_pause_s))
            self._refused[told.episode.id] = held
        held.count += self._taken > held.taken
        held.taken = self._taken
        held.backoff.begin(now)
        is_too_often = held.count >= MOST_REFUSALS
        if is_too_often:
            del self._refused[told.episode.id]
        return is_too_often

    def keep(self, pending: Container[str]) -> None:
        """Forget all but those of some episodes."""
        self._refused = {identity: one for identity, one in self._refused.items() if identity in pending}
