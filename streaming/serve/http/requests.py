"""What several responses need of a request: its precondition, its client, and whether that is still there."""

import asyncio
import ipaddress
import re
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final

from starlette.requests import Request

from streaming.common.http_values import ip_address

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

ANY: Final = "*"

_NETWORK_BITS: Final = 64  # a host has all IPv6 addresses of such a network
_PORT: Final = re.compile(r"^(?:\[(.*)\]|([0-9.]+))(?::[0-9]+)?$")  # some proxies state it


def is_known(request: Request, etag: str) -> bool:
    """Return whether the client has the body with this ETag, or any body (`If-None-Match`, also `*`)."""
    return not {etag, ANY}.isdisjoint(known_to(request))


def known_to(request: Request) -> set[str]:
    """Return the ETags of bodies that the client has; `ANY` stands for all."""
    known = ",".join(request.headers.getlist("if-none-match")).split(",")
    return {one.strip().removeprefix("W/") for one in known} - {""}


def peer_of(request: Request, *, is_behind_proxy: bool) -> str:
    """Return the client's address, or its IPv6 network; behind a proxy the one that the proxy states."""
    connected = request.client.host if request.client else ""
    stated = request.headers.getlist("x-forwarded-for") if is_behind_proxy else []
    for text in (*(",".join(stated).split(",")[-1:]), connected):
        try:
            address = ip_address(_PORT.sub(r"\1\2", text.strip()))
        except ValueError:
            continue
        if address.version == 4:
            return str(address)
        return str(ipaddress.IPv6Network((int(address), _NETWORK_BITS), strict=False))
    return connected


@asynccontextmanager
async def watched(receive: Receive) -> AsyncIterator[asyncio.Task[None]]:
    """Provide a task that completes when the client disconnects."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task = asyncio.create_task(gone())
    try:
        yield task
    finally:
        task.cancel()
