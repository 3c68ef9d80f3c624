"""The routes of the HTTP listener: pages, `/metrics`, `/healthz`, `/readyz`, and with a token `/login`."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from time import monotonic
from typing import Any, Final, Protocol

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from streaming.serve.http.guard import Guard
from streaming.serve.http.limits import HttpLimits
from streaming.serve.http.login import Login
from streaming.serve.http.pages import page_routes
from streaming.serve.http.requests import is_known, watched
from streaming.serve.metrics.publisher import Body, Publisher, Variant
from streaming.serve.page.pages import Pages

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_PIECE: Final = 256 * 1024
_SOON_S: Final = 0.02
_RETRY_S: Final = 15

_WEIGHT: Final = re.compile(r"(0(\.\d{0,3})?|1(\.0{0,3})?)", re.ASCII)


class Known(Protocol):
    """The input of the responses."""

    @property
    def publisher(self) -> Publisher: ...

    @property
    def pages(self) -> Pages: ...

    def readiness(self) -> Mapping[str, bool]: ...


def app_of(
    known: Known,
    *,
    login: Login | None,
    limits: HttpLimits,
    own_host: str | None = None,
    is_behind_proxy: bool = False,
) -> Starlette:
    """Return the application; `login` None: clients need no token.

    `own_host` is the listening host if the header `Host` must name it or loopback; None: any name is allowed.
    `is_behind_proxy`: believe the address of the client that the proxy states.
    """

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        readiness = known.readiness()
        text = _on_readiness(readiness, has_token=login is not None)
        return PlainTextResponse(text, 200 if any(readiness.values()) else 503)

    async def metrics(request: Request) -> Response:
        body = await _body(known.publisher, _variant(request), limits.wait_s)
        if body is None:
            headers = {"retry-after": str(_RETRY_S)}
            return PlainTextResponse("the metrics are not ready yet\n", 503, headers)
        headers = {"etag": body.etag, "vary": "Accept, Accept-Encoding, Authorization, Cookie"}
        if is_known(request, body.etag):
            return Response(status_code=304, headers=headers)
        return _Metrics(body, headers)

    routes = [
        Route(path, endpoint, methods=["GET"])  # and HEAD
        for path, endpoint in (
            ("/metrics", metrics),
            ("/healthz", healthz),
            ("/readyz", readyz),
        )
    ]
    routes += page_routes(known.pages, limits, is_behind_proxy=is_behind_proxy)
    routes += [] if login is None else login.routes()
    guard = Middleware(Guard, login=login, own_host=own_host, prefers_html=_prefers_html)
    app = Starlette(routes=routes, middleware=[guard])
    app.router.redirect_slashes = False  # it would redirect clients to any host in their `Host` header
    return app


def _on_readiness(readiness: Mapping[str, bool], *, has_token: bool) -> str:
    missing = [name for name, is_ready in readiness.items() if not is_ready]
    if len(missing) == len(readiness):
        return "not ready: the tables cannot be read, or the job is not alive\n"
    if not missing or has_token:  # this path requires no token, so it tells no names
        return "ready\n"
    return f"ready, except {', '.join(missing)}: the tables cannot be read, or the job is not alive\n"


async def _body(publisher: Publisher, variant: Variant, wait_s: float) -> Body | None:
    """Return the newest body, waiting at most `wait_s` seconds for a build; None: there is none in time."""
    limit = monotonic() + wait_s
    while (body := publisher.ready(variant)) is None and monotonic() < limit:
        await asyncio.sleep(_SOON_S)
    return body


class _Metrics(Response):
    """A response that is sent in chunks as the client reads them: all clients share one copy of the body."""

    def __init__(self, body: Body, headers: dict[str, str]) -> None:
        self._body = body
        packed = {"content-encoding": "gzip"} if body.variant.is_zipped else {}
        length = {"content-length": str(body.length), "content-type": body.content_type}
        super().__init__(headers={**headers, **packed, **length})

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        if scope["method"] != "HEAD":
            async with watched(receive) as gone:
                for piece in _cut(self._body):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    await asyncio.sleep(0)  # lets other tasks run, and `gone` notice a disconnect
                    if gone.done():
                        return
        await send({"type": "http.response.body", "body": b""})


def _cut(body: Body) -> Iterator[bytes]:
    """Yield the body in chunks of a suitable size to send."""
    held = bytearray()
    for piece in body.pieces:
        for start in range(0, len(piece), _PIECE):
            held += piece[start : start + _PIECE]
            if len(held) >= _PIECE:
                yield bytes(held)
                held.clear()
    if held:
        yield bytes(held)


def _variant(request: Request) -> Variant:
    """Return the variant that a client prefers; by default uncompressed text."""
    types = _weights(request.headers.getlist("accept"))
    openmetrics, text = (
        _weight(types, *names)
        for names in (["application/openmetrics-text"], ["text/plain", "text/*", "*/*"])
    )
    codings = _weights(request.headers.getlist("accept-encoding"))
    zipped, plain = (_weight(codings, name, "*") for name in ("gzip", "identity"))
    return Variant("openmetrics" if 0 < openmetrics >= text else "text", 0 < zipped >= plain)


def _prefers_html(scope: Message) -> bool:
    """Return whether a client is a browser that asks for a page."""
    types = _weights(Request(scope).headers.getlist("accept"))
    html, text = (_weight(types, *names) for names in (["text/html"], ["text/plain", "text/*", "*/*"]))
    return 0 < html >= text


def _weight(weights: Mapping[str, float], *names: str) -> float:
    """Return the weight of the first name that has one; 0: none has."""
    return next((weights[name] for name in names if name in weights), 0.0)


def _weights(headers: Sequence[str]) -> dict[str, float]:
    """Return the largest weight of each name in `Accept` or `Accept-Encoding` headers (RFC 9110, 12.4.2).

    >>> _weights(["gzip;q=0.5, br", "x;v=1;q=0.1, X; v=2; q=0.2, y;q=much"])
    {'gzip': 0.5, 'br': 1.0, 'x': 0.2, 'y': 0.0}
    """
    found: dict[str, float] = {}
    for part in ",".join(headers).split(","):
        name, *parameters = (text.strip().lower() for text in part.split(";"))
        given = [text.removeprefix("q=") for text in parameters if text.startswith("q=")]
        weight = 1.0 if not given else float(given[0]) if _WEIGHT.fullmatch(given[0]) else 0.0
        found[name] = max(weight, found.get(name, 0.0))
    return found
