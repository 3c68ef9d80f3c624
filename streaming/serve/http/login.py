"""Access with the token: in the header `Authorization`, or of browsers by a form, which then get a cookie."""

import hmac
import math
import re
from collections.abc import Mapping
from html import escape
from time import monotonic
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from streaming.serve.http.attempts import Attempts
from streaming.serve.http.hosts import is_same_host
from streaming.serve.http.requests import peer_of
from streaming.serve.http.sessions import Sessions

LOGIN: Final = "/login"
LOGOUT: Final = "/logout"
POSTED: Final[Mapping[str, tuple[str, ...]]] = {LOGIN: ("GET", "HEAD", "POST"), LOGOUT: ("POST",)}
"""The methods of the paths that take POST."""

_LOCAL: Final = re.compile(r"/(?!/)[!->@-\[\]-~]*(\?[!-~]*)?")  # no backslash, which browsers read as a slash
_LONGEST_RETURN: Final = 2_000
_MOST_FIELDS: Final = 8
_FORM_TYPE: Final = "application/x-www-form-urlencoded"

_NO_STORE: Final = {"cache-control": "no-store"}
_OF_FORM: Final = {
    **_NO_STORE,
    "content-security-policy": "default-src 'none'; style-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "referrer-policy": "same-origin",  # with no-referrer, browsers send `Origin: null` with the form
}
_FORM: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in - offsetlake</title>
<link rel="stylesheet" href="/static/style.css">
</head>
<body>
<main>
<h1>offsetlake</h1>
{problem}<form method="post" action="/login">
<input type="hidden" name="next" value="{next}">
<label for="token">Token</label>
<input type="password" id="token" name="token" autocomplete="current-password" required autofocus>
<button>Sign in</button>
</form>
</main>
</body>
</html>
"""
_WRONG: Final = "This is not the token of this server."
_OTHER_ORIGIN: Final = (
    "expected a form of this server: the header Origin with the host of the header Host, found another; a "
    "proxy must pass on Host unchanged\n"
)
_NO_FORM: Final = f"expected the fields token and next as {_FORM_TYPE}, found something else\n"


class Login:
    """Checks tokens and cookies, and answers `/login` and `/logout`.

    A cookie is valid for `session_s` seconds and only in this process. `is_behind_proxy`: believe the proxy's
    headers `X-Forwarded-Proto` (is the client's connection TLS?) and `X-Forwarded-For`.
    """

    challenge: Final = {"www-authenticate": 'Bearer realm="offsetlake"'}
    """Headers of responses with status 401."""

    def __init__(self, token: str, *, session_s: float, is_behind_proxy: bool) -> None:
        self._token = token.encode()
        self._sessions = Sessions(session_s)
        self._attempts = Attempts()
        self._is_behind_proxy = is_behind_proxy

    def routes(self) -> list[Route]:
        return [
            Route(LOGIN, self._show, methods=["GET"]),  # and HEAD
            Route(LOGIN, self._sign_in, methods=["POST"]),
            Route(LOGOUT, self._sign_out, methods=["POST"]),
        ]

    def admits(self, scope: Scope) -> bool:
        """Return whether a request has the token or a valid cookie."""
        return self._has_token(scope) or self._has_session(scope)

    def form(self, scope: Scope) -> Response:
        """Return the form for a request that is not admitted; it leads back to the requested path."""
        target = scope["raw_path"].decode("latin-1")
        query = scope["query_string"].decode("latin-1")
        return self._page(f"{target}?{query}" if query else target, 401)

    def _has_token(self, scope: Scope) -> bool:
        sent = _values(scope, b"authorization")
        if len(sent) != 1:
            return False
        scheme, _, token = sent[0].partition(b" ")
        return scheme.lower() == b"bearer" and self._is_token(token.strip(b" "))

    def _has_session(self, scope: Scope) -> bool:
        # a cookie of the same name may come from another host of the domain, beside ours
        named = _cookie_name(scope).encode() + b"="
        pairs = [pair.strip() for sent in _values(scope, b"cookie") for pair in sent.split(b";")]
        now = monotonic()
        return any(
            self._sessions.is_valid(pair.removeprefix(named), now) for pair in pairs if pair.startswith(named)
        )

    def _is_token(self, sent: bytes) -> bool:
        return hmac.compare_digest(sent, self._token)

    async def _show(self, _: Request) -> Response:
        return self._page("/", 200)

    async def _sign_in(self, request: Request) -> Response:
        try:
            fields = _fields(request.headers.get("content-type", ""), await request.body())
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        if not _is_own_form(request):
            return PlainTextResponse(_OTHER_ORIGIN, 403, _NO_STORE)
        if "token" not in fields:
            return PlainTextResponse(_NO_FORM, 400, _NO_STORE)
        peer = peer_of(request, is_behind_proxy=self._is_behind_proxy)
        now, path = monotonic(), fields.get("next", "/")
        wait = math.ceil(self._attempts.wait_s(peer, now))
        if wait:
            seconds = "1 second" if wait == 1 else f"{wait} seconds"
            problem = f"Too many attempts with a wrong token. Try again in {seconds}."
            return self._page(path, 429, problem, {"retry-after": str(wait)})
        if not self._is_token(fields["token"].strip().encode()):
            self._attempts.failed(peer, now)
            return self._page(path, 401, _WRONG)
        self._attempts.succeeded(peer)
        response = RedirectResponse(return_path(path), 303, _NO_STORE)
        self._set_cookie(response, request, self._sessions.new(now), int(self._sessions.lasting_s))
        return response

    async def _sign_out(self, request: Request) -> Response:
        if not _is_own_form(request):
            return PlainTextResponse(_OTHER_ORIGIN, 403, _NO_STORE)
        response = RedirectResponse(LOGIN, 303, _NO_STORE)
        self._set_cookie(response, request, "", 0)
        return response

    def _set_cookie(self, response: Response, request: Request, value: str, lasting_s: int) -> None:
        response.set_cookie(
            _cookie_name(request.scope),
            value,
            max_age=lasting_s,
            path="/",
            secure=request.scope["scheme"] == "https" or (self._is_behind_proxy and _is_https(request)),
            httponly=True,
            samesite="strict",
        )

    def _page(
        self, path: str, status: int, problem: str = "", headers: Mapping[str, str] | None = None
    ) -> Response:
        paragraph = f'<p role="alert">{escape(problem)}</p>\n' if problem else ""
        html = _FORM.format(problem=paragraph, next=escape(return_path(path)))
        challenge = self.challenge if status == 401 else {}
        return HTMLResponse(html, status, {**_OF_FORM, **challenge, **(headers or {})})


def return_path(path: str) -> str:
    """Return a path and query if they are of this server, otherwise the start page.

    >>> [return_path(path) for path in ("/groups?name=%00", "//evil.example", "/\\\\evil.example", "/login")]
    ['/groups?name=%00', '/', '/', '/']
    """
    is_local = len(path) <= _LONGEST_RETURN and _LOCAL.fullmatch(path) is not None
    return path if is_local and path.partition("?")[0] not in POSTED else "/"


def _fields(content_type: str, body: bytes) -> dict[str, str]:
    """Return the fields of a form; none if it is malformed."""
    if content_type.partition(";")[0].strip().lower() != _FORM_TYPE:
        return {}
    try:
        return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        return {}


def _is_own_form(request: Request) -> bool:
    """Return whether a form comes from our pages; clients that are no browsers send no `Origin`."""
    origins = request.headers.getlist("origin")
    return not origins or (len(origins) == 1 and is_same_host(origins[0], request.headers.get("host", "")))


def _is_https(request: Request) -> bool:
    return request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower() == "https"


def _values(scope: Scope, header: bytes) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == header]


def _cookie_name(scope: Scope) -> str:
    """Return a name with our port: browsers send a cookie to all ports of a host."""
    return f"offsetlake_{scope['server'][1]}"
