"""A real HTTP server for tests of delivery: it keeps what it is sent, and answers as it is told."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from server_thread import serving


@dataclass
class HttpReceiver:
    """What was posted (`bodies`, `headers`), and the status that answers next (redirects: to `location`)."""

    url: str = ""
    status: int = 200
    location: str = "/elsewhere"
    bodies: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """The methods of all requests, also of those that were refused."""
    refuses: Callable[[Any], bool] = lambda _: False
    """Which bodies are answered 400."""
    before: Callable[[], None] = lambda: None
    """Called for each request before it counts, and `after` it does but before it is answered."""
    after: Callable[[], None] = lambda: None

    @property
    def news(self) -> list[tuple[str, str, int]]:
        """Rule, event and revision of what was posted."""
        return [(body["rule"], body["event"], body["revision"]) for body in self.bodies]


@contextmanager
def running_receiver() -> Iterator[HttpReceiver]:
    """Start a server on a free port."""
    receiver = HttpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.asked.append("POST")
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            receiver.before()
            status = 400 if receiver.refuses(body) else receiver.status
            if status < 300:
                receiver.bodies.append(body)
                receiver.headers.append(dict(self.headers))
                receiver.paths.append(self.path)
            receiver.after()
            self.send_response(status)
            if 300 < status < 400:
                self.send_header("Location", receiver.location)
            self.end_headers()

        def do_GET(self) -> None:
            receiver.asked.append("GET")
            self.send_response(200)  # where a redirect would lead
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
    with serving(server):
        yield receiver
