"""The command that answers over the wire."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streaming.cli.options import (
    config_option,
    log_format_option,
    settings_of,
    table_root_option,
    tables_of,
)
from streaming.model.errors import MisuseError
from streaming.settings.kinds import HOST_AND_PORT, host_and_port
from streaming.settings.model import KafkaDoor, Settings

if TYPE_CHECKING:
    from streaming.cli.console import LogFormat


def _address(_context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """Refuse what is no address."""
    if text is not None and host_and_port(text) is None:
        raise MisuseError(f"--{option.name}: expected {HOST_AND_PORT}, found {text!r}.")
    return text


@click.command()
@click.option(
    "--kafka",
    metavar="HOST:PORT",
    callback=_address,
    help="Answer Kafka's clients here, on this machine only, such as 127.0.0.1:9192.",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    callback=_address,
    help="What clients are told to connect to.  [default: what they have connected to]",
)
@table_root_option
@config_option
@log_format_option
def serve(
    kafka: str | None,
    advertise: str | None,
    table_root: str | None,
    config: Path | None,
    log_format: "LogFormat",
) -> None:
    """Answer Kafka's own clients from the tables, until stopped (Ctrl-C or SIGTERM).

    Read-only: kafka-consumer-groups, Admin clients and exporters are answered as by a broker, whatever the
    brokers do meanwhile. Needs neither Spark nor a JVM.

    \b
      offsetlake serve --kafka 127.0.0.1:9192
      kafka-consumer-groups.sh --bootstrap-server 127.0.0.1:9192 --describe --all-groups
    """
    from streaming.cli.console import Console
    from streaming.serve.process.serving import serve as serve_doors

    settings = _with_door(settings_of(config, table_root=table_root), kafka, advertise)
    console = Console(log_format)
    serve_doors(settings, tables_of(settings), console.say, console.warn)
    console.say("stopped")


def _with_door(settings: Settings, kafka: str | None, advertise: str | None) -> Settings:
    """Return the settings with the door that the options name in the place of theirs."""
    if kafka is None:
        if advertise is not None:
            raise MisuseError("--advertise: expected --kafka beside it, found none.")
        return settings
    door = KafkaDoor(listen=kafka, advertise=advertise or "")
    return replace(settings, serve=replace(settings.serve, kafka=(door,)))
