"""The HTTP endpoint for tests: opened in this process over tables, and asked by plain sockets."""

import http.client
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from unittest.mock import patch

from logged import logged

from streaming.serve.assessment.cluster import ServedCluster
from streaming.serve.assessment.counters import Counters
from streaming.serve.http.limits import HttpLimits
from streaming.serve.http.listener import HttpListener
from streaming.serve.memory.tailer import Tailer
from streaming.serve.process.metrics_source import ServedMetrics
from streaming.settings.clusters import settings_by_cluster
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Opened:
    """An endpoint that is open; `said` is what went wrong."""

    endpoint: HttpListener
    tailer: Tailer
    telling: ServedMetrics
    said: list[str]

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.endpoint.port, timeout=30)
        try:
            connection.request(
                method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
            )
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.endpoint.port), timeout=30)


@contextmanager
def opened(
    tables: Tables | Mapping[str, str],
    *,
    token: str | None = None,
    behind_proxy: bool = False,
    limits: HttpLimits | None = None,
    every_s: float = 0.1,
    follows: bool = True,
    tls: ssl.SSLContext | None = None,
) -> Iterator[Opened]:
    """Open an endpoint over tables that are followed; of several clusters by name their table roots."""
    if isinstance(tables, Tables):
        options: dict[str, object] = {"tables.root": tables.root}
    else:
        options = {"serve.clusters": [{"name": name, "table_root": root} for name, root in tables.items()]}
    settings = read_settings(options=options)
    with logged("streaming.serve") as said, ExitStack() as stack:
        clusters = [served(name, own) for name, own in settings_by_cluster(settings).items()]
        telling = ServedMetrics(settings, clusters)
        telling.publisher._every_s = every_s
        for cluster in clusters:
            cluster.refresher._every_s = every_s
            if follows:
                stack.enter_context(cluster.tailer)
        stack.enter_context(telling)
        endpoint = stack.enter_context(
            HttpListener(
                "127.0.0.1",
                0,
                telling,
                token=token,
                tls=tls,
                behind_proxy=behind_proxy,
                limits=limits or HttpLimits(),
            )
        )
        # else a busy machine repeats answers that took long
        stack.enter_context(patch("streaming.serve.page.asked._LONG_S", float("inf")))
        yield Opened(endpoint, clusters[0].tailer, telling, said)


def served(name: str, settings: Settings) -> ServedCluster:
    """Return a cluster whose tables are looked at often."""
    cluster = ServedCluster.of(name, settings, counters=Counters())
    cluster.tailer._every_s = 0.05
    return cluster


def quick(**changed: float) -> HttpLimits:
    """Limits that a test does not wait long for."""
    return replace(HttpLimits(), **changed)  # type: ignore[arg-type]
