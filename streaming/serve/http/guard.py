"""Decides which requests are answered, and adds the headers of every response."""

from collections.abc import Callable
from typing import Final

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streaming.serve.http.hosts import is_own_name
from streaming.serve.http.login import POSTED, Login

_ALWAYS: Final = {
    "cache-control": "no-cache",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}
"""Headers of every response that does not set its own."""

_OPEN: Final = frozenset({"/healthz", "/readyz", *POSTED})
"""Paths that need no token: they reveal no more than yes or no."""

_OPEN_FOLDER: Final = "/static/"
"""Its files need no token: they are the same in every installation."""

_OTHER_NAME: Final = (
    "expected this machine in the header Host (localhost, 127.0.0.1, [::1]), found another host; start "
    "offsetlake serve with --token-file, or with --behind-proxy if a proxy restricts access\n"
)


class Guard:
    """Rejects requests under another host name, without the token, or with another method than GET and HEAD.

    `login` None: clients need no token, and POST is rejected everywhere.
    """

    def __init__(
        self,
        app: ASGIApp,
        login: Login | None,
        own_host: str | None,
        prefers_html: Callable[[Scope], bool],
    ) -> None:
        self._app, self._login, self._own_host = app, login, own_host
        self._prefers_html = prefers_html

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # startup and shutdown of the process
            await self._app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = list(message.get("headers", []))
                names = {name for name, _ in own}
                always = [(name.encode(), value.encode()) for name, value in _ALWAYS.items()]
                message = {**message, "headers": own + [one for one in always if one[0] not in names]}
            await send(message)

        await (self._refusal(scope) or self._app)(scope, receive, answer)

    def _refusal(self, scope: Scope) -> Response | None:
        allowed = ("GET", "HEAD") if self._login is None else POSTED.get(scope["path"], ("GET", "HEAD"))
        if scope["method"] not in allowed:
            names = ", ".join(allowed)
            return PlainTextResponse(f"{names} only\n", 405, {"allow": names, "connection": "close"})
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if self._own_host is not None and not all(is_own_name(host, self._own_host) for host in hosts):
            return PlainTextResponse(_OTHER_NAME, 421, {"connection": "close"})
        if self._login is None or scope["path"] in _OPEN or scope["path"].startswith(_OPEN_FOLDER):
            return None
        if self._login.admits(scope):
            return None
        if self._prefers_html(scope):
            return self._login.form(scope)
        return PlainTextResponse(
            "expected the token: Authorization: Bearer ...\n", 401, self._login.challenge
        )
