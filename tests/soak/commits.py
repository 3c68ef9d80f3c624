"""Commits offsets by the thousand a second at little cost: packed by hand, many on their way at once.

The few fields of an OffsetCommit request (version 6) are packed with `struct`, which costs a hundredth of
building them by their declaration in `raw_requests`; a test holds the two against each other. The answer to a
commit that succeeds is known beforehand to the byte, so it is compared and only parsed where it differs.
"""

import selectors
import socket
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, NamedTuple, Self

from raw_requests import RequestError, commit_error

CONNECTIONS: Final = 32
"""A broker works on one request of a connection at a time, which waits some milliseconds for others."""

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


@dataclass
class _Connection:
    """A connection with what is still to be sent, what is awaited, and the begin of an answer."""

    socket: socket.socket
    outgoing: bytearray = field(default_factory=bytearray)
    awaited: deque[bytes] = field(default_factory=deque)
    incoming: bytearray = field(default_factory=bytearray)

    def send(self) -> None:
        """Send as much as the connection takes."""
        if self.outgoing:
            try:
                del self.outgoing[: self.socket.send(self.outgoing)]
            except BlockingIOError:
                return

    def receive(self) -> int:
        """Read and check answers; return how many."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the broker closed the connection: look into its log")
        self.incoming += data
        count, start = 0, 0
        while len(self.incoming) >= start + 4:
            stop = start + 4 + int.from_bytes(self.incoming[start : start + 4])
            if len(self.incoming) < stop:
                break
            check_answer(self.incoming[start + 4 : stop], self.awaited.popleft())
            count, start = count + 1, stop
        del self.incoming[:start]
        return count


def check_answer(answer: bytes | bytearray, expected: bytes) -> None:
    """Raise what is wrong with an answer, if it is not the expected one."""
    if answer == expected:
        return
    code = commit_error(bytes(answer))
    if code:
        raise RequestError("OffsetCommit", code)
    raise AssertionError(f"OffsetCommit: expected the answer {expected.hex()}, found {answer.hex()}")


class Committer:
    """Sends commits to the one node of a local broker; those of one group stay in their order."""

    def __init__(self, bootstrap: str, connections: int = CONNECTIONS) -> None:
        host, port = bootstrap.split(":")
        self._selector = selectors.DefaultSelector()
        self._connections = []
        for _ in range(connections):
            connection = _Connection(socket.create_connection((host, int(port)), timeout=10))
            connection.socket.setblocking(False)
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
        connection.awaited.append(commit.answer())
        self.waiting += 1

    def exchange(self, timeout_s: float) -> None:
        """Send what is in line, then read the answers that are there or come within the timeout."""
        for connection in self._connections:
            connection.send()
        for key, _ in self._selector.select(timeout_s):
            count = key.data.receive()
            self.waiting -= count
            self.answered += count

    def finish(self) -> None:
        """Wait for all answers."""
        while self.waiting:
            self.exchange(0.1)
