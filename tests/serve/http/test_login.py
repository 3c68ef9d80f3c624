"""Signing in with the token, over real sockets: the form, the cookie, the way back, and what slows down
guesses."""

import http.client
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from html.parser import HTMLParser
from time import monotonic
from urllib.parse import urlencode

import pytest
from http_endpoint import Answer, Opened, opened, quick
from kafka_clients import wait_until

from streaming.tables.tables import Tables

TOKEN = "a-token-of-some-length"
FORM = "application/x-www-form-urlencoded"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
PROMETHEUS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"


@pytest.fixture
def endpoint(tables: Tables) -> Iterator[Opened]:
    with opened(tables, token=TOKEN) as endpoint:
        yield endpoint
        assert endpoint.said == []


def post(
    endpoint: Opened,
    token: str | None = TOKEN,
    *,
    path: str = "/login",
    back: str | None = None,
    body: bytes | None = None,
    source: str = "127.0.0.1",
    **headers: str,
) -> Answer:
    """Send the form, from an address of this machine."""
    fields = {name: value for name, value in (("token", token), ("next", back)) if value is not None}
    connection = http.client.HTTPConnection(
        "127.0.0.1", endpoint.endpoint.port, timeout=30, source_address=(source, 0)
    )
    try:
        sent = {"Content-Type": FORM, **{name.replace("_", "-"): value for name, value in headers.items()}}
        connection.request("POST", path, urlencode(fields).encode() if body is None else body, sent)
        answer = connection.getresponse()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def cookie_of(answer: Answer) -> str:
    """Return the name and value of the cookie that an answer sets."""
    return answer.headers["set-cookie"].partition(";")[0]


def attributes_of(answer: Answer) -> set[str]:
    return {part.strip().lower() for part in answer.headers["set-cookie"].split(";")[1:]}


class Inputs(HTMLParser):
    """The `input` elements of a page, and the form around them."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.form: dict[str, str | None] = {}
        self.inputs: dict[str | None, dict[str, str | None]] = {}
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "form":
            self.form = dict(attrs)
        elif tag == "input":
            self.inputs[dict(attrs)["name"]] = dict(attrs)


def slow_down(endpoint: Opened, *peers: str) -> None:
    """Let each peer fail so often that it has to wait for longer than a test lasts."""
    login = endpoint.endpoint._login
    assert login is not None
    for peer in peers:
        for _ in range(7):
            login._attempts.failed(peer, monotonic() - 1)


# --- the form --------------------------------------------------------------------------------------------


def test_a_browser_without_the_token_gets_a_form(endpoint: Opened) -> None:
    for path in ("/", "/metrics", "/groups/a%00b?since=-1d&x=%22%3E", '/nowhere?"><script>alert(1)</script>'):
        answer = endpoint.ask(path, accept=BROWSER)
        page = Inputs(answer.body)
        assert (answer.status, page.form) == (401, {"method": "post", "action": "/login"})
        assert page.inputs["next"] == {"type": "hidden", "name": "next", "value": path}
        token = page.inputs["token"]
        assert (token["type"], token["autocomplete"], "autofocus" in token) == (
            "password",
            "current-password",
            True,
        )
        assert b"<script" not in answer.body
        assert b'<label for="token">' in answer.body
        assert b'<html lang="en">' in answer.body
        assert b'<link rel="stylesheet" href="/static/style.css">' in answer.body


def test_the_form_has_its_headers_and_those_of_every_response_once(endpoint: Opened) -> None:
    headers = endpoint.ask("/", accept=BROWSER).headers
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["www-authenticate"].startswith("Bearer")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "same-origin"  # browsers send `Origin: null` with no-referrer
    assert headers["content-security-policy"] == (
        "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    with endpoint.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\naccept: text/html\r\nconnection: close\r\n\r\n")
        head = ends(client).lower().partition(b"\r\n\r\n")[0]
    names = [line.partition(b":")[0] for line in head.splitlines()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain", PROMETHEUS, "text/plain, text/html;q=0.5"])
def test_a_client_that_is_no_browser_gets_a_sentence(endpoint: Opened, accept: str) -> None:
    answer = endpoint.ask("/metrics", accept=accept)
    assert (answer.status, answer.body) == (401, b"expected the token: Authorization: Bearer ...\n")
    assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_head_gets_the_headers_of_the_form(endpoint: Opened) -> None:
    for path, status in (("/", 401), ("/login", 200)):
        answer = endpoint.ask(path, "HEAD", accept=BROWSER)
        assert (answer.status, answer.body) == (status, b"")
        assert (
            answer.headers["content-length"] == endpoint.ask(path, accept=BROWSER).headers["content-length"]
        )


def test_the_form_has_an_address_that_leads_to_the_start_page(endpoint: Opened) -> None:
    for path in ("/login", "/login?next=//evil.example"):
        answer = endpoint.ask(path)
        assert (answer.status, Inputs(answer.body).inputs["next"]["value"]) == (200, "/")
    assert Inputs(endpoint.ask("/static/../logout", accept=BROWSER).body).inputs == {}
    assert b"alert" not in endpoint.ask("/login").body


def test_files_of_pages_need_no_token(endpoint: Opened) -> None:
    assert endpoint.ask("/static/none.css", accept=BROWSER).status == 404
    for path in ("/static", "/static/../metrics", "/static/%2e%2e/metrics", "/staticmetrics", "//static/x"):
        answer = endpoint.ask(path)
        assert answer.status in (401, 404), path
        assert b"offsetlake_" not in answer.body


def test_only_the_form_is_posted(endpoint: Opened) -> None:
    cookie = cookie_of(post(endpoint))
    for path in ("/", "/metrics", "/login/", "/static/x"):
        assert post(endpoint, body=b"", path=path, cookie=cookie).headers["allow"] == "GET, HEAD"
        assert post(endpoint, path=path, cookie=cookie).status == 400
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
        for path, allowed in (("/login", "GET, HEAD, POST"), ("/logout", "POST")):
            answer = endpoint.ask(path, method, cookie=cookie)
            assert (answer.status, answer.headers["allow"]) == (405, allowed)
    for method in ("GET", "HEAD"):
        assert endpoint.ask("/logout", method).headers["allow"] == "POST"


def test_without_a_token_there_is_no_login(tables: Tables) -> None:
    with opened(tables) as endpoint:
        assert endpoint.ask("/login", accept=BROWSER).status == 404
        assert endpoint.ask("/", accept=BROWSER).status == 200
        for path in ("/login", "/logout"):
            answer = post(endpoint, body=b"", path=path)
            assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
        answer = post(endpoint)
        assert (answer.status, b"/login" in answer.body) == (400, False)


# --- sessions --------------------------------------------------------------------------------------------


def test_the_token_of_the_form_opens_what_was_asked_for(endpoint: Opened) -> None:
    asked = endpoint.ask("/metrics?x=%22", accept=BROWSER)
    back = Inputs(asked.body).inputs["next"]["value"]
    answer = post(endpoint, f" {TOKEN}\n", back=back, origin=f"http://127.0.0.1:{endpoint.endpoint.port}")
    assert (answer.status, answer.headers["location"], answer.body) == (303, "/metrics?x=%22", b"")
    assert answer.headers["cache-control"] == "no-store"
    assert attributes_of(answer) == {"httponly", "samesite=strict", "path=/", "max-age=43200"}
    cookie = cookie_of(answer)
    assert TOKEN not in cookie
    opened_now = endpoint.ask(answer.headers["location"], accept=BROWSER, cookie=cookie)
    assert (opened_now.status, b"offsetlake_tables_readable" in opened_now.body) == (200, True)
    assert "Cookie" in opened_now.headers["vary"]
    for sent in (f"x=y; {cookie}", f"{cookie};x=y", f"{cookie}x; {cookie}"):
        assert endpoint.ask("/", accept=BROWSER, cookie=sent).status == 200
    assert endpoint.ask("/metrics", authorization=f"Bearer {TOKEN}").status == 200
    assert endpoint.ask("/metrics").status == 401


def test_a_wrong_token_gets_the_form_again(endpoint: Opened) -> None:
    answer = post(endpoint, "no-token-of-this-one", back="/groups?x=y")
    page = Inputs(answer.body)
    assert (answer.status, page.inputs["next"]["value"]) == (401, "/groups?x=y")
    assert b'<p role="alert">This is not the token of this server.</p>' in answer.body
    assert "set-cookie" not in answer.headers
    assert b"no-token-of-this-one" not in answer.body


@pytest.mark.parametrize("token", ["", TOKEN[:-1], f"{TOKEN}x", TOKEN.upper(), "\0", "ł" * 100, f"{TOKEN}\0"])
def test_other_tokens_are_wrong(endpoint: Opened, token: str) -> None:
    assert post(endpoint, token).status == 401


def test_cookies_that_were_not_given_are_refused(endpoint: Opened) -> None:
    name, _, value = cookie_of(post(endpoint)).partition("=")
    end, _, seal = value.partition(".")
    later = str(int(end) + 1)
    forged = [
        *("", ".", "=", f"{end}.", f".{seal}", f"{later}.{seal}", f"{end}.{seal[:-1]}", f"{end}.{seal}0"),
        *(f"{end}.{seal.upper()}", f"0{end}.{seal}", f"{end} .{seal}", f"nan.{seal}", TOKEN, f'"{value}"'),
        *(f"{end}.{'0' * 64}", "9" * 5_000, "\xff.\xff"),
    ]
    for sent in forged:
        assert endpoint.ask("/metrics", cookie=f"{name}={sent}").status == 401, sent
    for other in (f"{name}x={value}", f"x{name}={value}", value, f"{name}{value}"):
        assert endpoint.ask("/metrics", cookie=other).status == 401, other
    assert endpoint.ask("/metrics", cookie=f"{name}={value}").status == 200


def test_a_session_ends_with_the_process(endpoint: Opened, tables: Tables) -> None:
    name, _, value = cookie_of(post(endpoint)).partition("=")
    with opened(tables, token=TOKEN) as another:
        other_name = cookie_of(post(another)).partition("=")[0]
        assert other_name != name  # so that browsers keep both: a cookie belongs to all ports of a host
        assert another.ask("/metrics", cookie=f"{other_name}={value}").status == 401


def test_a_session_ends_in_time(tables: Tables) -> None:
    with opened(tables, token=TOKEN, limits=quick(session_s=2)) as endpoint:
        answer = post(endpoint)
        assert "max-age=2" in attributes_of(answer)
        wait_until(lambda: endpoint.ask("/metrics", cookie=cookie_of(answer)).status == 401, "its end")


def test_signing_out_drops_the_cookie(endpoint: Opened) -> None:
    cookie = cookie_of(post(endpoint))
    origin = f"http://127.0.0.1:{endpoint.endpoint.port}"
    answer = post(endpoint, path="/logout", body=b"", cookie=cookie, origin=origin)
    assert (answer.status, answer.headers["location"]) == (303, "/login")
    name, _, value = cookie_of(answer).partition("=")
    assert (name, value.strip('"')) == (cookie.partition("=")[0], "")
    assert {"max-age=0", "path=/"} <= attributes_of(answer)
    assert post(endpoint, path="/logout", body=b"", origin="http://evil.example").status == 403


def test_the_cookie_is_secure_if_the_proxy_says_that_the_connection_is(tables: Tables) -> None:
    for is_behind_proxy in (True, False):
        with opened(tables, token=TOKEN, behind_proxy=is_behind_proxy) as endpoint:
            for scheme, is_https in (("https", True), ("HTTPS, http", True), ("http", False), ("", False)):
                answer = post(endpoint, x_forwarded_proto=scheme)
                is_secure = "secure" in attributes_of(answer)
                assert (answer.status, is_secure) == (303, is_https and is_behind_proxy)


# --- where a form comes from, and where it leads ---------------------------------------------------------

LOCAL = ["/", "/metrics", "/groups?name=%2F%5C&x=a/b", "/a//b", "/a?next=//evil.example", "/%5Cevil", "/a#b"]
ELSEWHERE = [
    *("//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example", "/a\\..\\\\evil.example"),
    *("https://evil.example", "https:evil.example", "javascript:alert(1)", "evil.example", "", " /", "?x"),
    *("/\t/evil.example", "/\n/evil.example", "/a\r\nset-cookie: x=y", "/a\0b", "/ł", "/a b", "/\x7f"),
    *("/login", "/logout", "/login?x=y", f"/{'x' * 2_000}", "http:/evil.example", "/\\", "//"),
]


def test_the_way_back_leads_to_this_server_only(endpoint: Opened) -> None:
    for paths, expected in ((LOCAL, None), (ELSEWHERE, "/")):
        for path in paths:
            answer = post(endpoint, back=path)
            assert (answer.status, answer.headers["location"]) == (303, expected or path), path
            assert answer.headers["set-cookie"].startswith("offsetlake_"), path
    assert post(endpoint).headers["location"] == "/"
    wrong = post(endpoint, "wrong", back="//evil.example")
    assert Inputs(wrong.body).inputs["next"]["value"] == "/"


def test_a_target_that_is_an_address_does_not_lead_back_to_it(endpoint: Opened) -> None:
    for target, back in (
        (b"http://evil.example/x", "/x"),
        (b"http://evil.example//evil.example/x", "/"),
        (b"//evil.example/x", "/"),
        (b"/\\evil.example", "/"),
    ):
        with endpoint.connect() as client:
            client.sendall(
                b"GET " + target + b" HTTP/1.1\r\nhost: x\r\naccept: text/html\r\nconnection: close\r\n\r\n"
            )
            page = Inputs(ends(client).partition(b"\r\n\r\n")[2])
        assert page.inputs["next"]["value"] == back


def test_a_form_of_another_host_is_refused(endpoint: Opened) -> None:
    host = "lake.example:8720"
    for origin in ("http://lake.example:8720", "https://LAKE.example", "https://lake.example:443"):
        assert post(endpoint, origin=origin, host=host).status == 303, origin
    for origin in (
        *("null", "", "http://evil.example", "http://lake.example.evil.example", "http://evil.example:8720"),
        *("http://xlake.example", "lake.example", "http://", "http://evil.example/lake.example:8720"),
    ):
        answer = post(endpoint, origin=origin, host=host)
        assert (answer.status, "set-cookie" in answer.headers) == (403, False), origin
        assert b"a proxy must pass on Host unchanged" in answer.body
    for malformed in ("null", "", "["):
        assert post(endpoint, origin="null", host=malformed).status == 403, malformed
    assert post(endpoint, host=host).status == 303


# --- bodies ----------------------------------------------------------------------------------------------


def ends(client: socket.socket) -> bytes:
    """What comes until the other side closes the connection."""
    received = b""
    with suppress(ConnectionError):
        while data := client.recv(65_536):
            received += data
    return received


def begun(length: int, more: bytes = b"") -> bytes:
    return (
        b"POST /login HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-www-form-urlencoded\r\n"
        b"content-length: %d\r\n%s\r\n" % (length, more)
    )


def test_a_body_has_at_most_8_kib(endpoint: Opened) -> None:
    body = f"token={TOKEN}&next=/".encode()
    assert post(endpoint, body=body + b"x" * (8_192 - len(body))).status == 303
    answer = post(endpoint, body=body + b"x" * (8_193 - len(body)))
    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert b"only POST /login has a body, of at most 8192 bytes" in answer.body


def test_a_request_behind_a_body_of_no_sure_length_is_not_read(endpoint: Opened) -> None:
    inner = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    for header in (
        *(b"Transfer-Encoding: chunked", b"Content-Length: 5\r\nTransfer-Encoding: chunked"),
        *(b"Content-Length: 5\r\nContent-Length: 6", b"Content-Length: -1", b"Content-Length: 5, 6"),
        *(b"Content-Length: 99999999999999999999", b"Content-Length : 5"),
    ):
        with endpoint.connect() as client:
            client.sendall(
                b"POST /login HTTP/1.1\r\nhost: localhost\r\n" + header + b"\r\n\r\n0\r\n\r\n" + inner
            )
            answer = ends(client)
        assert (answer[:13], answer.count(b"HTTP/1.1")) == (b"HTTP/1.1 400 ", 1), header


def test_a_request_behind_a_login_is_answered_after_it(endpoint: Opened) -> None:
    body = f"token={TOKEN}".encode()
    with endpoint.connect() as client:
        client.sendall(begun(len(body)) + body + b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        answer = ends(client)
    statuses = [line for line in answer.splitlines() if b"HTTP/1.1 " in line]
    assert statuses == [b"HTTP/1.1 303 See Other", b"HTTP/1.1 200 OK"]


def test_a_client_may_wait_until_its_body_is_asked_for(endpoint: Opened) -> None:
    body = f"token={TOKEN}".encode()
    with endpoint.connect() as client:
        client.sendall(begun(len(body), b"expect: 100-continue\r\n"))
        assert client.recv(1_000).startswith(b"HTTP/1.1 100 ")
        client.sendall(body)
        assert client.recv(1_000).startswith(b"HTTP/1.1 303 ")


@pytest.mark.parametrize(
    "before", [b"", pytest.param(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", marks=pytest.mark.more)]
)
def test_a_body_that_drips_is_not_waited_for(tables: Tables, before: bytes) -> None:
    with opened(tables, token=TOKEN, limits=quick(head_s=0.5)) as endpoint, endpoint.connect() as client:
        began = time.monotonic()
        with suppress(OSError):
            client.sendall(before + begun(1_000))
            while time.monotonic() - began < 10:
                client.sendall(b"x")
                time.sleep(0.1)
        assert time.monotonic() - began < 5
        assert b"303" not in ends(client)
        assert post(endpoint).status == 303
        assert endpoint.said == []


def test_slow_bodies_delay_no_other_login(endpoint: Opened) -> None:
    clients = [endpoint.connect() for _ in range(50)]
    for client in clients:
        client.sendall(begun(1_000) + b"token=")
    wait_until(lambda: len(endpoint.endpoint._connections) == 50, "their connections")
    assert post(endpoint).status == 303
    for client in clients:
        client.close()
    wait_until(lambda: not endpoint.endpoint._connections, "their end")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (FORM, b""),
        (FORM, b"next=/"),
        (FORM, b"&" * 100 + b"token=" + TOKEN.encode()),
        (FORM, b"\xff\xfe" + TOKEN.encode()),
        ("text/plain", b"token=" + TOKEN.encode()),
        ("multipart/form-data; boundary=x", b"--x"),
        ("", b"token=" + TOKEN.encode()),
    ],
)
def test_what_is_no_form_is_refused(endpoint: Opened, kind: str, body: bytes) -> None:
    answer = post(endpoint, body=body, Content_Type=kind)
    assert (answer.status, "set-cookie" in answer.headers) == (400, False)
    assert answer.body.startswith(b"expected the fields token and next as application/x-www-form-urlencoded")
    assert TOKEN.encode() not in answer.body


# --- guesses ---------------------------------------------------------------------------------------------


def guess(endpoint: Opened, sources: list[str]) -> list[Answer]:
    """Send a wrong token from each of the addresses, all at once."""
    with ThreadPoolExecutor(len(sources)) as pool:
        return list(pool.map(lambda source: post(endpoint, "wrong", source=source), sources))


def test_a_right_login_succeeds_while_another_address_guesses(endpoint: Opened) -> None:
    with ThreadPoolExecutor(1) as beside:
        guesses = beside.submit(guess, endpoint, ["127.0.0.1"] * 50)
        rights = []
        while not guesses.done() or not rights:
            rights.append(post(endpoint, source="127.0.0.2").status)
    assert set(rights) == {303}
    answers = guesses.result()
    checked = [answer for answer in answers if answer.status == 401]
    assert 1 <= len(checked) < 10
    refused = [answer for answer in answers if answer.status == 429]
    assert len(checked) + len(refused) == 50
    assert {int(answer.headers["retry-after"]) for answer in refused} <= {1, 2, 4, 8}
    assert all(b"Too many attempts with a wrong token. Try again in" in answer.body for answer in refused)
    wait_until(lambda: post(endpoint).status == 303, "the first address", timeout_s=30)


def test_guesses_of_many_addresses_are_few_altogether(endpoint: Opened) -> None:
    began = monotonic()
    answers = guess(endpoint, [f"127.0.1.{number}" for number in range(1, 51)])
    took = monotonic() - began
    checked = sum(answer.status == 401 for answer in answers)
    assert 10 <= checked <= 10 + 5 * took + 1
    assert {answer.status for answer in answers} <= {401, 429}
    wait_until(lambda: post(endpoint).status == 303, "a right login", timeout_s=10)


def test_a_token_that_comes_too_early_is_not_checked(endpoint: Opened) -> None:
    slow_down(endpoint, "127.0.0.3")
    answer = post(endpoint, source="127.0.0.3", back="/groups")
    assert (answer.status, "set-cookie" in answer.headers) == (429, False)
    assert Inputs(answer.body).inputs["next"]["value"] == "/groups"
    assert 20 <= int(answer.headers["retry-after"]) <= 30
    assert post(endpoint, source="127.0.0.4").status == 303
    assert endpoint.ask("/metrics", authorization=f"Bearer {TOKEN}").status == 200


def test_behind_a_proxy_addresses_are_those_that_it_states(tables: Tables) -> None:
    with opened(tables, token=TOKEN, behind_proxy=True) as endpoint:
        slow_down(endpoint, "192.0.2.1")
        for stated, status in (
            ("192.0.2.1", 429),
            ("192.0.2.9, 192.0.2.1", 429),
            ("::ffff:192.0.2.1", 429),
            ("192.0.2.1, 192.0.2.9", 303),
            ("nonsense", 303),
            ("", 303),
        ):
            assert post(endpoint, x_forwarded_for=stated).status == status, stated
    with opened(tables, token=TOKEN) as endpoint:
        slow_down(endpoint, "192.0.2.1")
        assert post(endpoint, x_forwarded_for="192.0.2.1").status == 303


def test_an_ipv6_network_is_one_address(tables: Tables) -> None:
    with opened(tables, token=TOKEN, behind_proxy=True) as endpoint:
        slow_down(endpoint, "2001:db8::/64")
        assert post(endpoint, x_forwarded_for="2001:db8::1").status == 429
        assert post(endpoint, x_forwarded_for="2001:db8::ffff:0:0:2").status == 429
        assert post(endpoint, x_forwarded_for="2001:db8:0:1::1").status == 303
