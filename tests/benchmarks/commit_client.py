"""Commits offsets at a steady rate, as many consumers would: real requests over several connections.

A broker answers the requests of one connection one after the other, so a client that keeps up a rate needs
several. Requests are made from a template per group, which costs little: the machine is to do the job's work.
"""

import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import TracebackType
from typing import Final, Self

from streaming.demo_traffic import CommittedOffset
from tests.raw_requests import offset_commit_request

TOPIC: Final = "orders"
CONNECTIONS: Final = 16
_TICK_S: Final = 0.01
_LENGTH: Final = struct.Struct(">i")
_ERROR: Final = struct.Struct(">h")  # the end of an answer about one partition
_PARTITION_AND_OFFSET: Final = struct.Struct(">iq")
_AFTER_OFFSET: Final = 6  # bytes: leader epoch, length of the metadata


@dataclass(frozen=True)
class Commit:
    """One commit: `offset` for one partition of `TOPIC`."""

    group: str
    partition: int
    offset: int


@dataclass
class _Connection:
    socket: socket.socket
    asked: deque[Commit] = field(default_factory=deque)
    received: bytes = b""


def request_of(commit: Commit) -> bytes:
    """The bytes of the request for a commit."""
    template = _template(commit.group)
    varying = _PARTITION_AND_OFFSET.pack(commit.partition, commit.offset)
    return template[: -_AFTER_OFFSET - len(varying)] + varying + template[-_AFTER_OFFSET:]


@cache
def _template(group: str) -> bytes:
    return offset_commit_request(group, {(TOPIC, 0): CommittedOffset(0)})


class CommitClient:
    """Sends commits and tells `answered` of each when the broker has answered it."""

    def __init__(self, bootstrap: str, answered: Callable[[Commit, float], None]) -> None:
        self._answered = answered
        self._selector = selectors.DefaultSelector()
        host, port = bootstrap.split(":")
        self._connections = []
        for _ in range(CONNECTIONS):
            connection = _Connection(socket.create_connection((host, int(port)), timeout=10))
            connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)
            self._connections.append(connection)
        self._next = 0

    def send(self, commit: Commit) -> None:
        """Send one commit, without waiting for the answer."""
        connection = self._connections[self._next]
        self._next = (self._next + 1) % len(self._connections)
        connection.asked.append(commit)
        connection.socket.sendall(request_of(commit))

    def receive(self, wait_s: float) -> None:
        """Take the answers that have come, or come within a time."""
        for key, _ in self._selector.select(wait_s):
            self._take(key.data)

    @property
    def unanswered(self) -> int:
        """How many commits wait for their answer."""
        return sum(len(connection.asked) for connection in self._connections)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            connection.socket.close()
        self._selector.close()

    def _take(self, connection: _Connection) -> None:
        connection.received += connection.socket.recv(65_536)
        moment = time.time()
        while len(data := connection.received) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
            if len(data) < end:
                return
            error = _ERROR.unpack_from(data, end - _ERROR.size)[0]
            commit = connection.asked.popleft()
            assert error == 0, f"{commit}: expected no error, found {error}"
            connection.received = data[end:]
            self._answered(commit, moment)


class SteadyCommits(threading.Thread):
    """Sends `rate` commits a second, taken from an endless iterator, until the end of its block."""

    def __init__(self, client: CommitClient, commits: Iterator[Commit], rate: int) -> None:
        super().__init__(name="commits", daemon=True)
        self._client = client
        self._commits = commits
        self._rate = rate
        self._done = threading.Event()
        self.sent = 0
        self.processor_seconds = 0.0
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Send what is due at each tick."""
        started = time.monotonic()
        try:
            while not self._done.is_set():
                due = int((time.monotonic() - started) * self._rate)
                for _ in range(due - self.sent):
                    self._client.send(next(self._commits))
                self.sent = max(due, self.sent)
                self._client.receive(0)
                self.processor_seconds = time.thread_time()
                time.sleep(_TICK_S)
            deadline = time.monotonic() + 10
            while self._client.unanswered and time.monotonic() < deadline:
                self._client.receive(0.1)
        except BaseException as error:
            self.failure = error

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self.join()
        if self.failure is not None and error is None:
            raise self.failure


def commit_all(client: CommitClient, commits: Sequence[Commit], in_flight: int = 400) -> None:
    """Send commits as fast as the broker answers, and wait for the answers."""
    for commit in commits:
        while client.unanswered >= in_flight:
            client.receive(1)
        client.send(commit)
    while client.unanswered:
        client.receive(1)
