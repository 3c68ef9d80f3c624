"""The Kafka listener: accepts and counts connections, and provides the input of their responses."""

import asyncio
import base64
import hashlib
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Final

from decoders.messages import APIS, prepare
from streaming.common.rate_limits import RateLimitedLog
from streaming.common.times import now_ms
from streaming.model.errors import OffsetlakeError
from streaming.serve.kafka.apis import Response, ResponseCache
from streaming.serve.kafka.connection import Connection
from streaming.serve.kafka.counts import Counts
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.limits import BusyError, Closed, Limits
from streaming.serve.kafka.moments import Moments, NoMoment
from streaming.serve.kafka.principals import Principal
from streaming.serve.kafka.security import Security
from streaming.serve.kafka.turns import Turns
from streaming.serve.kafka.view import REFUSED, Address, Client, PastEnds, RequestContext
from streaming.serve.kafka.worker import Worker
from streaming.serve.memory.past import Unavailable
from streaming.serve.memory.snapshot import MemorySnapshot

_log = logging.getLogger(__name__)

_CHECK_EVERY_S: Final = 1.0
_END_LIMIT_S: Final = 1.0
_BACKLOG: Final = 64  # asyncio accepts so many at once, before any of them is closed for exceeding the limit
_RECEIVED_BYTES: Final = 64 * 1024
_PORTS_TRIED: Final = 10
_TIME_SLICE_S: Final = 0.002
_ADDRESS_SLICE_S: Final = 0.01  # of all connections from one address, one after the other
_NOTHING: Final = MemorySnapshot.none()

_SAID: Final[Mapping[Closed, str]] = {
    Closed.CONNECTIONS: "more connections than are allowed, closing one",
    Closed.ADDRESS: "more connections from one address than are allowed, closing one",
    Closed.PRINCIPAL: "more connections of one principal than are allowed, closing one",
    Closed.SIZE: "a request asks for more than fits into one response, closing the connection",
    Closed.MEMORY: "large requests take more memory than they are allowed together, closing one of them",
    Closed.BUSY: "large responses take too long, closing the connection of one that waits",
    Closed.TLS: "TLS with a client failed, closing the connection",
    Closed.SIGN_IN: "a client has not signed in, closing the connection",
    Closed.REQUEST: "a request cannot be read or is not supported, closing the connection",
    Closed.LATE: "a client takes too long, closing the connection",
    Closed.UNREAD: "a client does not read its response, closing the connection",
    Closed.FAILED: "building a response failed, closing the connection",
}
"""The messages of closed connections; none for one that was idle, which is usual."""

_UNAUTHORIZED: Final = frozenset(error for error in Error if error.name.endswith("_AUTHORIZATION_FAILED"))


class KafkaListenerError(OffsetlakeError):
    """The listener cannot be opened."""


def cluster_id_of(root: str) -> str:
    """Return the cluster id of a table root: the same at every start, and different from the id of the
    cluster in the tables, because the listener is a cluster of its own."""
    return _cluster_id(f"offsetlake:{root}")


def cluster_id_as_of(cluster_id: str, moment: int) -> str:
    """Return the cluster id of a past moment (ms), given that of now: clients may remember what they were
    told by it."""
    return _cluster_id(f"as of {moment}:{cluster_id}")


def _cluster_id(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(digest[:16]).rstrip(b"=").decode()


@dataclass(frozen=True)
class Past:
    """How a listener answers about the past: the moment of each client, and a function that returns the
    snapshot of a moment (ms) to a connection, by its number and asker (`PastSnapshots.get`)."""

    moments: Moments
    snapshot: Callable[[int, int, Hashable], MemorySnapshot | Unavailable | None]


class KafkaListener:
    """Answers Kafka's clients at one address within an `async with` block.

    `snapshot` returns the newest snapshot, `past_ends` reads log ends of the past, and `past` answers clients
    that ask about the past (None: all ask about now). Clients are given
    `advertised` as our address or, without it, the one at which they have reached us, which behind a tunnel
    is our end of it. `security` may be replaced: connections keep the one that they began with.
    """

    def __init__(
        self,
        address: Address,
        snapshot: Callable[[], MemorySnapshot],
        *,
        cluster_id: str,
        within_ms: int,
        advertised: Address | None = None,
        limits: Limits | None = None,
        security: Security | None = None,
        past_ends: PastEnds = lambda topics, moment: {},
        past: Past | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self.limits = limits or Limits()
        self.security = security or Security()
        self._kept = ResponseCache()
        self.received = memoryview(bytearray(_RECEIVED_BYTES))
        self.address = address
        self._snapshot = snapshot
        self._limited_log = RateLimitedLog(_log)
        self._cluster_id = cluster_id
        self._within_ms = within_ms
        self._advertised = advertised
        self._past_ends = past_ends
        self._past = past
        self.knows_past = past is not None
        self._clock = clock
        self._connections: set[Connection] = set()
        self._ended: set[Connection] = set()  # their clients have sent EOF
        self._by_address: Counter[str] = Counter()  # connections that have not ended
        self._admitted: dict[Connection, str] = {}  # the signed-in ones of these, with their principals
        self._reserved = 0  # bytes, for large frames
        self._turns = Turns(self.limits.large_answers)
        self._handshakes = Turns(1)
        self.counts = Counts()
        self._worker = Worker("offsetlake-answers")
        self._large_worker = Worker("offsetlake-large-answers")

    # --- open and close ----------------------------------------------------------------------------------

    async def __aenter__(self) -> "KafkaListener":
        """Open the listener; raises `KafkaListenerError`. If the port of `address` was 0, it is now the
        actual port."""
        prepare()
        try:
            self._servers = await self._open()
        except OSError as error:
            raise KafkaListenerError(
                f"listening on {self.address.host}:{self.address.port}: expected an address of this machine "
                f"and a port that is free, found: {error.strerror or error}. Choose another with --kafka."
            ) from error
        self.address = Address(self.address.host, _port(self._servers[0]))
        self._worker.start()
        self._large_worker.start()
        self._checks = asyncio.create_task(self._check())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the listener, and connections after what was already sent, within a bounded time."""
        self._checks.cancel()
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.close()
        limit = monotonic() + _END_LIMIT_S
        while self._connections and monotonic() < limit:
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.abort()
        self._worker.end()
        self._large_worker.end()

    async def _open(self) -> list[asyncio.Server]:
        """Listen at all addresses of the host, on one port."""
        host, port = self.address
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        hosts = list(dict.fromkeys(str(one[4][0]) for one in found))
        for tries_left in range(_PORTS_TRIED)[::-1]:
            first = await self._open_at(hosts[:1], port)
            try:
                return [first, *([await self._open_at(hosts[1:], _port(first))] if hosts[1:] else [])]
            except OSError:  # a port that is free at one address need not be at the others
                first.close()
                if port or not tries_left:
                    raise
        raise AssertionError("a port is tried at least")

    async def _open_at(self, hosts: list[str], port: int) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: Connection(self), hosts, port, backlog=_BACKLOG)

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            now = monotonic()
            for connection in list(self._connections):
                connection.check(now)

    @property
    def as_of(self) -> str:
        """The past moment of all responses, as it is set; empty: now, or that of each client."""
        return "" if self._past is None else self._past.moments.as_of

    @property
    def connections(self) -> int:
        return len(self._connections)

    # --- for connections (`connection.ConnectionOwner`) --------------------------------------------------

    def opened(self, connection: Connection) -> bool:
        most, most_of_one = self.limits.connections, self.limits.connections_per_address
        if self._by_address[connection.peer] >= most_of_one:
            self.closing(Closed.ADDRESS, f"expected at most {most_of_one}, found more from {connection.peer}")
            return False
        if self._by_address.total() >= most:
            self.closing(Closed.CONNECTIONS, f"expected at most {most}, found one more")
            return False
        self._connections.add(connection)
        self._by_address[connection.peer] += 1
        return True

    def reserve(self, size: int) -> bool:
        if size > 0 and self._reserved + size > self.limits.frames_bytes:
            return False
        self._reserved += size
        return True

    def admitted(self, connection: Connection, principal: Principal) -> bool:
        names = Counter(self._admitted.values())
        if names[principal.name] >= self.limits.connections_per_principal:
            return False
        self._admitted[connection] = principal.name
        return True

    def ended(self, connection: Connection) -> bool:
        most = self.limits.ended_connections
        if len(self._ended) >= most:
            why = f"expected at most {most} that wait for responses after EOF, found one more"
            self.closing(Closed.CONNECTIONS, f"{why}, from {connection.peer}")
            return False
        self._uncount(connection)
        self._ended.add(connection)
        return True

    def closed(self, connection: Connection) -> None:
        self._uncount(connection)
        self._connections.discard(connection)
        self._ended.discard(connection)

    def _uncount(self, connection: Connection) -> None:
        if connection in self._connections and connection not in self._ended:
            self._by_address[connection.peer] -= 1
            self._by_address += Counter()  # without addresses that have none
            self._admitted.pop(connection, None)

    def closing(self, reason: Closed, why: str = "") -> None:
        self.counts.add_closed(reason)
        if reason in _SAID:
            self._limited_log.warning(reason, f"{_SAID[reason]}: {why}" if why else _SAID[reason])

    def view(self, connection: Connection, client: Client, principal: Principal | None) -> RequestContext:
        view = self._present(connection.reached, client, principal)
        if self._past is None:
            return view
        if not connection.has_signed_in:  # else strangers could make us forget moments and their snapshots
            return replace(view, snapshot=_NOTHING) if self._past.moments.is_past(client.id) else view
        moment = self._past.moments.of(client.id)
        return view if moment is None else self._as_of(moment, connection, view)

    def _as_of(self, moment: int | NoMoment, connection: Connection, view: RequestContext) -> RequestContext:
        """Return the input of a response about the past."""
        assert self._past is not None
        if isinstance(moment, NoMoment):
            self._limited_log.warning("moment", f"refusing a client that asks for the past: {moment.why}")
            return replace(view, snapshot=_NOTHING, refusal=moment.why)
        found = self._past.snapshot(moment, id(connection), connection.asker)
        view = replace(
            view,
            snapshot=found if isinstance(found, MemorySnapshot) else _NOTHING,
            now=moment,
            as_of=moment,
            cluster_id=cluster_id_as_of(self._cluster_id, moment),
        )
        if not isinstance(found, Unavailable):
            return view
        error = REFUSED if found.is_refused else Error.UNKNOWN_SERVER_ERROR
        return replace(view, refusal=found.why, refused_with=error)

    def _present(self, reached: Address, client: Client, principal: Principal | None) -> RequestContext:
        return RequestContext(
            snapshot=self._snapshot(),
            now=self._clock(),
            within_ms=self._within_ms,
            address=self._advertised or reached,
            cluster_id=self._cluster_id,
            client=client,
            principal=principal,
            has_sasl=bool(self.security.mechanisms),
            past_ends=self._past_ends,
        )

    def asked(self, api_key: int, version: int, client: Client) -> None:
        self.counts.add_request(api_key, version, client)

    def kept(
        self, connection: Connection, frame: bytes, client: Client, principal: Principal | None
    ) -> Response | None:
        asker = self._advertised or connection.reached, client, principal
        return self._kept.answer(frame, asker, self._snapshot(), self._clock())

    def keep(self, frame: bytes, view: RequestContext, response: Response) -> None:
        self._kept.keep(frame, view, response)

    def answered(self, response: Response, connection: Connection) -> None:
        if not response.errors:
            return
        self.counts.add_errors(response)
        if response.refusal is not None:  # is logged with its reason
            return
        for code in _UNAUTHORIZED & response.errors.keys():
            error, api = Error(code).name, APIS[response.api_key].name
            self._limited_log.warning(error, f"refusing a request: {connection.who}: {api}: {error}")

    def elsewhere(self, asker: Hashable, work: Callable[..., Any], *arguments: Any) -> Awaitable[Any]:
        return self._worker.do(lambda: work(*arguments), asker)

    def at_length(self, work: Callable[..., Any], *arguments: Any) -> Awaitable[Any]:
        return self._large_worker.do(lambda: work(*arguments))

    async def may_shake_hands(self, peer: str) -> None:
        """Let one handshake begin in each pass of the event loop, addresses in rotation: each takes about a
        millisecond, and a thousand would delay everyone."""
        await self._handshakes.take(peer)
        try:
            await asyncio.sleep(0)
        finally:
            self._handshakes.give_back(peer)

    @asynccontextmanager
    async def turn(self, asker: Hashable) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.limits.turn_s):
                await self._turns.take(asker)
        except TimeoutError:
            raise BusyError(f"expected a turn within {self.limits.turn_s:g} s") from None
        try:
            yield
        finally:
            self._turns.give_back(asker)

    def time_slice_s(self, connection: Connection) -> float:
        return min(_TIME_SLICE_S, _ADDRESS_SLICE_S / max(self._by_address[connection.peer], 1))

    def is_turn_wanted(self) -> bool:
        return self._turns.are_wanted


def _port(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])
