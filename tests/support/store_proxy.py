"""A proxy between clients and an object store that counts requests, and can delay, refuse or lose them.

It passes requests on unchanged, with their Host, which their signatures contain. It is a process of its own:
delta-rs holds Python's lock while it waits for a store, so a proxy in the same process would wait for it.
"""

import http.client
import json
import random
import re
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from streaming.demo.child import Child
from streaming.demo.local_broker import free_ports

_HOP_BY_HOP: Final = {"connection", "keep-alive", "transfer-encoding", "content-length"}
_CONTROL: Final = "/-proxy-/"


@dataclass(frozen=True)
class Request:
    """A request: its kind as price lists name it (GET, HEAD, PUT, POST, DELETE, or LIST), the path of the
    object, of a LIST the prefix, and the access key with which it is signed."""

    kind: str
    path: str
    user: str


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens to a part (`chance`) of the requests of a kind, path and user (regular expressions), and
    only so many `times` (None: any number).

    `status`: they are refused with it, before they arrive. `is_cut`: the connection ends before the request
    arrives, or after it (`arrives`), so that its answer is lost.
    """

    kind: str = ".*"
    path: str = ".*"
    user: str = ".*"
    chance: float = 1.0
    times: int | None = None
    delay_s: float = 0.0
    status: int | None = None
    code: str = "ServiceUnavailable"
    is_cut: bool = False
    arrives: bool = False


@dataclass(frozen=True)
class StoreProxy:
    """The running proxy; see `start_store_proxy`."""

    endpoint: str

    def set_faults(self, *faults: Fault) -> None:
        """Let these be the only faults from now on; to each request happens the first that fits."""
        self._ask("faults", json.dumps([asdict(fault) for fault in faults]).encode())

    def seen(self) -> list[Request]:
        """Return the requests since the last call, in the order in which they came."""
        return [Request(*one) for one in self._ask("seen")]

    def counts(self) -> Counter[str]:
        """Return the number of requests since the last call by kind."""
        return Counter(request.kind for request in self.seen())

    def suffered(self) -> dict[str, int]:
        """Return the number of requests to which something happened, by kind of request and of fault."""
        found: dict[str, int] = self._ask("suffered")
        return found

    def _ask(self, what: str, data: bytes | None = None) -> Any:
        method = "GET" if data is None else "PUT"
        request = urllib.request.Request(f"{self.endpoint}{_CONTROL}{what}", data, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)


@contextmanager
def start_store_proxy(directory: Path, target: str) -> Iterator[StoreProxy]:
    """Run a proxy of `target`, a URL, until the end of the block."""
    directory.mkdir(parents=True, exist_ok=True)
    [port] = free_ports(1)
    here = Path(__file__).resolve()
    path = [str(here.parents[2]), str(here.parent)]
    program = f"import sys; sys.path[:0] = {path!r}; import store_proxy; store_proxy.main()"
    child = Child(
        [sys.executable, "-c", program, str(port), target], log=directory / "proxy.log", directory=directory
    )
    proxy = StoreProxy(f"http://127.0.0.1:{port}")
    try:
        deadline = time.monotonic() + 60
        while True:
            with suppress(OSError):
                proxy.counts()
                break
            assert child.is_running, (directory / "proxy.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield proxy
    finally:
        child.end(signal.SIGKILL)


# --- the process of the proxy ------------------------------------------------------------------------------


class _State:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.faults: list[Fault] = []
        self.seen: list[Request] = []
        self.happened: Counter[Fault] = Counter()
        self.suffered: Counter[str] = Counter()
        self.random = random.Random(1)

    def fault_of(self, request: Request) -> Fault:
        with self.lock:
            self.seen.append(request)
            for fault in self.faults:
                if (
                    self.happened[fault] != fault.times
                    and re.fullmatch(fault.kind, request.kind)
                    and re.fullmatch(fault.path, request.path)
                    and re.fullmatch(fault.user, request.user)
                    and self.random.random() < fault.chance
                ):
                    self.happened[fault] += 1
                    self.suffered[f"{request.kind} {_named(fault)}"] += 1
                    return fault
        return Fault()

    def asked(self, what: str, body: bytes) -> object:
        with self.lock:
            if what == "faults":
                self.faults = [Fault(**one) for one in json.loads(body)]
                self.happened.clear()
                return None
            if what == "suffered":
                return self.suffered
            found, self.seen = self.seen, []
            return [(one.kind, one.path, one.user) for one in found]


def _named(fault: Fault) -> str:
    if fault.status is not None:
        return str(fault.status)
    if fault.is_cut:
        return "answer lost" if fault.arrives else "cut"
    return "delayed"


def main() -> None:
    """Listen until killed."""
    port, target = sys.argv[1:]
    place, state = urlsplit(target), _State()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        _store: http.client.HTTPConnection | None = None

        def _serve(self) -> None:
            body = self._body()
            if self.path.startswith(_CONTROL):
                told = json.dumps(state.asked(self.path.removeprefix(_CONTROL), body)).encode()
                self._answer(200, [], told)
                return
            fault = state.fault_of(_request(self.command, self.path, self.headers.get("Authorization") or ""))
            time.sleep(fault.delay_s)
            if fault.status is not None:
                self._answer(fault.status, [], _error(fault.code))
            elif fault.is_cut and not fault.arrives:
                self._cut()
            else:
                status, headers, answer = self._passed_on(body)
                if fault.is_cut:
                    self._cut()
                else:
                    self._answer(status, headers, answer)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _passed_on(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
            if body or self.command in ("PUT", "POST"):
                headers["Content-Length"] = str(len(body))
            if self._store is None:
                self._store = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
            try:
                self._store.request(self.command, self.path, body or None, headers)
                answer = self._store.getresponse()
                return answer.status, answer.getheaders(), answer.read()
            except (OSError, http.client.HTTPException):
                self._store.close()
                self._store = None
                return 502, [], _error("BadGateway")

        def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response_only(status)
            length = str(len(body))
            for name, value in headers:
                if name.lower() == "content-length":
                    length = value  # of HEAD: the size of an object that is not sent
                elif name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _cut(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:  # the client has gone: killed, or it did not wait
                self.close_connection = True

        def finish(self) -> None:
            if self._store is not None:
                self._store.close()
            try:
                super().finish()
            except OSError:
                return

        do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = _serve  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    Server(("127.0.0.1", int(port)), Handler).serve_forever()


def _request(method: str, target: str, authorization: str) -> Request:
    """Describe a request by its line; a user is the access key with which it is signed."""
    place = urlsplit(target)
    query = parse_qs(place.query, keep_blank_values=True)
    user = authorization.partition("Credential=")[2].partition("/")[0]
    if method == "GET" and ("list-type" in query or "prefix" in query):
        return Request("LIST", query.get("prefix", [""])[0], user)
    return Request(method, unquote(place.path), user)


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>by the proxy of a test</Message></Error>".encode()
