"""Keeps what librdkafka says about its connections: why the last one failed, whether brokers refuse us."""

import re
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError

_THREAD: Final = re.compile(r"^\[thrd:[^\]]*\]: ")
_REFUSALS: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})


class ClientLog:
    """The logger and the error callback of one client.

    Both are needed: a connection that the broker closed at once, because it expects TLS, is in the log alone;
    a refusal has a code in the callback, and only words in the log.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._refused_since: float | None = None
        self.last = ""

    def log(self, _level: int, _form: str, facility: str, _client: str, text: str) -> None:
        """Keep the line if it tells of a failed connection."""
        if facility == "FAIL":
            self.last = _THREAD.sub("", text)

    def error(self, error: KafkaError) -> None:
        """Note since when the brokers refuse the credentials or certificates, if this error says so.

        A connection that comes to nothing at all says that they are away, whatever they said before.
        """
        if error.code() == KafkaError._TRANSPORT:
            self._refused_since = None
        elif error.code() in _REFUSALS and self._refused_since is None:
            self._refused_since = self._clock()

    def answered(self) -> None:
        """Forget earlier refusals: brokers have answered."""
        self._refused_since = None

    def is_refused_for(self, seconds: float) -> bool:
        """Tell whether the brokers have refused us for so long, and answered nothing in between."""
        return self._refused_since is not None and self._clock() - self._refused_since >= seconds
