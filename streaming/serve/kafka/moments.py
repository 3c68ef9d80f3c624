"""The past moments that clients ask about, by their listener or by their `client.id`."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from streaming.common.times import MINUTE_MS, now_ms, parse_moment
from streaming.model.errors import MisuseError

_PREFIX: Final = b"as-of="
_LONGEST: Final = 100  # characters of a moment; as many are quoted of a longer one
_MOST_CLIENTS: Final = 10_000
_FORGOTTEN_S: Final = 600.0


@dataclass(frozen=True)
class NoMoment:
    """A `client.id` that asks for the past, but has no valid moment, and why."""

    why: str


@dataclass
class _Fixed:
    moment: int
    asked_at: float


class Moments:
    """Tells the moment of each client from its `client.id`, as bytes.

    With `as_of` (in the notations of `--as-of`), it is the moment of every client. Without it, clients choose
    by a `client.id` that begins with `as-of=`, and the others ask about now.

    A duration is rounded down to the minute, and stays the same moment for a `client.id` until this has not
    asked for ten minutes. The 10,000 that asked last are known; further ones get a moment as at their first
    request.
    """

    def __init__(
        self,
        as_of: str = "",
        *,
        clock: Callable[[], int] = now_ms,
        steady_clock: Callable[[], float] = monotonic,
        most_clients: int = _MOST_CLIENTS,
    ) -> None:
        self.as_of: Final = as_of
        self._clock = clock
        self._steady_clock = steady_clock
        self._most_clients = most_clients
        self._fixed: OrderedDict[int, _Fixed] = OrderedDict()  # by the hash of the id, which may be long

    def is_past(self, client_id: bytes) -> bool:
        """Return whether a client asks about the past, whatever its moment is."""
        return bool(self.as_of) or client_id.startswith(_PREFIX)

    def of(self, client_id: bytes) -> int | NoMoment | None:
        """Return the moment (ms) of a client, or why it has none; None: it asks about now."""
        if not self.is_past(client_id):
            return None
        key, now = hash(client_id), self._steady_clock()
        known = self._fixed.get(key)
        if known is None or now - known.asked_at > _FORGOTTEN_S:
            try:
                moment = self._read(client_id)
            except MisuseError as error:  # a moment in the future is valid later
                return NoMoment(str(error))
            known = self._fixed[key] = _Fixed(moment, now)
        known.asked_at = now
        self._fixed.move_to_end(key)
        if len(self._fixed) > self._most_clients:
            self._fixed.popitem(last=False)
        return known.moment

    def _read(self, client_id: bytes) -> int:
        if self.as_of:
            return fixed_moment(self.as_of, self._clock(), name="as_of")
        text = client_id.removeprefix(_PREFIX).decode(errors="replace")
        text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
        return fixed_moment(text, self._clock(), name="client.id as-of=")


def fixed_moment(text: str, now: int, *, name: str) -> int:
    """Return a past moment (ms) in a notation of `--as-of`; durations before `now` (ms) are rounded down to
    the minute. Raises `MisuseError`."""
    typed = parse_moment(text, now, name=name)
    return typed.ms // MINUTE_MS * MINUTE_MS if typed.is_relative else typed.ms
