"""What several responses need of a request: its precondition, and whether its client is still there."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]


def is_known(request: Request, etag: str) -> bool:
    """Return whether the client has the body with this ETag (`If-None-Match`)."""
    known = ",".join(request.headers.getlist("if-none-match")).split(",")
    return not {etag, "*"}.isdisjoint(one.strip().removeprefix("W/") for one in known)


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
