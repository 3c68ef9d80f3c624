"""One connection: splits bytes into frames, reads requests, and writes responses in the order of requests.

With TLS, negotiating it comes first; with SASL, no other request is read before the client has signed in.

While a response is being computed, or the client does not read what was sent, no further frame is read, and
only as many bytes as it takes to notice a disconnect. So a client occupies at most a frame, a response and
its socket buffers.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from time import monotonic
from typing import Any, Final, Protocol

from decoders.errors import DecodeError, ErrorKind
from decoders.messages import Pieces, Request, read_request
from streaming.serve.kafka.apis import (
    MANY,
    Response,
    answer,
    answer_later,
    client_of,
    reads_tables,
    size_of,
    weight_of,
    written,
)
from streaming.serve.kafka.limits import (
    BusyError,
    Closed,
    Limits,
    PrincipalError,
    UnansweredError,
    UnreadError,
)
from streaming.serve.kafka.principals import Principal
from streaming.serve.kafka.sasl.sign_in import AUTHENTICATE, HANDSHAKE, Reply, SignIn, SignInError, Tokens
from streaming.serve.kafka.security import Security, subject_of
from streaming.serve.kafka.view import Address, Client, RequestContext, short
from streaming.serve.memory.snapshot import MemorySnapshot

_SIZE: Final = struct.Struct(">i")
_API_KEY: Final = struct.Struct(">h")  # at the start of a frame
_API_KEY_AND_VERSION: Final = struct.Struct(">hh")
_CLIENT_ID: Final = struct.Struct(">8xh")  # the length of the client id before it, in every version
_LARGE_FRAME: Final = 4 * 1024  # takes a millisecond or more to read and weigh
_AHEAD: Final = 64 * 1024  # received bytes at which reading pauses while a response is being computed
_BUFFERED: Final = 64 * 1024  # unsent bytes at which reading pauses
_SENT_AHEAD: Final = 256 * 1024  # in the system: with several MB there, a slow client seems not to read
_PIECE: Final = 256 * 1024
_MANY_BYTES: Final = 64 * 1024  # of content, which take a while to write
_LOOK_EVERY_S: Final = 0.5  # for others that wait for the turn of a slow client
_GOODBYE_S: Final = 1.0  # how long a client may take to answer the end of TLS


class ConnectionOwner(Protocol):
    """The listener, as its connections use it."""

    limits: Limits
    security: Security
    knows_past: bool  # a client, by its id, may ask about the past
    received: memoryview  # receive buffer that all connections share

    def opened(self, connection: "Connection") -> bool:
        """Register a connection; return false if there are too many."""

    def reserve(self, size: int) -> bool:
        """Reserve memory for a large frame, or release it (negative size); return false if there is too
        little."""

    def admitted(self, connection: "Connection", principal: Principal) -> bool:
        """Count a connection whose client has signed in; return false if its principal has too many."""

    def ended(self, connection: "Connection") -> bool:
        """Stop counting a connection whose client has sent EOF, and may be gone; return whether it may still
        get its responses: only few such connections are kept."""

    def closed(self, connection: "Connection") -> None: ...

    def closing(self, reason: Closed, why: str = "") -> None:
        """Count a connection that we close, and log why if that is worth a message."""

    def view(self, connection: "Connection", client: Client, principal: Principal | None) -> RequestContext:
        """Return the present input of a response."""

    def asked(self, api_key: int, version: int, client: Client) -> None:
        """Count a readable request."""

    def kept(
        self, connection: "Connection", frame: bytes, client: Client, principal: Principal | None
    ) -> Response | None:
        """Return the kept response to the same request of the same client, if it still holds."""

    def keep(self, frame: bytes, view: RequestContext, response: Response) -> None:
        """Keep a small response for `kept`."""

    def answered(self, response: Response, connection: "Connection") -> None:
        """Count the errors in a response, and log those that refuse a client."""

    def elsewhere(self, asker: Hashable, work: Callable[..., Any], *arguments: Any) -> Awaitable[Any]:
        """Run work that takes a while on a thread, one piece after the other and askers in rotation, while
        the event loop serves others."""

    def at_length(self, work: Callable[..., Any], *arguments: Any) -> Awaitable[Any]:
        """Run work that takes long on a second thread, so that it does not delay `elsewhere`."""

    async def may_shake_hands(self, peer: str) -> None:
        """Wait until the handshake of another connection may begin."""

    def turn(self, asker: Hashable) -> AbstractAsyncContextManager[object]:
        """Wait for a turn to compute and send a large response; raises `BusyError` if that takes too long."""

    def time_slice_s(self, connection: "Connection") -> float:
        """Return how long to serve a connection before others."""

    def is_turn_wanted(self) -> bool:
        """Return whether another connection waits for a turn."""


class TlsError(UnansweredError):
    """The certificate of a client is no principal's."""

    reason = Closed.TLS


class Connection(asyncio.BufferedProtocol):
    def __init__(self, listener: ConnectionOwner) -> None:
        self._listener = listener
        self._client = Client()
        security = self._security = listener.security
        self._certified: Principal | None = None
        self._sign_in: SignIn | None = None
        if security.mechanisms:
            self._sign_in = SignIn(lambda: listener.security, refused_s=listener.limits.refused_s)
        self._is_shaking_hands = False  # TLS is being negotiated, and `_transport` is not it yet
        self._received = bytearray()
        self._is_full = False  # the client does not read what was sent
        self._is_taken = False
        self._task: asyncio.Future[None] | None = None
        self._drained = asyncio.Event()
        self._opened_at = self._asked_at = self._begun_at = self._sent_at = monotonic()
        self._has_asked = False
        self._has_ended = False  # the client has sent EOF
        self._reserved = 0  # bytes, for a large frame
        self._unsent = 0

    # --- asyncio's side ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = self._socket = transport
        own = transport.get_extra_info("sockname")
        self.reached = Address(*own[:2])  # as the client reaches us
        self._peer = str((transport.get_extra_info("peername") or ("?",))[0])
        transport.set_write_buffer_limits(high=_BUFFERED)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENT_AHEAD)
        self._is_taken = self._listener.opened(self)
        if not self._is_taken:
            transport.abort()
        elif self._security.tls is not None:
            self._is_shaking_hands = True
            transport.pause_reading()  # what comes is for TLS
            self._start(self._shake_hands())

    def connection_lost(self, error: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._is_taken:
            self._listener.closed(self)
        self._reserve(0)
        self._transport = self._socket  # no cycle with TLS: its 256 KiB would wait for the garbage collector

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer that all connections share: its bytes are copied at once."""
        return self._listener.received

    def buffer_updated(self, nbytes: int) -> None:
        if not self._received:
            self._begun_at = monotonic()
        self._received += self._listener.received[:nbytes]
        if not self._is_shaking_hands:  # the first bytes within TLS come before its transport
            self._go_on()

    def eof_received(self) -> bool:
        """Finish the response in progress: the client may have closed only its sending side, or be gone."""
        self._has_ended = True
        if not self._is_waiting or self._security.tls is not None:  # TLS has no half-closed connections
            return False  # asyncio closes the connection
        if not self._listener.ended(self):
            self._transport.abort()
        return True

    def pause_writing(self) -> None:
        self._is_full = True
        self._drained.clear()
        self._sent_at, self._unsent = monotonic(), self._transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self._is_full = False
        self._drained.set()
        self._go_on()

    # --- the client --------------------------------------------------------------------------------------

    @property
    def peer(self) -> str:
        """The address of the client's host."""
        return self._peer

    @property
    def who(self) -> str:
        """The client in messages."""
        return self._peer if self._principal is None else f"{self._peer} ({self._principal.name})"

    @property
    def asker(self) -> Hashable:
        """With whom the connection shares turns: its principal or, without one, its address."""
        return self._principal or self._peer

    @property
    def has_signed_in(self) -> bool:
        """Whether the client has signed in, or need not."""
        return self._sign_in is None or self._sign_in.principal is not None

    # --- signing in --------------------------------------------------------------------------------------

    async def _shake_hands(self) -> None:
        """Negotiate TLS on this connection, which counts from its first byte."""
        assert self._security.tls is not None
        await self._listener.may_shake_hands(self._peer)
        try:
            transport = await asyncio.get_running_loop().start_tls(
                self._transport,
                self,
                self._security.tls,
                server_side=True,
                ssl_handshake_timeout=self._listener.limits.handshake_s,
                ssl_shutdown_timeout=_GOODBYE_S,
            )
        except OSError as error:  # also of TLS
            transport, why = None, getattr(error, "reason", None) or str(error) or type(error).__name__
            error.__traceback__ = None  # no cycle here either
        else:
            why = "the client has gone"
        if transport is None:  # asyncio has closed the connection, perhaps without telling us
            self._listener.closing(Closed.TLS, f"{self._peer}: {why}")
            self._listener.closed(self)
            return
        transport.set_write_buffer_limits(high=_BUFFERED)
        self._transport, self._is_shaking_hands = transport, False
        self._opened_at = monotonic()
        if self._security.certified is not None:
            self._certified = self._principal_of_certificate(self._security.certified)
            self._admit(self._certified)

    def _principal_of_certificate(self, certified: Mapping[str, Principal]) -> Principal:
        shown = self._transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        subject = subject_of(shown) if shown else "no certificate"
        if subject not in certified:
            raise TlsError(f"expected the certificate of a principal, found {short(subject)}")
        return certified[subject]

    def _admit(self, principal: Principal) -> None:
        if not self._listener.admitted(self, principal):
            most = self._listener.limits.connections_per_principal
            raise PrincipalError(f"expected at most {most}, found one more")

    @property
    def _principal(self) -> Principal | None:
        return self._certified if self._sign_in is None else self._sign_in.principal

    def _is_for_sign_in(self, frame: bytes) -> bool:
        """Return whether a frame belongs to signing in; raises `SignInError` for another one too early."""
        if self._sign_in is None:
            return False
        if self._sign_in.tokens is Tokens.RAW:
            return True
        api_key = _API_KEY.unpack_from(frame)[0] if len(frame) >= _API_KEY.size else -1
        if api_key in (HANDSHAKE, AUTHENTICATE):
            return True
        self._sign_in.admit(api_key)
        return False

    async def _authenticate(self, frame: bytes, sign_in: SignIn) -> None:
        """Answer a frame that belongs to signing in; raises `SignInError` after the answer if it failed."""
        if sign_in.tokens is Tokens.RAW:
            reply = await self._reply(frame, sign_in)
            if not reply.refused:
                self._transport.write(_SIZE.pack(len(reply.token)) + reply.token)
            self._refuse(reply.refused)
            return
        request = read_request(frame)
        self._asked(frame)
        assert request.body is not None
        if request.api_key == HANDSHAKE:
            mechanism = request.body["mechanism"]
            body = sign_in.handshake(mechanism, request.api_version)
            refused = "another SASL mechanism than those of principals" if body["errorCode"] else ""
        else:
            reply = await self._reply(request.body["authBytes"], sign_in)
            body, refused = reply.body(), reply.refused
        self._write(written(request, body))
        self._refuse(refused)

    async def _reply(self, token: bytes, sign_in: SignIn) -> Reply:
        """Return the reply to a token; raises `PrincipalError` in place of the one that signs in."""
        was_signed_in = self.has_signed_in
        reply = await sign_in.authenticate(token)
        if sign_in.principal is not None and not was_signed_in:
            self._admit(sign_in.principal)
        return reply

    def _refuse(self, why: str) -> None:
        if why:
            raise SignInError(why)

    # --- requests ----------------------------------------------------------------------------------------

    @property
    def _is_waiting(self) -> bool:
        return self._is_full or self._task is not None

    def _go_on(self) -> None:
        """Respond to complete requests until one must wait, then resume or pause reading."""
        began = monotonic()
        while not (self._is_waiting or self._transport.is_closing()):
            frame = self._next_frame()
            if frame is None:
                break
            self._answer(frame)
            if not self._received or self._is_waiting:
                continue
            if monotonic() - began > self._listener.time_slice_s(self):
                self._task = asyncio.ensure_future(asyncio.sleep(0))
                self._task.add_done_callback(self._done)
        if self._has_ended:
            if not self._is_waiting:
                self.close()
        elif self._is_full or (self._is_waiting and len(self._received) > _AHEAD):
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _next_frame(self) -> bytes | None:
        """Take the next frame from the received bytes; None: it is incomplete, or the connection is
        closed."""
        received = self._received
        if len(received) < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(received)
        limits = self._listener.limits
        most = limits.frame_bytes if self.has_signed_in else limits.sign_in_bytes
        if not 0 <= size <= most:
            self._close(Closed.SIZE, f"expected a request of at most {most} bytes, found one of {size}")
            return None
        if (size > _AHEAD or self._reserved) and not self._reserve(min(size, len(received))):
            self._close(Closed.MEMORY)
            return None
        end = _SIZE.size + size
        if len(received) < end:
            return None
        frame = bytes(received[_SIZE.size : end])
        del received[:end]
        self._has_asked = True
        self._asked_at = self._begun_at = monotonic()
        return frame

    def _reserve(self, size: int) -> bool:
        """Reserve memory for the received part of a large frame, in place of the former reservation."""
        wanted = size if size > _AHEAD else 0
        if wanted != self._reserved and not self._listener.reserve(wanted - self._reserved):
            return False
        self._reserved = wanted
        return True

    def _answer(self, frame: bytes) -> None:
        try:
            if self._sign_in is not None and self._is_for_sign_in(frame):
                self._start(self._authenticate(frame, self._sign_in))
                return
            is_large = len(frame) > _LARGE_FRAME
            kept = None if is_large else self._listener.kept(self, frame, self._client, self._principal)
            if kept is not None:
                self._asked(frame)
                self._write(kept)
                return
            if self._listener.knows_past and (client_id := client_id_in(frame)) != self._client.id:
                self._client = self._client._replace(id=client_id)
            if is_large:
                self._start(self._read_elsewhere(frame))
            else:
                self._answer_small(frame)
        except Exception as error:
            self._give_up(error)

    def _answer_small(self, frame: bytes) -> None:
        request, view, weight = self._read(frame)
        self._asked(frame)
        is_long = weight > MANY or size_of(request, view).content > _MANY_BYTES
        if is_long or reads_tables(request, view):
            self._start(self._answer_elsewhere(request))
            return
        response = answer(request, view)
        if isinstance(response.data, Pieces):
            response = response._replace(data=response.whole)
        self._listener.keep(frame, view, response)
        self._write(response)

    def _read(self, frame: bytes) -> tuple[Request, RequestContext, int]:
        """Read a request; return it with the input of its response and the response's number of elements."""
        request = read_request(frame)
        self._client = client_of(request, self._client)
        view = self._view()
        return request, view, weight_of(request, view)

    def _asked(self, frame: bytes) -> None:
        """Count a readable request; on the event loop, because counters are not thread-safe."""
        client = self._client if self.has_signed_in else Client()  # what strangers say is not kept
        api_key, version = _API_KEY_AND_VERSION.unpack_from(frame)
        self._listener.asked(api_key, version, client)

    def _write(self, response: Response) -> None:
        """Write a response that is not in pieces."""
        self._listener.answered(response, self)
        self._transport.write(response.whole)

    def _give_up(self, error: BaseException) -> None:
        match error:
            case UnansweredError():
                self._close(error.reason, str(error))
            case DecodeError(kind=ErrorKind.TOO_LARGE):
                self._close(Closed.SIZE, error.reason)
            case DecodeError():
                self._close(Closed.REQUEST, short(error.reason))
            case _:
                self._close(Closed.FAILED, f"{type(error).__name__}: {error}")

    def _close(self, reason: Closed, why: str = "") -> None:
        """Close the connection for a reason; at once if the client does not read."""
        if not self._transport.is_closing():
            self._listener.closing(reason, f"{self.who}: {why}" if why else self.who)
        if reason is Closed.UNREAD:
            self._transport.abort()
        else:
            self.close()

    # --- responses that take long ------------------------------------------------------------------------

    def _start(self, work: Any) -> None:
        self._task = asyncio.ensure_future(work)
        self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Future[None]) -> None:
        self._task = None
        self._reserve(0)
        self._asked_at = self._begun_at = monotonic()
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._give_up(error)
        else:
            self._go_on()

    async def _read_elsewhere(self, frame: bytes) -> None:
        if len(frame) <= _AHEAD:
            request, _, _ = await self._listener.elsewhere(self.asker, self._read, frame)
            self._asked(frame)
            await self._answer_elsewhere(request)
            return
        async with self._listener.turn(self.asker):  # waits unread, to save memory
            request, _, _ = await self._listener.at_length(self._read, frame)
            self._asked(frame)
            await self._send(await self._listener.at_length(self._made, request), has_turn=True)

    async def _answer_elsewhere(self, request: Request) -> None:
        response, sized = await self._listener.elsewhere(self.asker, self._made_unless_large, request)
        if response is not None:
            await self._send(response)
            return
        try:
            async with self._listener.turn(self.asker):
                await self._send(await self._listener.at_length(self._made, request, sized), has_turn=True)
        except BusyError:
            await self._send(await self._listener.elsewhere(self.asker, answer_later, request, self._view()))

    def _view(self) -> RequestContext:
        return self._listener.view(self, self._client, self._principal)

    def _made_unless_large(self, request: Request) -> tuple[Response | None, MemorySnapshot]:
        """Compute a response unless it is large, or not in the snapshot (None); return also the snapshot that
        this was decided by."""
        view, limits = self._view(), self._listener.limits
        size = size_of(request, view)
        is_large = size.elements > limits.large or size.content > limits.large_bytes
        is_large = is_large or reads_tables(request, view)
        return None if is_large else answer(request, view), view.snapshot

    def _made(self, request: Request, sized: MemorySnapshot | None = None) -> Response:
        """Compute a response from the present snapshot, which may be newer than the one it was `sized` by."""
        view = self._view()
        if view.snapshot is not sized:
            size_of(request, view)
        return answer(request, view)

    async def _send(self, response: Response, *, has_turn: bool = False) -> None:
        """Send a response as the client reads it, within `Limits.may_take_s`."""
        self._listener.answered(response, self)
        made = response.data
        pieces = iter(made) if isinstance(made, Pieces) else _pieces(made)
        sent, waited_s = 0, 0.0
        while (piece := await self._next(pieces, is_made=isinstance(made, bytes))) is not None:
            if self._transport.is_closing():
                return
            self._transport.write(piece)
            sent += len(piece)
            while self._is_full:
                is_wanted = has_turn and self._listener.is_turn_wanted()
                left_s = self._listener.limits.may_take_s(sent, is_wanted=is_wanted) - waited_s
                if left_s <= 0:
                    raise UnreadError
                began = monotonic()
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, _LOOK_EVERY_S)):
                        await self._drained.wait()
                waited_s += monotonic() - began

    async def _next(self, pieces: Iterator[memoryview], *, is_made: bool) -> Any:
        return (
            next(pieces, None) if is_made else await self._listener.elsewhere(self.asker, next, pieces, None)
        )

    # --- limits of time ----------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Close the connection if the client takes too long; to be called every second (`now`: monotonic)."""
        limits = self._listener.limits
        unsent = self._transport.get_write_buffer_size()
        if unsent != self._unsent or not unsent:
            self._unsent, self._sent_at = unsent, now
        if now - self._sent_at > limits.unread_s:
            self._close(Closed.UNREAD)
        elif not self._is_waiting and (late := self._late(now, limits)):
            self._close(*late)

    def _late(self, now: float, limits: Limits) -> tuple[Closed, str] | None:
        """Return for which reason, and why, the client has taken too long; None: it has not."""
        opened_s = now - self._opened_at
        if not self._has_asked and opened_s > limits.first_frame_s:
            return Closed.LATE, f"expected a request within {limits.first_frame_s:g} s of connecting"
        if not self.has_signed_in and opened_s > limits.sign_in_s:
            return Closed.LATE, f"expected signing in within {limits.sign_in_s:g} s of connecting"
        if self._received and now - self._begun_at > limits.frame_s:
            return Closed.LATE, f"expected the rest of a request within {limits.frame_s:g} s"
        if not self._received and now - self._asked_at > limits.idle_s:
            return Closed.IDLE, ""
        return None

    def close(self) -> None:
        """Close the connection after what was already sent."""
        if not self._transport.is_closing():  # asyncio's TLS fails later if it is closed twice
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


def client_id_in(frame: bytes) -> bytes:
    """Return the client id of a request; empty without one, and in a frame that is too short."""
    if len(frame) < _CLIENT_ID.size:
        return b""
    (length,) = _CLIENT_ID.unpack_from(frame)
    return frame[_CLIENT_ID.size : _CLIENT_ID.size + max(length, 0)]


def _pieces(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    return (view[start : start + _PIECE] for start in range(0, len(view), _PIECE))
