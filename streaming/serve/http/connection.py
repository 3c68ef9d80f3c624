"""One HTTP connection: uvicorn's, with limits of size and time that uvicorn lacks."""

import asyncio
import re
from time import monotonic
from typing import Any, Final, Protocol

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from streaming.serve.http.limits import HttpLimits
from streaming.serve.http.login import LOGIN

_LOGIN: Final = LOGIN.encode()
_FOLDED: Final = re.compile(rb"\n[ \t]")
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]+)([^#]*)", re.IGNORECASE)


class Connections(Protocol):
    """The listener, as its connections use it."""

    limits: HttpLimits
    login_bytes: int
    """The largest body of `POST /login`; 0: none."""

    def opened(self, connection: "LimitedConnection", peer: str) -> bool:
        """Register a connection; return false if there are too many."""

    def closed(self, connection: "LimitedConnection", peer: str) -> None: ...


class _Requests(h11.Connection):
    """Reads requests within the size limits, in whatever chunks they arrive. Only `POST /login` may have a
    body, of a length that is stated.

    Others are rejected: if a proxy and we read the length of a body differently, the proxy could take the
    response to a request inside that body for the response to another client's request (RFC 9112, 11.2). The
    same holds for a header over several lines (5.2).
    """

    def __init__(self, head_bytes: int, login_bytes: int) -> None:
        super().__init__(h11.SERVER, head_bytes)
        self._head_bytes, self._login_bytes = head_bytes, login_bytes
        self.is_head = False

    def next_event(self) -> Any:
        """Return the next event; raises `h11.RemoteProtocolError` for a rejected request."""
        held = self.trailing_data[0]
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.is_head = event.method == b"HEAD"
            length = len(held) - len(self.trailing_data[0])
            if length > self._head_bytes:
                raise h11.RemoteProtocolError("too long", error_status_hint=431)
            if _FOLDED.search(held, 0, length):
                raise h11.RemoteProtocolError("a header over several lines")
            event = _in_origin_form(event)
            is_login = event.method == b"POST" and event.target == _LOGIN
            longest = self._login_bytes if is_login else 0
            if any(_announces_body(name, value, longest) for name, value in event.headers):
                raise h11.RemoteProtocolError("a body")
        return event


def _in_origin_form(request: h11.Request) -> h11.Request:
    """Return a request with a target like `http://host/path` as one of the path, and of this host in place of
    the header `Host` (RFC 9112, 3.2.2)."""
    found = _ABSOLUTE.fullmatch(request.target)
    if found is None:
        return request
    host, path = found.groups()
    headers = [(name, value) for name, value in request.headers if name != b"host"]
    return h11.Request(
        method=request.method,
        target=path if path.startswith(b"/") else b"/" + path,
        headers=[(b"host", host), *headers],
        http_version=request.http_version,
    )


def _announces_body(name: bytes, value: bytes, longest: int) -> bool:
    """Return whether a header announces a body of more than `longest` bytes, or of an unknown length."""
    return name == b"transfer-encoding" or (name == b"content-length" and int(value) > longest)


class LimitedConnection(H11Protocol):
    """Closes the connection when the client sends too much or takes too long."""

    def __init__(self, *arguments: Any, listener: Connections, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.conn = self._requests = _Requests(listener.limits.head_bytes, listener.login_bytes)
        self._listener = listener
        self._peer = ""
        self._is_taken = False
        self._waits_since: float | None = monotonic()
        self._unsent = 0
        self._sent_at = self._answered_since = monotonic()
        self._answer: object = None
        self._is_rejected = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._peer = self.client[0] if self.client else ""
        self._is_taken = self._listener.opened(self, self._peer)
        if not self._is_taken:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_taken:
            self._listener.closed(self, self._peer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Note when a request begins; ignore the rest of a rejected one."""
        if self._is_rejected:
            return
        if self._waits_since is None and not self._is_answering:
            self._waits_since = monotonic()
        super().data_received(data)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def check(self, now: float) -> None:
        """Close the connection if the client takes too long; to be called every second (`now`: monotonic)."""
        if self.transport is None or self.transport.is_closing():
            return
        unsent = self.transport.get_write_buffer_size()
        if unsent != self._unsent or not unsent:
            self._unsent, self._sent_at = unsent, now
        if self.cycle is not self._answer or not (self._is_answering or unsent):
            self._answer, self._answered_since = self.cycle, now
        if (
            now - self._sent_at > self._listener.limits.unread_s
            or now - self._answered_since > self._listener.limits.answer_s
        ):
            self.transport.abort()
        elif self.conn.their_state is h11.SEND_BODY and self._waits_since is None:
            self._waits_since = now  # the request began while another one was answered
        elif self._is_answering and self.conn.their_state is not h11.SEND_BODY:
            self._waits_since = None
        elif self._waits_since is not None and now - self._waits_since > self._listener.limits.head_s:
            self.transport.abort()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Reject an invalid request, and wait for the client to close the connection, at most `head_s`.

        A socket that is closed while it has unread bytes resets the connection, and the client may lose the
        response (RFC 9112, 9.6).
        """
        longest = self._listener.limits.head_bytes
        of_login = self._listener.login_bytes
        but = f"; only POST /login has a body, of at most {of_login} bytes" if of_login else ""
        expected = f"expected a request without a body, and of at most {longest} bytes{but}\n".encode()
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(expected)).encode()),
            (b"connection", b"close"),
        ]
        response = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        body = [] if self._requests.is_head else [h11.Data(data=expected)]
        for event in (response, *body, h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self._is_rejected = True
        self._waits_since = monotonic()
        if self.transport.can_write_eof():  # TLS cannot
            self.transport.write_eof()

    def on_response_complete(self) -> None:
        """Wait for the next request, as long as uvicorn keeps idle connections open."""
        self._waits_since = None
        super().on_response_complete()
