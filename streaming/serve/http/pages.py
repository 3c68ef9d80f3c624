"""The routes of the pages: each is made on a thread, a few at a time, and given up when its client leaves."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from streaming.common.times import now_ms
from streaming.serve.http.limits import HttpLimits
from streaming.serve.http.places import Places
from streaming.serve.http.requests import ANY, known_to, peer_of, watched
from streaming.serve.page.pages import STATIC, VIEWS, Pages
from streaming.serve.page.pages import Response as Made

T = TypeVar("T")

_AT_ONCE: Final = 2
"""Pages that are made at the same time, and as many that are read from the tables of each cluster: more would
take the processor from other listeners, and those that take long must not hold up the others."""

_RETRY_S: Final = 5
_PIECE: Final = 64 * 1024
_MOST_PARAMETERS: Final = 50

_HEADERS: Final = {
    "cache-control": "private, no-cache",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "vary": "Authorization, Cookie",
    "referrer-policy": "same-origin",  # with no-referrer, browsers send `Origin: null` with a form
}

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


def page_routes(pages: Pages, limits: HttpLimits, *, is_behind_proxy: bool = False) -> list[Route]:
    """Return the routes of all pages, of their rows, and of the files that they refer to."""
    limiters: dict[str | None, CapacityLimiter] = {}  # they belong to the event loop that uses them first
    under_way = Places(limits.connections, limits.pages_of_address)
    downloads = Places(limits.downloads, limits.downloads_of_address)

    async def page(request: Request) -> Response:
        try:
            parameters = dict(
                parse_qsl(
                    request.url.query,
                    keep_blank_values=True,
                    errors="strict",
                    max_num_fields=_MOST_PARAMETERS,
                )
            )
        except ValueError:
            return PlainTextResponse("the address holds more parameters than are allowed, or no UTF-8\n", 400)
        peer = peer_of(request, is_behind_proxy=is_behind_proxy)
        with ExitStack() as asked, ExitStack() as held:
            if not under_way.take(peer):
                return _refused(f"at most {limits.pages_of_address} pages at the same time")
            asked.callback(under_way.give_back, peer)
            if not pages.is_file(request.url.path):
                return await made(request, parameters)
            if not downloads.take(peer):
                of_one = f"{limits.downloads_of_address} to one address"
                return _refused(f"at most {limits.downloads} files at the same time, and {of_one}")
            held.callback(downloads.give_back, peer)
            return _Download(await made(request, parameters), held.pop_all().close)

    async def made(request: Request, parameters: dict[str, str]) -> Response:
        make = partial(_made, pages, request, parameters)
        tables = pages.tables_read(request.url.path, parameters, now_ms())
        if tables not in limiters:
            limiters[tables] = CapacityLimiter(_AT_ONCE)
        found = await _unless_gone(request, make, limiters[tables])
        return Response(status_code=204) if found is None else found

    files = {path.name: path.read_bytes() for path in sorted(STATIC.iterdir())}

    async def static(request: Request) -> Response:
        body = files.get(request.path_params["name"])
        if body is None:
            return PlainTextResponse("there is no such file\n", 404)
        kind = next(kind for ending, kind in _TYPES.items() if request.path_params["name"].endswith(ending))
        return Response(body, headers={"content-type": kind, "cache-control": "max-age=86400"})

    paths = [path if path != "/" else "/overview" for path in VIEWS]
    formats = [
        f"{path}.{ending}"
        for path, view in zip(paths, VIEWS.values(), strict=True)
        for ending in view.formats
    ]
    routes = [Route(path, page, methods=["GET"]) for path in (*VIEWS, *formats)]
    return [*routes, Route("/static/{name}", static, methods=["GET"])]


class _Download(Response):
    """A response that ends with a call, whether its client takes it or not."""

    def __init__(self, own: Response, at_end: Callable[[], None]) -> None:
        super().__init__()
        self._own, self._at_end = own, at_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._own(scope, receive, send)
        finally:
            self._at_end()


def _refused(expected: str) -> Response:
    text = f"expected {expected}, found more; ask again in {_RETRY_S} seconds\n"
    return PlainTextResponse(text, 503, {**_HEADERS, "retry-after": str(_RETRY_S)})


def _made(pages: Pages, request: Request, parameters: dict[str, str]) -> Response:
    path, now, known = request.url.path, now_ms(), known_to(request)
    if known - {ANY}:
        etag = pages.etag(path, parameters, now)
        if etag in known:
            return _unchanged(etag)
    made = pages.respond(path, parameters, now)
    if made.etag is not None and ANY in known:  # errors have no ETag
        return _unchanged(made.etag)
    return _response(made, has_body=request.method != "HEAD")


def _unchanged(etag: str) -> Response:
    return Response(status_code=304, headers={**_HEADERS, "etag": etag})


def _response(made: Made, *, has_body: bool) -> Response:
    headers = {**_HEADERS, "content-type": made.content_type}
    if made.etag is not None:
        headers["etag"] = made.etag
    if made.file_name is not None:
        headers["content-disposition"] = f'inline; filename="{made.file_name}"'
    if isinstance(made.pieces, list):
        return Response(b"".join(made.pieces), made.status, headers)
    return StreamingResponse(_chunks(made.pieces if has_body else ()), made.status, headers)


def _chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    held = bytearray()
    for piece in pieces:
        held += piece
        if len(held) >= _PIECE:
            yield bytes(held)
            held.clear()
    yield bytes(held)


async def _unless_gone(request: Request, make: Callable[[], T], limiter: CapacityLimiter) -> T | None:
    """Return what `make` returns on a thread; None: the client left before."""
    has_begun = False

    async def in_turn() -> T:
        nonlocal has_begun
        async with limiter:
            has_begun = True
            return await to_thread.run_sync(make, limiter=CapacityLimiter(1))  # not one that requests share

    work = asyncio.ensure_future(in_turn())
    async with watched(request.receive) as gone:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        return work.result()
    _ENDING.add(work)  # a thread that has begun goes on, and keeps its place among those at once
    work.add_done_callback(_ended)
    if not has_begun:
        work.cancel()
    return None


def _ended(work: "asyncio.Future[Any]") -> None:
    _ENDING.discard(work)
    if not work.cancelled():
        work.exception()  # nobody waits for it


_ENDING: Final[set["asyncio.Future[Any]"]] = set()
