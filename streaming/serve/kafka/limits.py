"""What clients may take of us: sizes, numbers and times. Who takes more loses the connection."""

from dataclasses import dataclass
from typing import Final

ELEMENTS_OF_GROUP: Final = 20
"""To find the row of a group takes as long as to write so many elements of an answer."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of the listener; times are in seconds.

    A frame is a request as it is sent, behind its size: one that asks for 20,000 groups by names of 200 bytes
    is allowed, and takes up to a hundred times its size in memory while it is read, which happens to one at a
    time. All frames of more than 64 KiB that have not been answered yet may have `frames_bytes` together.

    `first_frame_s` is how long a new connection may ask
    nothing, `frame_s` how long a frame may take from its first byte to its last, `idle_s` how long nothing
    may be asked, and `unread_s` how long a client may take nothing of what was sent. Of answers with more
    than `large` elements `large_answers` are made and sent at a time; others wait. Connections whose clients
    have said all while an answer is made, or are gone, do not count; up to `ended_connections` of them are
    still answered.
    """

    frame_bytes: int = 4 * 1024 * 1024
    frames_bytes: int = 64 * 1024 * 1024
    connections: int = 1_000
    connections_of_address: int = 100
    ended_connections: int = 100
    first_frame_s: float = 5.0
    frame_s: float = 30.0
    idle_s: float = 600.0
    unread_s: float = 30.0
    large: int = 20_000
    large_answers: int = 3
