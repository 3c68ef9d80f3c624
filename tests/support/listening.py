"""A listener over real tables in this process, and clients that speak Kafka's protocol with plain sockets."""

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from logged import logged

from decoders.messages import read_response, request_bytes
from streaming.common.times import now_ms
from streaming.serve.kafka.limits import Limits
from streaming.serve.kafka.listener import KafkaListener, Past
from streaming.serve.kafka.moments import Moments
from streaming.serve.kafka.security import Security
from streaming.serve.kafka.view import Address
from streaming.serve.memory.past import PastLimits, PastSnapshots
from streaming.serve.memory.tailer import Tailer
from streaming.serve.process.past_ends import past_ends_of
from streaming.tables.tables import Tables

ANY_PORT = Address("127.0.0.1", 0)
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@dataclass
class Listening:
    """A listener that runs; `said` is what it complained about."""

    tailer: Tailer
    said: list[str] = field(default_factory=list)
    address: Address = ANY_PORT
    listener: KafkaListener | None = None
    past: PastSnapshots = field(default_factory=PastSnapshots)

    @property
    def bootstrap(self) -> str:
        """What clients connect to."""
        return f"{self.address.host}:{self.address.port}"


@contextmanager
def listening(
    tables: Tables,
    *,
    address: Address = ANY_PORT,
    limits: Limits | None = None,
    within_ms: int = 180_000,
    security: Security | None = None,
    clock: Any = now_ms,
    moments: Moments | None = None,
    past_limits: PastLimits | None = None,
) -> Iterator[Listening]:
    """Answer from tables until the end of the block; the snapshot is as of its begin, or `tailer.poll()`.
    With `moments`, clients may ask about the past."""
    with logged("streaming.serve") as said, PastSnapshots(past_limits, clock=clock) as past:
        tailer = Tailer(tables)
        tailer.poll()
        running = Listening(tailer, said, address, past=past)
        opened, stop = threading.Event(), asyncio.Event()
        loop = asyncio.new_event_loop()

        async def serve() -> None:
            listener = KafkaListener(
                running.address,
                lambda: tailer.current,
                cluster_id=CLUSTER_ID,
                within_ms=within_ms,
                limits=limits,
                security=security,
                past_ends=past_ends_of(tables),
                past=None if moments is None else Past(moments, partial(past.get, tables)),
                clock=clock,
            )
            async with listener:
                running.address, running.listener = listener.address, listener
                opened.set()
                await stop.wait()

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
        thread.start()
        try:
            assert opened.wait(10)
            yield running
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(10)
            assert not thread.is_alive()
            loop.close()


class Client:
    """A connection of a client that sends frames, perhaps from another address of this machine (`source`), or
    over a socket that is connected already. `client_id` is sent with each request."""

    def __init__(
        self,
        bootstrap: str,
        timeout_s: float = 10.0,
        *,
        source: str = "",
        tls: ssl.SSLContext | None = None,
        client_id: str = "tests",
        over: socket.socket | None = None,
    ) -> None:
        host, _, port = bootstrap.rpartition(":")
        own = (source, 0) if source else None
        self.socket = over or socket.create_connection((host, int(port)), timeout_s, own)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self._stream = self.socket.makefile("rb")
        self._asked = 0
        self.client_id = client_id

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self.socket.close()

    def named(self, software: str, version: str) -> "Client":
        """Say which software this is."""
        self.ask(18, 3, {"clientSoftwareName": software, "clientSoftwareVersion": version})
        return self

    def ask(self, api_key: int, version: int, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return the answer."""
        number = self.send(api_key, version, body)
        return self.answer(api_key, version, number)

    def send(self, api_key: int, version: int, body: dict[str, Any]) -> int:
        """Send a request; return its number."""
        self._asked += 1
        self.socket.sendall(request_bytes(api_key, version, self._asked, self.client_id, body))
        return self._asked

    def answer(self, api_key: int, version: int, number: int) -> dict[str, Any]:
        """Read the next answer, which is that to a request by its number."""
        found = read_response(api_key, version, self.frame())
        assert found.correlation_id == number
        return found.body

    def frame(self) -> bytes:
        """Read the next frame; empty where the connection was closed."""
        size = self._stream.read(4)
        if len(size) < 4:
            return b""
        (length,) = struct.unpack(">i", size)
        data = self._stream.read(length)
        return data if len(data) == length else b""
