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

    `pages_of_address` is how many pages and files for one address are made, or wait for that, at the same
    time. `downloads` files (`.json`, `.csv`) are made or sent at the same time, `downloads_of_address` to one
    address: each holds its rows until its client has taken it. Further requests get a 503.
    """

    connections: int = 500
    connections_of_address: int = 200
    pages_of_address: int = 16
    downloads: int = 8
    downloads_of_address: int = 4
    head_bytes: int = 16 * 1024
    login_bytes: int = 8 * 1024
    head_s: float = 10.0
    idle_s: float = 75.0
    unread_s: float = 30.0
    answer_s: float = 300.0
    wait_s: float = 30.0
    session_s: float = 12 * 3600.0
