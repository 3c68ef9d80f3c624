"""Serves until SIGTERM or SIGINT: one thread keeps the snapshot, others build metrics and respond over HTTP,
and one event loop responds to Kafka's clients."""

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    contextmanager,
    nullcontext,
    suppress,
)
from typing import Final

from streaming.common.conf_dir import whole_path
from streaming.common.http_values import ip_address
from streaming.common.rate_limits import RateLimitedLog
from streaming.model.errors import MisuseError
from streaming.serve.assessment.counters import Counters
from streaming.serve.http.limits import HttpLimits
from streaming.serve.http.listener import HttpListener, token_in
from streaming.serve.http.logs import forwarded
from streaming.serve.kafka.limits import Limits
from streaming.serve.kafka.listener import KafkaListener, cluster_id_of
from streaming.serve.kafka.view import Address
from streaming.serve.memory.tailer import Tailer
from streaming.serve.process.addresses import address, others_at, shown
from streaming.serve.process.handles import KEPT, ensure
from streaming.serve.process.metrics_source import ServedMetrics
from streaming.settings.model import HttpSettings, KafkaListenerSettings, Settings
from streaming.tables.tables import Tables

_log = logging.getLogger(__name__)

_SWITCH_S: Final = 0.0001
"""Python's thread switch interval: fifty times shorter than the default of 5 ms, which every request would
wait for several times while tables are read."""

_COLLECT_EVERY_S: Final = 10.0
_POLL_S: Final = 0.05


def serve(settings: Settings, tables: Tables) -> None:
    """Serve at the endpoints of `[serve]` until SIGTERM or SIGINT.

    Raises `MisuseError` for endpoints that are not allowed, and `KafkaListenerError` or `HttpListenerError`
    for those that cannot be opened. Later errors are logged.
    """
    endpoints = [(_listening(endpoint), _advertised(endpoint)) for endpoint in settings.serve.kafka]
    http = settings.serve.http
    if not endpoints and not http.listen:
        raise MisuseError(
            "serving: expected a listener, found none. Add --http HOST:PORT, such as 127.0.0.1:8720, or "
            "--kafka HOST:PORT, such as 127.0.0.1:9192."
        )
    token = _token(http)
    sys.setswitchinterval(_SWITCH_S)
    share = _share_of_connections(len(endpoints), bool(http.listen))
    tailer = Tailer(tables, counters=Counters() if http.listen else None)
    listeners = [
        KafkaListener(
            listening,
            lambda: tailer.current,
            cluster_id=cluster_id_of(whole_path(settings.tables.root)),
            within_ms=settings.tables.complete_within_ms,
            advertised=advertised,
            limits=Limits(connections=int(Limits().connections * share)),
        )
        for listening, advertised in endpoints
    ]
    with ExitStack() as stack:  # endpoints first, so that a port in use is reported at once
        served_metrics = ServedMetrics(settings, tables, tailer, listeners=listeners) if http.listen else None
        opened = []
        if served_metrics is None:
            stack.enter_context(forwarded(RateLimitedLog(_log)))
        else:
            limits = HttpLimits(connections=int(HttpLimits().connections * share))
            is_behind_proxy = http.behind_proxy == "on"
            endpoint = HttpListener(
                *address(http.listen),
                served_metrics,
                token=token,
                behind_proxy=is_behind_proxy,
                limits=limits,
            )
            stack.enter_context(endpoint)
            opened.append(f"answering HTTP on http://{shown(Address(endpoint.host, endpoint.port))}/")
        asyncio.run(_serve(listeners, opened, tailer, served_metrics or nullcontext(), stack))


async def _serve(
    listeners: Sequence[KafkaListener],
    opened: Sequence[str],
    tailer: Tailer,
    served_metrics: AbstractContextManager[object],
    stack: ExitStack,
) -> None:
    """Open the Kafka listeners, read the tables, and respond until SIGTERM or SIGINT.

    Until everything was read once, clients get the error that groups are loading. Contexts that must outlive
    the Kafka listeners are left on `stack`.
    """
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as endpoints:
        for listener in listeners:
            await endpoints.enter_async_context(listener)
        tailer.start()
        stack.push(tailer)
        while tailer.last_poll is None and not stop.is_set():
            await asyncio.sleep(_POLL_S)
        if stop.is_set():
            return
        if listeners:
            stack.enter_context(_spared_garbage())
        stack.enter_context(served_metrics)
        for sentence in opened:
            _log.info(sentence)
        for listener in listeners:
            _log.info("answering Kafka's clients on %s", shown(listener.address))
        collecting = [asyncio.create_task(_collect(listener)) for listener in listeners[:1]]
        await stop.wait()
        for task in collecting:
            task.cancel()


def _share_of_connections(kafka_endpoints: int, is_http: bool) -> float:
    """Return the fraction of all allowed connections for which there are file handles."""
    wanted = kafka_endpoints * Limits().connections + is_http * HttpLimits().connections
    found = ensure(wanted)
    if found < wanted:
        _log.warning(
            f"{found} connections are taken at most, of {wanted}: more open files are not allowed "
            f"(ulimit -n). Allow {wanted + KEPT} for all"
        )
    return found / wanted


@contextmanager
def _spared_garbage() -> Iterator[None]:
    """Replace Python's automatic garbage collection, which would pause all responses while a large one is
    built, by `_collect`, and exclude the present objects from it."""
    gc.disable()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


async def _collect(listener: KafkaListener) -> None:
    """Collect garbage periodically, between two large responses, so that there is little to traverse."""
    while True:
        await asyncio.sleep(_COLLECT_EVERY_S)
        await listener.at_length(gc.collect)


def _token(http: HttpSettings) -> str | None:
    """Return the token of the HTTP listener; other machines may reach it only with a token or through a
    proxy."""
    if not http.listen:
        return None
    others = others_at(http.listen)
    if others and not http.token_file and http.behind_proxy != "on":
        raise MisuseError(
            f"listening on {http.listen}: expected a loopback address, such as 127.0.0.1 or [::1], found "
            f"{others[0]}, which other machines can reach. Add --token-file with a token that clients must "
            "send, or --behind-proxy if a proxy in front restricts access."
        )
    return token_in(http.token_file) if http.token_file else None


def _listening(endpoint: KafkaListenerSettings) -> Address:
    """Return the address to listen on: loopback only, because clients are not authenticated."""
    others = others_at(endpoint.listen)
    if others:
        raise MisuseError(
            f"listening on {endpoint.listen}: expected a loopback address, such as 127.0.0.1 or [::1], found "
            f"{others[0]}. Clients are not authenticated, so other machines are not allowed. Use a tunnel "
            "(ssh -L), and set --advertise to the address that they then connect to."
        )
    return address(endpoint.listen)


def _advertised(endpoint: KafkaListenerSettings) -> Address | None:
    if not endpoint.advertise:
        return None
    place = address(endpoint.advertise)
    if _means_any(place.host) or not place.port:
        raise MisuseError(
            f"advertising {endpoint.advertise}: expected an address that clients can connect to, found a "
            "wildcard. Use their host and port."
        )
    return place


def _means_any(host: str) -> bool:
    """Return whether a host is a wildcard address in any notation (0, 0x0, 0.0, ::0, ::ffff:0.0.0.0)."""
    with suppress(OSError):
        return socket.inet_aton(host) == bytes(4)
    with suppress(ValueError):
        return ip_address(host).is_unspecified
    return False
