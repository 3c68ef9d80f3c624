"""Serves until SIGTERM or SIGINT: one thread keeps the snapshot, others build metrics and respond over HTTP,
and one event loop responds to Kafka's clients."""

import asyncio
import gc
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    contextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from time import monotonic
from typing import Final

from streaming.common.conf_dir import whole_path
from streaming.common.container_limits import limit_cores_of_arrow
from streaming.common.freed_memory import return_freed_memory_at_once
from streaming.common.http_values import ip_address
from streaming.common.rate_limits import RateLimitedLog, end_together
from streaming.common.times import now_ms
from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.serve.assessment.cluster import ServedCluster
from streaming.serve.assessment.counters import Counters
from streaming.serve.http.limits import HttpLimits
from streaming.serve.http.listener import HttpListener, token_in
from streaming.serve.http.logs import forwarded
from streaming.serve.kafka.limits import Limits
from streaming.serve.kafka.listener import KafkaListener, Past, cluster_id_of
from streaming.serve.kafka.moments import Moments, fixed_moment
from streaming.serve.kafka.security import Security
from streaming.serve.kafka.view import Address
from streaming.serve.kafka.worker import on_own_thread
from streaming.serve.memory.past import PastSnapshots
from streaming.serve.memory.tailer import Tailer
from streaming.serve.process.addresses import address, others_at, shown
from streaming.serve.process.handles import KEPT, ensure
from streaming.serve.process.metrics_source import ServedMetrics
from streaming.serve.process.past_ends import past_ends_of
from streaming.serve.process.security import read_http_tls, read_security
from streaming.settings.clusters import settings_by_cluster
from streaming.settings.model import HttpSettings, KafkaListenerSettings, ServeSettings, Settings

_log = logging.getLogger(__name__)

_SWITCH_S: Final = 0.0001
"""Python's thread switch interval: fifty times shorter than the default of 5 ms, which every request would
wait for several times while tables are read."""

_COLLECT_EVERY_S: Final = 10.0
_POLL_S: Final = 0.05

_PATIENCE_S: Final = 5.0
"""How long metrics wait at the start until the tables of all clusters were read; a cluster that takes longer
follows later."""

Listeners = dict[str, list[KafkaListener]]
"""Kafka listeners by name of the cluster that they answer for."""


def serve(
    settings: Settings, reread: Callable[[], Settings] | None = None, *, stop: threading.Event | None = None
) -> None:
    """Serve at the endpoints of `[serve]` until SIGTERM or SIGINT; `stop` is set if one came before. At
    SIGHUP, certificates and principals are read again, from the settings that `reread` returns.

    Raises `MisuseError` for endpoints that are not allowed, and `KafkaListenerError` or `HttpListenerError`
    for those that cannot be opened. Later errors are logged.
    """
    endpoints = [
        (one, _advertised(one), read_security(one, settings.serve.principals)) for one in settings.serve.kafka
    ]
    _refuse_wrong_moments(settings.serve.kafka)
    http = settings.serve.http
    if not endpoints and not http.listen:
        raise MisuseError(
            "serving: expected a listener, found none. Add --http HOST:PORT, such as 127.0.0.1:8720, or "
            "--kafka HOST:PORT, such as 127.0.0.1:9192."
        )
    token, http_tls = _token(http), read_http_tls(http)
    sys.setswitchinterval(_SWITCH_S)
    return_freed_memory_at_once()
    limit_cores_of_arrow()
    share = _share_of_connections(len(endpoints), bool(http.listen))
    clusters = [
        ServedCluster.of(name, own, counters=Counters() if http.listen else None)
        for name, own in settings_by_cluster(settings).items()
    ]
    by_name = {one.name: one for one in clusters}
    limits = Limits(connections=int(Limits().connections * share))
    listeners: Listeners = {name: [] for name in by_name}
    past_snapshots = PastSnapshots() if _knows_past(settings.serve) else None
    secured: list[KafkaListener] = []  # in the order of the settings
    for one, advertised, security in endpoints:
        cluster = by_name.get(one.cluster, clusters[0])  # without a name there is only one
        past = _past(cluster, one.as_of, past_snapshots, may_choose=settings.serve.as_of_clients)
        secured.append(_listener(cluster, address(one.listen), advertised, limits, security, past))
        listeners[cluster.name].append(secured[-1])
    with ExitStack() as stack:  # endpoints first, so that a port in use is reported at once
        counts = stack.enter_context(past_snapshots).counts if past_snapshots else None
        served_metrics = (
            ServedMetrics(settings, clusters, listeners=listeners, past=counts) if http.listen else None
        )
        opened, endpoint = list[str](), None
        if served_metrics is None:
            stack.enter_context(forwarded(RateLimitedLog(_log)))
        else:
            is_behind_proxy = http.behind_proxy == "on"
            endpoint = HttpListener(
                *address(http.listen),
                served_metrics,
                token=token,
                behind_proxy=is_behind_proxy,
                limits=HttpLimits(connections=int(HttpLimits().connections * share)),
                tls=http_tls,
            )
            stack.enter_context(endpoint)
            scheme = "http" if http_tls is None else "https"
            opened.append(f"answering HTTP on {scheme}://{shown(Address(endpoint.host, endpoint.port))}/")
        reload = partial(_reload, secured, endpoint, settings, reread or (lambda: settings))
        asyncio.run(_serve(clusters, listeners, opened, served_metrics or nullcontext(), stack, reload, stop))


def _reload(
    listeners: Sequence[KafkaListener],
    http: HttpListener | None,
    settings: Settings,
    reread: Callable[[], Settings],
) -> None:
    """Read certificates and principals again, for new connections; unusable ones change nothing."""
    try:
        found = reread().serve
        wanted = {one.listen: one for one in found.kafka}
        named = [wanted.get(one.listen, one) for one in settings.serve.kafka]
        read = [read_security(one, found.principals) for one in named]
        http_tls = read_http_tls(found.http) if http is not None and http.tls is not None else None
    except (OffsetlakeError, OSError, ValueError) as error:
        _log.error(f"reloading certificates and principals failed, the former ones remain: {error}")
        return
    for listener, security in zip(listeners, read, strict=True):
        listener.security = security
    if http is not None and http_tls is not None:
        http.tls = http_tls
    _log.info("certificates and principals were read again, for new connections")


async def _reload_at(hung_up: asyncio.Event, reload: Callable[[], None]) -> None:
    while True:
        await hung_up.wait()
        hung_up.clear()
        await on_own_thread(reload, name="offsetlake-reload")


def _listener(
    cluster: ServedCluster,
    listening: Address,
    advertised: Address | None,
    limits: Limits,
    security: Security,
    past: Past | None,
) -> KafkaListener:
    held = cluster.settings.tables
    return KafkaListener(
        listening,
        lambda: cluster.tailer.current,
        cluster_id=cluster_id_of(whole_path(held.root)),
        within_ms=held.complete_within_ms,
        advertised=advertised,
        limits=limits,
        security=security,
        past_ends=past_ends_of(cluster.tables),
        past=past,
    )


def _knows_past(settings: ServeSettings) -> bool:
    """Return whether a Kafka listener answers about the past."""
    return any(one.as_of or settings.as_of_clients for one in settings.kafka)


def _past(
    cluster: ServedCluster, as_of: str, snapshots: PastSnapshots | None, *, may_choose: bool
) -> Past | None:
    """Return how a listener answers about the past: as of its moment, or that of its clients if they
    `may_choose`."""
    if snapshots is None or not (as_of or may_choose):
        return None
    return Past(Moments(as_of), partial(snapshots.get, cluster.tables))


def _refuse_wrong_moments(endpoints: Sequence[KafkaListenerSettings]) -> None:
    for one in endpoints:
        if one.as_of:
            fixed_moment(one.as_of, now_ms(), name=f"serve.kafka at {one.listen}: as_of")


async def _serve(
    clusters: Sequence[ServedCluster],
    listeners: Listeners,
    opened: Sequence[str],
    served_metrics: AbstractContextManager[object],
    stack: ExitStack,
    reload: Callable[[], None],
    stopped: threading.Event | None,
) -> None:
    """Open the Kafka listeners, read the tables, and respond until SIGTERM or SIGINT.

    Until the tables of a cluster were read once, its clients get the error that groups are loading. Contexts
    that must outlive the Kafka listeners are left on `stack`.
    """
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if stopped is not None and stopped.is_set():
        return
    hung_up = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up.set)
    every_listener = [listener for several in listeners.values() for listener in several]
    async with AsyncExitStack() as endpoints:
        for listener in every_listener:
            await endpoints.enter_async_context(listener)
        tailers = [cluster.tailer for cluster in clusters]
        for tailer in tailers:
            tailer.start()
        stack.callback(end_together, tailers)
        await _first_readings(tailers, stop)
        if stop.is_set():
            return
        if every_listener:
            stack.enter_context(_spared_garbage())
        stack.enter_context(served_metrics)
        for sentence in opened:
            _log.info(sentence)
        beside = [asyncio.create_task(_announce(one, listeners[one.name])) for one in clusters]
        beside += [asyncio.create_task(_collect(listener)) for listener in every_listener[:1]]
        beside.append(asyncio.create_task(_reload_at(hung_up, reload)))
        await stop.wait()
        for task in beside:
            task.cancel()


async def _first_readings(tailers: Sequence[Tailer], stop: asyncio.Event) -> None:
    """Wait until the tables of one cluster were read, and some seconds more for those of the others."""
    limit = monotonic() + _PATIENCE_S
    while not stop.is_set():
        was_read = [tailer.last_poll is not None for tailer in tailers]
        if all(was_read) or (any(was_read) and monotonic() > limit):
            return
        await asyncio.sleep(_POLL_S)


async def _announce(cluster: ServedCluster, listeners: Sequence[KafkaListener]) -> None:
    """Log that the Kafka listeners of a cluster answer, once its tables were read."""
    if cluster.tailer.last_poll is None:
        _log.warning(f"cluster {cluster.name}: reading the tables takes long, others do not wait for them")
    while cluster.tailer.last_poll is None:
        await asyncio.sleep(_POLL_S)
    named = f" for cluster {cluster.name}" if cluster.name else ""
    for listener in listeners:
        when = listener.as_of and f" as of {listener.as_of}"
        _log.info("answering Kafka's clients on %s%s%s", shown(listener.address), named, when)


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
