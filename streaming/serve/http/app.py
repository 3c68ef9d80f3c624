"""What the HTTP door answers: `/metrics`, `/healthz`, `/readyz`; GET and HEAD, nothing else."""

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, Final, Protocol

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from streaming.serve.metrics.publisher import Body, Publisher, Variant

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_PIECE: Final = 256 * 1024
_SOON_S: Final = 0.02
_RETRY_S: Final = 15

_ALWAYS: Final = {
    "cache-control": "no-cache",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}
"""Headers of every answer."""

_OPEN: Final = frozenset({"/healthz", "/readyz"})
"""What is answered without a token: it says yes or no."""

_HOME: Final = (
    "offsetlake serve\n\n/metrics  for Prometheus\n/healthz  this process\n/readyz   the tables and the job\n"
)


class Known(Protocol):
    """What answers are made from."""

    @property
    def publisher(self) -> Publisher:
        """Who makes the bytes of metrics."""

    def is_ready(self) -> bool:
        """Whether the tables can be read, and the job is alive."""


def app_of(known: Known, *, token: str | None, wait_s: float) -> Starlette:
    """Return the application; `token` None: nobody is asked for one."""

    async def home(_: Request) -> Response:
        return PlainTextResponse(_HOME)

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        is_ready = known.is_ready()
        text = "ready\n" if is_ready else "not ready: the tables cannot be read, or the job is not alive\n"
        return PlainTextResponse(text, 200 if is_ready else 503)

    async def metrics(request: Request) -> Response:
        body = await _body(known.publisher, _variant(request), wait_s)
        if body is None:
            headers = {"retry-after": str(_RETRY_S)}
            return PlainTextResponse("the metrics are not ready yet\n", 503, headers)
        headers = {"etag": body.etag, "vary": "Accept, Accept-Encoding, Authorization"}
        if _is_known(request, body.etag):
            return Response(status_code=304, headers=headers)
        return _Metrics(body, headers)

    routes = [
        Route(path, endpoint, methods=["GET"])  # and HEAD
        for path, endpoint in (
            ("/", home),
            ("/metrics", metrics),
            ("/healthz", healthz),
            ("/readyz", readyz),
        )
    ]
    return Starlette(routes=routes, middleware=[Middleware(_Guard, token=token)])


async def _body(publisher: Publisher, variant: Variant, wait_s: float) -> Body | None:
    """Return the newest bytes, made first if nobody has asked for long."""
    limit = monotonic() + wait_s
    while (body := publisher.ready(variant)) is None and monotonic() < limit:
        await asyncio.sleep(_SOON_S)
    return body


class _Metrics(Response):
    """Bytes that are sent a piece at a time, as the client takes them: they are in memory once for all."""

    def __init__(self, body: Body, headers: dict[str, str]) -> None:
        self._body = body
        packed = {"content-encoding": "gzip"} if body.variant.is_zipped else {}
        length = {"content-length": str(body.length), "content-type": body.content_type}
        super().__init__(headers={**headers, **packed, **length})

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        if scope["method"] != "HEAD":
            async with _watched(receive) as gone:
                for piece in _cut(self._body):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    await asyncio.sleep(0)  # others get their turn, and who has gone is noticed
                    if gone.done():
                        return
        await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def _watched(receive: Receive) -> AsyncIterator[asyncio.Task[None]]:
    """Give a task that is done once the client has gone."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task = asyncio.create_task(gone())
    try:
        yield task
    finally:
        task.cancel()


def _cut(body: Body) -> Iterator[bytes]:
    """Yield the bytes in pieces of a size that is well sent at a time."""
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
    accepted = request.headers.get("accept", "")
    style = "openmetrics" if _weight(accepted, "application/openmetrics-text") > 0 else "text"
    is_zipped = _weight(request.headers.get("accept-encoding", ""), "gzip") > 0
    return Variant("openmetrics" if style == "openmetrics" else "text", is_zipped)


def _weight(header: str, wanted: str) -> float:
    """Return the weight that a header of what is accepted gives to something; 0: none.

    >>> _weight("gzip;q=0.5, br", "gzip"), _weight("gzip;q=0", "gzip"), _weight("br", "gzip")
    (0.5, 0.0, 0.0)
    """
    for part in header.split(","):
        name, *parameters = (text.strip().lower() for text in part.split(";"))
        if name == wanted:
            weights = [text.removeprefix("q=") for text in parameters if text.startswith("q=")]
            try:
                return float(weights[0]) if weights else 1.0
            except ValueError:
                return 0.0
    return 0.0


def _is_known(request: Request, etag: str) -> bool:
    known = request.headers.get("if-none-match", "")
    return etag in (one.strip().removeprefix("W/") for one in known.split(","))


class _Guard:
    """Lets in who sends the token, answers GET and HEAD alone, and adds the headers of every answer."""

    def __init__(self, app: Callable[..., Awaitable[None]], token: str | None) -> None:
        self._app = app
        self._expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # of the start and the end of the process
            await self._app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in _ALWAYS.items()]
                message = {**message, "headers": [*message.get("headers", []), *added]}
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, answer)

    def _refusal(self, scope: Message) -> Response | None:
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse(
                "GET and HEAD only\n", 405, {"allow": "GET, HEAD", "connection": "close"}
            )
        if self._expected is None or scope["path"] in _OPEN:
            return None
        sent = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(sent) == 1 and hmac.compare_digest(sent[0], self._expected):
            return None
        headers = {"www-authenticate": 'Bearer realm="offsetlake"'}
        return PlainTextResponse("expected the token: Authorization: Bearer ...\n", 401, headers)
