"""Limits for clients of the Kafka listener: sizes, counts and times. A client that exceeds one is
disconnected."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

ELEMENTS_OF_GROUP: Final = 20
"""Looking up the row of a group takes as long as writing this number of elements."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of the listener; times are in seconds.

    A frame is a request after its size field; the limit admits a request for 20,000 groups with names of 200
    bytes. The received parts of frames of more than 64 KiB without a response yet may have `frames_bytes` in
    total.

    `first_frame_s` is the time without a first request, `frame_s` the time from the first byte of a frame to
    its last, `idle_s` the time without a request, and `unread_s` the time in which a client reads nothing of
    what was sent. A longer response must be read at `unread_bytes_per_s`, the rate of a slow network, and at
    `wanted_bytes_per_s` while another connection waits for its turn.

    TLS is to be negotiated within `handshake_s`; with TLS the connection counts as opened after that. A
    client must sign in within `sign_in_s` of opening it; until then its frames have at most `sign_in_bytes`.
    One that is refused learns it after `refused_s` (in Kafka: `connection.failed.authentication.delay.ms`).

    Responses of more than `large` elements or `large_bytes` are computed one after the other. `large_answers`
    are in progress at a time, including the one being computed; others wait at most `turn_s`, which is
    shorter than clients wait for a response. Askers (principals or, without sign-in, addresses) take turns,
    and none has all of them at a time. Connections whose clients have sent EOF, or are gone, while a
    response is being computed do not count; up to `ended_connections` of them still get their responses.
    """

    frame_bytes: int = 4 * 1024 * 1024
    frames_bytes: int = 64 * 1024 * 1024
    connections: int = 1_000
    connections_per_address: int = 250
    connections_per_principal: int = 250
    ended_connections: int = 100
    handshake_s: float = 5.0
    sign_in_s: float = 10.0
    sign_in_bytes: int = 64 * 1024
    refused_s: float = 0.1
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
        """Return how long a client may take for `sent` bytes of a response; `is_wanted`: another connection
        waits for its turn."""
        return self.unread_s + sent / (self.wanted_bytes_per_s if is_wanted else self.unread_bytes_per_s)


class Closed(StrEnum):
    """Why we have closed a connection."""

    CONNECTIONS = "connections"  # the limit is reached
    ADDRESS = "address"  # the limit of connections from one address is reached
    PRINCIPAL = "principal"  # the limit of connections of one principal is reached
    SIZE = "size"  # a request or its response is too large
    MEMORY = "memory"  # large requests reach their limit in total
    TLS = "tls"  # TLS could not be negotiated, or the certificate of the client is no principal's
    SIGN_IN = "sign_in"  # a request without signing in, or the client failed to
    REQUEST = "request"  # a request cannot be read, or has no response
    BUSY = "busy"  # the turn did not come in time, and the response has no error for this
    LATE = "late"  # the first request, the rest of one, or signing in did not come in time
    IDLE = "idle"  # no further request in a long time
    UNREAD = "unread"  # the client does not read the response
    FAILED = "failed"  # a response could not be computed, through no fault of the client


class UnansweredError(Exception):
    """A request has no response, and the connection must be closed for `reason`."""

    reason = Closed.REQUEST


class PrincipalError(UnansweredError):
    """The principal of a client that signs in has too many connections."""

    reason = Closed.PRINCIPAL


class TooLargeError(UnansweredError):
    """The response would exceed the limits."""

    reason = Closed.SIZE


class BusyError(UnansweredError):
    """The turn of a response did not come in time."""

    reason = Closed.BUSY


class UnreadError(UnansweredError):
    """The client does not read the response."""

    reason = Closed.UNREAD


class Size(NamedTuple):
    """The size of a response: its elements, and the bytes of its names, texts and byte strings."""

    elements: int
    content: int
