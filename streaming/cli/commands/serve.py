"""The commands that serve the tables over the network, or print the metrics once."""

import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streaming.cli.logs import Warnings, logs_to
from streaming.cli.options import (
    config_option,
    log_format_option,
    settings_of,
    table_options,
    table_root_option,
)
from streaming.cli.signals import stop_on_signals
from streaming.model.errors import MisuseError
from streaming.settings.clusters import settings_by_cluster, settings_of_cluster
from streaming.settings.exposed import exposed_secrets
from streaming.settings.kinds import HOST_AND_PORT, host_and_port
from streaming.settings.model import KafkaListenerSettings, Settings

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from streaming.cli.console import LogFormat


def _address(_context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    if text is not None and host_and_port(text) is None:
        raise MisuseError(f"--{option.name}: expected {HOST_AND_PORT}, found {text!r}.")
    return text


@click.command()
@click.option(
    "--http",
    metavar="HOST:PORT",
    callback=_address,
    help="Address of the HTTP listener: web pages at /, and /metrics, /healthz, /readyz.  "
    "[default: 127.0.0.1:8720]",
)
@click.option("--no-http", is_flag=True, help="Open no HTTP listener.")
@click.option(
    "--token-file",
    metavar="FILE",
    help="Require the token in this file from HTTP clients (Authorization: Bearer ...).",
)
@click.option(
    "--behind-proxy",
    is_flag=True,
    help="Accept HTTP from other machines also without a token, because a proxy in front restricts access.",
)
@click.option(
    "--kafka",
    metavar="HOST:PORT",
    callback=_address,
    help="Address of a listener for Kafka clients on this machine, such as 127.0.0.1:9192. Listeners for "
    "clients on other machines need [[serve.kafka]] in the settings.",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    callback=_address,
    help="Address that the Kafka listener advertises to clients.  [default: the address to which "
    "the client connected]",
)
@table_root_option
@click.option(
    "--cluster",
    metavar="NAME",
    help="A cluster of [[serve.clusters]] in the settings; the listener of --kafka serves the groups "
    "of this cluster.",
)
@config_option
@log_format_option
def serve(
    http: str | None,
    no_http: bool,
    token_file: str | None,
    behind_proxy: bool,
    kafka: str | None,
    advertise: str | None,
    table_root: str | None,
    cluster: str | None,
    config: Path | None,
    log_format: "LogFormat",
) -> None:
    """Serve the tables to browsers, Prometheus and Kafka clients, until stopped (Ctrl-C or SIGTERM).

    The command does not change the tables. Web pages are at /, metrics are at /metrics.
    kafka-consumer-groups, Admin clients and exporters get responses as from a broker, also while the brokers
    are down. The command does not need Spark or a JVM.

    \b
      offsetlake serve
      curl http://127.0.0.1:8720/metrics
      offsetlake serve --kafka 127.0.0.1:9192
      kafka-consumer-groups.sh --bootstrap-server 127.0.0.1:9192 --describe --all-groups
    """
    from streaming.cli.console import Console

    def read() -> Settings:
        settings = _with_listener(_settings(config, table_root), kafka, advertise, cluster)
        return _with_http(settings, http, no_http=no_http, token_file=token_file, behind_proxy=behind_proxy)

    stop = threading.Event()
    with stop_on_signals(stop):  # first, as of the job
        from streaming.serve.process.serving import serve as serve_listeners

        settings = read()
        with Console(log_format):
            for sentence in exposed_secrets(settings, config):
                _log.warning(sentence)
            serve_listeners(settings, reread=read, stop=stop)
            _log.info("stopped")


def _settings(config: Path | None, table_root: str | None) -> Settings:
    """Read the settings; raises `MisuseError` if `--table-root` is given, and the settings name clusters."""
    settings = settings_of(config, table_root=table_root)
    if table_root is not None and settings.serve.clusters:
        raise MisuseError(
            "--table-root: expected settings without [[serve.clusters]] beside it, found "
            f"{', '.join(one.name for one in settings.serve.clusters)}, each with a table_root. Leave one of "
            "the two out."
        )
    return settings


def _with_listener(
    settings: Settings, kafka: str | None, advertise: str | None, cluster: str | None
) -> Settings:
    """Replace the Kafka listeners in the settings by the one in the options."""
    if kafka is None:
        for name, value in (("--advertise", advertise), ("--cluster", cluster)):
            if value is not None:
                raise MisuseError(f"{name}: expected --kafka beside it, found none.")
        return settings
    if cluster is not None:
        settings_of_cluster(settings, cluster, where="--cluster")
    elif len(settings.serve.clusters) > 1:
        names = ", ".join(one.name for one in settings.serve.clusters)
        raise MisuseError(
            f"--kafka: expected --cluster beside it, because the settings name several clusters ({names}), "
            "found none. Add --cluster with the one to answer for."
        )
    listener = KafkaListenerSettings(listen=kafka, advertise=advertise or "", cluster=cluster or "")
    return replace(settings, serve=replace(settings.serve, kafka=(listener,)))


def _with_http(
    settings: Settings, listen: str | None, *, no_http: bool, token_file: str | None, behind_proxy: bool
) -> Settings:
    """Override the settings of the HTTP listener by the options."""
    if no_http:
        if listen is not None or token_file is not None or behind_proxy:
            raise MisuseError("--no-http: expected no other option about HTTP beside it, found one.")
        listen = ""
    listener = settings.serve.http
    listener = replace(
        listener,
        listen=listener.listen if listen is None else listen,
        token_file=listener.token_file if token_file is None else token_file,
        behind_proxy="on" if behind_proxy else listener.behind_proxy,
    )
    return replace(settings, serve=replace(settings.serve, http=listener))


@click.command()
@click.option("--openmetrics", is_flag=True, help="Print OpenMetrics instead of Prometheus' text format.")
@table_options
@config_option
def metrics(openmetrics: bool, table_root: str | None, cluster: str | None, config: Path | None) -> None:
    """Print the metrics of `serve` once, without counters.

    For cron, and node_exporter's textfile collector.

    \b
      offsetlake metrics > offsetlake.prom.new && mv offsetlake.prom.new offsetlake.prom
    """
    from streaming.cli.output import write_bytes
    from streaming.serve.process.metrics_source import metrics_once

    if cluster is None:
        clusters = settings_by_cluster(_settings(config, table_root))
    else:
        clusters = {cluster: settings_of(config, table_root=table_root, cluster=cluster)}
    with logs_to(Warnings()):
        pieces = metrics_once(clusters, "openmetrics" if openmetrics else "text")
    write_bytes(pieces)
