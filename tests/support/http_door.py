"""The HTTP door for tests: opened in this process over tables, and asked by plain sockets."""

import http.client
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from streaming.serve.http.door import Door
from streaming.serve.http.limits import HttpLimits
from streaming.serve.picture.follower import Follower
from streaming.serve.process.telling import Telling
from streaming.serve.standing.counters import Counters
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Opened:
    """A door that is open; `said` is what went wrong."""

    door: Door
    follower: Follower
    telling: Telling
    said: list[str]

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.door.port, timeout=30)
        try:
            connection.request(
                method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
            )
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.door.port), timeout=30)


@contextmanager
def opened(
    tables: Tables,
    *,
    token: str | None = None,
    behind_proxy: bool = False,
    limits: HttpLimits | None = None,
    every_s: float = 0.1,
    follows: bool = True,
    say: Callable[[str], None] | None = None,
) -> Iterator[Opened]:
    """Open a door over tables that are followed."""
    said: list[str] = []
    settings = read_settings()
    with ExitStack() as stack:
        follower = Follower(tables, say or said.append, every_s=0.05, tally=Counters())
        telling = Telling(settings, tables, follower, said.append)
        telling.publisher._every_s = telling._keeper._every_s = every_s
        if follows:
            stack.enter_context(follower)
        stack.enter_context(telling)
        door = stack.enter_context(
            Door(
                "127.0.0.1",
                0,
                telling,
                said.append,
                token=token,
                behind_proxy=behind_proxy,
                limits=limits or HttpLimits(),
            )
        )
        yield Opened(door, follower, telling, said)


def quick(**changed: float) -> HttpLimits:
    """Limits that a test does not wait long for."""
    return replace(HttpLimits(), **changed)  # type: ignore[arg-type]
