"""Limits for clients of the HTTP listener: sizes, counts and times. A client that exceeds one is
disconnected."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class HttpLimits:
    """Limits of the listener; times are in seconds.

    `head_bytes` is the largest request without its body, and `login_bytes` the largest body of `POST /login`;
    no other request may have one. `head_s` is the time from its first byte, or from the connection, to
    its last byte; `idle_s` the time without a request; `unread_s` the time in which a client reads nothing of
    a response; and `answer_s` the time for a whole response. A request waits at most `wait_s` for metrics to
    be built. A browser that has sent the token need not send it again for `session_s`.
    """

    connections: int = 500
    connections_of_address: int = 200
    head_bytes: int = 16 * 1024
    login_bytes: int = 8 * 1024
    head_s: float = 10.0
    idle_s: float = 75.0
    unread_s: float = 30.0
    answer_s: float = 300.0
    wait_s: float = 30.0
    session_s: float = 12 * 3600.0
