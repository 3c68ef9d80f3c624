"""What clients of the HTTP listener may take: sizes, numbers and times. Who takes more loses the
connection."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class HttpLimits:
    """Limits of the listener; times are in seconds.

    `head_bytes` is how long a request may be, `head_s` how long it may take from its first byte to its last,
    or from the connection on; `idle_s` how long nothing may be asked, `unread_s` how long a client may take
    nothing of an answer, and `answer_s` how long it may take for a whole one. Bytes of metrics are waited
    for at most `wait_s`.
    """

    connections: int = 500
    connections_of_address: int = 200
    head_bytes: int = 16 * 1024
    head_s: float = 10.0
    idle_s: float = 75.0
    unread_s: float = 30.0
    answer_s: float = 300.0
    wait_s: float = 30.0
