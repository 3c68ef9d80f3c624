"""What clients may take of us: sizes, numbers and times. Who takes more loses the connection."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

ELEMENTS_OF_GROUP: Final = 20
"""To find the row of a group takes as long as to write so many elements of an answer."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of the listener; times are in seconds.

    A frame is a request as it is sent, behind its size: one that asks for 20,000 groups by names of 200 bytes
    is allowed. What has come of frames of more than 64 KiB that have not been answered yet may have
    `frames_bytes` together.

    `first_frame_s` is how long a new connection may ask nothing, `frame_s` how long a frame may take from its
    first byte to its last, `idle_s` how long nothing may be asked, and `unread_s` how long a client may take
    nothing of what was sent. A longer answer has to be taken at a pace of `unread_bytes_per_s`, as of a slow
    network, and at one of `wanted_bytes_per_s` while another waits for the turn that it keeps.

    Answers of more than `large` elements or `large_bytes` are made one after the other, and `large_answers`
    are under way at a time, the one that is made among them; another waits for at most `turn_s`: shorter than
    clients wait for an answer. Connections whose clients have said all while an answer is made, or are gone,
    do not count; up to `ended_connections` of them are still answered.
    """

    frame_bytes: int = 4 * 1024 * 1024
    frames_bytes: int = 64 * 1024 * 1024
    connections: int = 1_000
    ended_connections: int = 100
    first_frame_s: float = 5.0
    frame_s: float = 30.0
    idle_s: float = 600.0
    unread_s: float = 30.0
    unread_bytes_per_s: int = 20_000
    wanted_bytes_per_s: int = 500_000
    large: int = 20_000
    large_bytes: int = 2 * 1024 * 1024
    large_answers: int = 3
    turn_s: float = 15.0

    def may_take_s(self, sent: int, *, is_wanted: bool) -> float:
        """Return how long a client may take for so many bytes of an answer; `is_wanted`: its turn is, by
        another."""
        return self.unread_s + sent / (self.wanted_bytes_per_s if is_wanted else self.unread_bytes_per_s)


class Closed(StrEnum):
    """Why we have closed a connection."""

    CONNECTIONS = "connections"  # there are as many as are allowed
    SIZE = "size"  # a request, or its answer, is larger than is allowed
    MEMORY = "memory"  # large requests take as much together as is allowed
    REQUEST = "request"  # it cannot be read, or there is no answer to it
    BUSY = "busy"  # it was not its turn in time, and the answer has no error that says so
    IDLE = "idle"  # nothing was asked for too long, or a request did not come whole
    UNREAD = "unread"  # the client does not take what was sent
    FAILED = "failed"  # an answer could not be made, for a reason that is not the client's


class UnansweredError(Exception):
    """There is no answer to a request; the connection is to be closed, for this reason."""

    reason = Closed.REQUEST


class TooLargeError(UnansweredError):
    """The answer would be larger than is allowed."""

    reason = Closed.SIZE


class BusyError(UnansweredError):
    """It was not the turn of an answer in time."""

    reason = Closed.BUSY


class UnreadError(UnansweredError):
    """The client does not take the answer."""

    reason = Closed.UNREAD


class Size(NamedTuple):
    """How large an answer is: its elements, and the bytes of the names, texts and bytes in them."""

    elements: int
    content: int
