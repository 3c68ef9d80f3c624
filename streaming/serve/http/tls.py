"""TLS of the HTTP listener, negotiated on connections that are counted already.

An asyncio server with TLS reports a connection only when it has negotiated TLS.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, Protocol

_GOODBYE_S: Final = 1.0  # how long a client may take to answer the end of TLS


class Places(Protocol):
    """The listener, as connections use it that negotiate TLS."""

    def opened(self, connection: "TlsFirst", peer: str) -> bool:
        """Register a connection; return false if there are too many."""

    def closed(self, connection: "TlsFirst", peer: str) -> None: ...


class TlsFirst(asyncio.Protocol):
    """Negotiates TLS within `handshake_s`, then hands the connection to a new protocol."""

    def __init__(
        self,
        listener: Places,
        tls: ssl.SSLContext,
        next_protocol: Callable[[], asyncio.Protocol],
        *,
        handshake_s: float,
    ) -> None:
        self._listener, self._tls, self._next_protocol = listener, tls, next_protocol
        self._handshake_s = handshake_s
        self._early: list[bytes] = []  # within TLS, before asyncio returns its transport
        self._next: asyncio.Protocol | None = None
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._peer = str((transport.get_extra_info("peername") or ("",))[0])
        if self._listener.opened(self, self._peer):
            self._task = asyncio.ensure_future(self._negotiate())
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        if self._next is not None:
            self._next.connection_lost(exc)

    async def _negotiate(self) -> None:
        try:
            transport = await asyncio.get_running_loop().start_tls(
                self._transport,
                self,
                self._tls,
                server_side=True,
                ssl_handshake_timeout=self._handshake_s,
                ssl_shutdown_timeout=_GOODBYE_S,
            )
        except OSError:  # also of TLS; asyncio has closed the connection
            return
        finally:
            self._listener.closed(self, self._peer)
        if transport is None or self._is_lost:
            return
        self._next = self._next_protocol()
        transport.set_protocol(self._next)
        self._next.connection_made(transport)
        for data in self._early:
            self._next.data_received(data)

    def check(self, now: float) -> None:
        """Nothing: asyncio limits the time."""

    def abort(self) -> None:
        self._transport.abort()
