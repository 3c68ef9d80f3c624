"""Commits offsets by the thousand a second at little cost: packed by hand, many on their way at once.

The few fields of an OffsetCommit request (version 6) are packed with `struct`, which costs a hundredth of
building them by their declaration in `raw_requests`; a test holds the two against each other. The answer to a
commit that succeeds is known beforehand to the byte, so it is compared and only parsed where it differs:
brokers before 4.0 answer in an order of their own.
"""

import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

from raw_requests import RequestError, answered_partitions, commit_error

CONNECTIONS: Final = 32
"""A broker works on one request of a connection at a time, which waits some milliseconds for others."""

_MOST_WAITING: Final = 5_000  # requests without an answer; then the client waits for the broker
_TICK_S: Final = 0.05

_HEADER: Final = struct.pack(">hhih5s", 8, 6, 1, 5, b"tests")  # OffsetCommit 6, correlation id 1, client id
_SIMPLE_GROUP: Final = struct.pack(">ih", -1, 0)  # no generation, and an empty member id
_ONE: Final = struct.pack(">i", 1)
_PARTITION: Final = struct.Struct(">iqih")  # index, offset, leader epoch, length of the metadata
_ANSWERED: Final = struct.Struct(">ih")  # index, error
_BEGIN_OF_ANSWER: Final = struct.pack(">ii", 1, 0)  # correlation id, throttle time


class Commit(NamedTuple):
    """One request: offsets for some partitions of one topic."""

    group: str
    topic: str
    partitions: Sequence[int]
    offsets: Sequence[int]

    def request(self) -> bytes:
        """The request as it is sent, its length first."""
        body = b"".join(
            (
                _HEADER,
                _string(self.group),
                _SIMPLE_GROUP,
                _ONE,
                _string(self.topic),
                struct.pack(">i", len(self.partitions)),
                *(
                    _PARTITION.pack(index, offset, -1, 0)
                    for index, offset in zip(self.partitions, self.offsets, strict=True)
                ),
            )
        )
        return struct.pack(">i", len(body)) + body

    def answer(self) -> bytes:
        """What follows the length of the answer if all went well."""
        return b"".join(
            (
                _BEGIN_OF_ANSWER,
                _ONE,
                _string(self.topic),
                struct.pack(">i", len(self.partitions)),
                *(_ANSWERED.pack(index, 0) for index in self.partitions),
            )
        )


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


Answered = Callable[[Commit, float], None]
"""TrackedEpisode of each commit once the broker has answered it, and when that was seen (of time.time())."""


@dataclass
class _Connection:
    """A connection with what is still to be sent, what is awaited, and the begin of an answer."""

    socket: socket.socket
    outgoing: bytearray = field(default_factory=bytearray)
    awaited: deque[Commit] = field(default_factory=deque)
    incoming: bytearray = field(default_factory=bytearray)

    def send(self) -> None:
        """Send as much as the connection takes."""
        if self.outgoing:
            try:
                del self.outgoing[: self.socket.send(self.outgoing)]
            except BlockingIOError:
                return

    def receive(self) -> Iterator[Commit]:
        """Read and check answers; yield what is answered."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the broker closed the connection: look into its log")
        self.incoming += data
        start = 0
        while len(self.incoming) >= start + 4:
            stop = start + 4 + int.from_bytes(self.incoming[start : start + 4])
            if len(self.incoming) < stop:
                break
            commit = self.awaited.popleft()
            check_answer(self.incoming[start + 4 : stop], commit.answer())
            yield commit
            start = stop
        del self.incoming[:start]


def check_answer(answer: bytes | bytearray, expected: bytes) -> None:
    """Raise what is wrong with an answer, if it is not the expected one; partitions may be in any order."""
    if answer == expected:
        return
    code = commit_error(bytes(answer))
    if code:
        raise RequestError("OffsetCommit", code)
    if answered_partitions(bytes(answer)) == answered_partitions(expected):
        return
    raise AssertionError(f"OffsetCommit: expected the answer {expected.hex()}, found {answer.hex()}")


class Committer:
    """Sends commits to the one node of a local broker; those of one group stay in their order."""

    def __init__(self, bootstrap: str, answered: Answered = lambda _commit, _moment: None) -> None:
        host, port = bootstrap.split(":")
        self._told = answered
        self._selector = selectors.DefaultSelector()
        self._connections = []
        for _ in range(CONNECTIONS):
            connection = _Connection(socket.create_connection((host, int(port)), timeout=10))
            connection.socket.setblocking(False)
            connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)
            self._connections.append(connection)
        self.waiting = 0
        self.answered = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._selector.close()
        for connection in self._connections:
            connection.socket.close()

    def commit(self, commit: Commit) -> None:
        """Put a commit in line."""
        connection = self._connections[hash(commit.group) % len(self._connections)]
        connection.outgoing += commit.request()
        connection.awaited.append(commit)
        self.waiting += 1

    def commit_all(self, commits: Iterable[Commit]) -> None:
        """Commit as fast as the broker answers, and wait for all answers."""
        for commit in commits:
            self.commit(commit)
            self.exchange_while_more_wait()
        self.finish()

    def exchange(self, timeout_s: float) -> None:
        """Send what is in line, then read the answers that are there or come within the timeout."""
        for connection in self._connections:
            connection.send()
        for key, _ in self._selector.select(timeout_s):
            moment = time.time()
            for commit in key.data.receive():
                self.waiting -= 1
                self.answered += 1
                self._told(commit, moment)

    def exchange_while_more_wait(self) -> None:
        """Wait for the broker as long as it has more to answer than it can be expected to have at a time."""
        while self.waiting > _MOST_WAITING:
            self.exchange(_TICK_S)

    def finish(self) -> None:
        """Wait for all answers."""
        while self.waiting:
            self.exchange(0.1)


class Plan(Protocol):
    """Who commits what and when; asked for one stretch of time after the other."""

    def between(self, start: float, stop: float) -> Iterator[Commit]:
        """What is committed from a time up to another one, in seconds."""


class Traffic(threading.Thread):
    """Commits what a plan says from the `with` block's begin until its end, at the plan's pace.

    Every `tick_s` it sends what is due and takes the answers that have come.
    """

    def __init__(
        self,
        bootstrap: str,
        plan: Plan,
        *,
        answered: Answered = lambda _commit, _moment: None,
        tick_s: float = _TICK_S,
    ) -> None:
        super().__init__(name="traffic", daemon=True)
        self._servers = bootstrap
        self._plan = plan
        self._answered = answered
        self._tick_s = tick_s
        self._done = threading.Event()
        self._began = 0.0
        self.requests = 0
        self.processor_s = 0.0
        self.failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    @property
    def seconds(self) -> float:
        """How long it has been going on."""
        return time.monotonic() - self._began

    def finish(self) -> None:
        """Stop, and wait for the last answers."""
        self._done.set()
        self.join(60)
        self.check()

    def check(self) -> None:
        """Raise what went wrong, if anything did."""
        if self.failure is not None:
            raise AssertionError("the traffic failed") from self.failure

    def run(self) -> None:
        """Commit until told to stop."""
        try:
            with Committer(self._servers, self._answered) as committer:
                done = 0.0
                while not self._done.wait(self._tick_s):
                    now = self.seconds
                    for commit in self._plan.between(done, now):
                        committer.commit(commit)
                    done = now
                    committer.exchange(0)
                    committer.exchange_while_more_wait()
                    self.requests, self.processor_s = committer.answered, time.thread_time()
                committer.finish()
                self.requests = committer.answered
        except BaseException as error:
            self.failure = error
