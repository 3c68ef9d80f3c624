"""Keeps librdkafka's log of its connections: the last failure, and whether brokers refuse this user."""

import re
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError

_THREAD: Final = re.compile(r"^\[thrd:[^\]]*\]: ")
_REFUSALS: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})


class ClientLog:
    """The logger and the error callback of one client.

    Both are needed: only the log shows a connection that the broker closed at once because it expects TLS;
    only the callback has a code for a refusal.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._refused_since: float | None = None
        self.last = ""

    def log(self, _level: int, _form: str, facility: str, _client: str, text: str) -> None:
        """Keep the line if it is about a failed connection."""
        if facility == "FAIL":
            self.last = _THREAD.sub("", text)

    def error(self, error: KafkaError) -> None:
        """Record since when the brokers have refused the credentials or certificates.

        A failed connection resets it: the brokers are away, whatever they answered before.
        """
        if error.code() == KafkaError._TRANSPORT:
            self._refused_since = None
        elif error.code() in _REFUSALS and self._refused_since is None:
            self._refused_since = self._clock()

    def answered(self) -> None:
        """Forget earlier refusals, since brokers have answered."""
        self._refused_since = None

    def is_refused_for(self, seconds: float) -> bool:
        """Whether the brokers have refused this user for this time, without any answer."""
        return self._refused_since is not None and self._clock() - self._refused_since >= seconds
