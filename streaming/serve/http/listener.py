"""The HTTP listener: its socket, its access rules, and uvicorn on a thread with its own event loop."""

import asyncio
import logging
import socket
import ssl
import threading
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, Self

import uvicorn

from streaming.common.rate_limits import RateLimitedLog
from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.serve.http.app import Known, app_of
from streaming.serve.http.connection import LimitedConnection
from streaming.serve.http.limits import HttpLimits
from streaming.serve.http.login import Login
from streaming.serve.http.logs import forwarded
from streaming.serve.http.places import Places
from streaming.serve.http.tls import TlsFirst

_log = logging.getLogger(__name__)

_BACKLOG: Final = 64  # asyncio accepts so many at once, before any of them is closed for exceeding the limit
_CHECK_EVERY_S: Final = 1.0
_END_LIMIT_S: Final = 5.0
_SHORTEST_TOKEN: Final = 16


class HttpListenerError(OffsetlakeError):
    """The HTTP listener cannot be opened."""


class HttpListener:
    """Answers HTTP at one address within a `with` block.

    `token` None: clients need none, but then the header `Host` must name this machine, unless requests come
    through a proxy that restricts access (`behind_proxy`). With `tls` it is https; `tls` may be replaced, for
    new connections.
    """

    def __init__(
        self,
        host: str,
        port: int,
        known: Known,
        *,
        token: str | None = None,
        behind_proxy: bool = False,
        limits: HttpLimits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.host, self.port = host, port
        self.tls = tls
        self.limits = limits or HttpLimits()
        self._known, self._is_behind_proxy = known, behind_proxy
        self._login = (
            None
            if token is None
            else Login(token, session_s=self.limits.session_s, is_behind_proxy=behind_proxy)
        )
        self.login_bytes = 0 if token is None else self.limits.login_bytes
        self._own_host = host if token is None and not behind_proxy else None
        self._limited_log = RateLimitedLog(_log)
        self._connections: set[LimitedConnection | TlsFirst] = set()
        self._places = Places(self.limits.connections, self.limits.connections_of_address)

    # --- open and close ----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Open the listener; raises `HttpListenerError`. If `port` was 0, it is now the actual port."""
        self._socket = self._listening()
        self.port = self._socket.getsockname()[1]
        config = uvicorn.Config(
            app_of(
                self._known,
                login=self._login,
                limits=self.limits,
                own_host=self._own_host,
                is_behind_proxy=self._is_behind_proxy,
            ),
            http=self._connection,  # type: ignore[arg-type]  # called as a class is
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(self.limits.idle_s),
            timeout_graceful_shutdown=1,
            backlog=_BACKLOG,
        )
        self._server = uvicorn.Server(config)
        # what is given up at the end is to be
        self._logs = forwarded(self._limited_log, unless=lambda: self._server.should_exit)
        self._logs.__enter__()
        self._thread = threading.Thread(target=self._run, name="offsetlake-http", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close the listener, and connections after what was already sent, within a bounded time."""
        self._server.should_exit = True
        self._thread.join(_END_LIMIT_S)
        self._socket.close()
        self._logs.__exit__(None, None, None)

    def _connection(self, **named: Any) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        connection = partial(LimitedConnection, listener=self, **named)
        if self.tls is None:
            return connection()
        return TlsFirst(self, self.tls, connection, handshake_s=self.limits.head_s)

    def _listening(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        found = socket.socket(family, socket.SOCK_STREAM)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((self.host, self.port))
            found.listen(_BACKLOG)
        except OSError as error:
            found.close()
            raise HttpListenerError(
                f"listening on {self.host}:{self.port}: expected an address of this machine and a port that "
                f"is free, found: {error.strerror or error}. Choose another with --http, or --no-http."
            ) from error
        found.setblocking(False)
        return found

    def _run(self) -> None:
        async def serve() -> None:
            checks = asyncio.create_task(self._check())
            try:
                await self._server.serve([self._socket])
            finally:
                checks.cancel()
                for connection in list(self._connections):
                    connection.abort()
                await asyncio.sleep(0)  # so that they are closed

        asyncio.run(serve())

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            now = monotonic()
            for connection in list(self._connections):
                connection.check(now)

    # --- for connections (`connection.Connections`) ------------------------------------------------------

    def opened(self, connection: LimitedConnection | TlsFirst, peer: str) -> bool:
        if not self._places.take(peer):
            self._limited_log.warning(
                "connections", f"more HTTP connections than are allowed, closing one of {peer}"
            )
            return False
        self._connections.add(connection)
        return True

    def closed(self, connection: LimitedConnection | TlsFirst, peer: str) -> None:
        self._connections.discard(connection)
        self._places.give_back(peer)


def token_in(path: str) -> str:
    """Read the token that clients must send: the only line of a file.

    Raises `MisuseError` if there is none, or one that is easily guessed.
    """
    try:
        lines = Path(path).read_text(encoding="ascii").strip().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "other characters than those of ASCII"
        raise MisuseError(
            f"token file {path}: expected a file with one line, the token, found: {why}."
        ) from error
    token = lines[0] if lines else ""
    if len(lines) > 1:
        found = f"{len(lines)} lines"
    elif not token.isprintable() or " " in token:
        found = "a blank or a control character in it"
    elif len(token) < _SHORTEST_TOKEN:
        found = f"{len(token)} characters"
    else:
        return token
    raise MisuseError(
        f"token file {path}: expected one line of {_SHORTEST_TOKEN} characters or more without blanks, "
        f"found {found}. Make one with: openssl rand -hex 32."
    )
