"""What the commands share: options, the tables they speak of, and a quiet end when nobody reads on."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from streaming.settings import Settings, read_settings
from streaming.tables import Tables

Command = Callable[..., Any]


@contextmanager
def whose_reader_may_leave() -> Iterator[None]:
    """Let a command end quietly when nobody reads on, as in `offsetlake offsets | head`."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # for what is still buffered


def config_option(command: Command) -> Command:
    """Add `--config`."""
    return click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Settings file; holds what differs from the defaults (conf/offsetlake.toml).",
    )(command)


def query_options(command: Command) -> Command:
    """Add `--config`, `--table-root` and `--output`."""
    command = click.option(
        "--output",
        type=click.Choice(["table", "json", "csv"]),
        default="table",
        show_default=True,
        help="How to print the rows.",
    )(command)
    command = click.option(
        "--table-root", metavar="DIR|URL", help="Where the tables are.  [default: warehouse]"
    )(command)
    return config_option(command)


def with_command_config(settings: Settings, file: Path | None) -> Settings:
    """Return the settings with those of a properties file for Kafka's clients laid over them."""
    from streaming.client_settings import read_properties

    if file is None:
        return settings
    client = {**settings.source.client, **read_properties(file)}
    client.pop("bootstrap.servers", None)
    return replace(settings, source=replace(settings.source, client=client))


def tables_of(table_root: str | None, config: Path | None) -> Tables:
    """Return the tables that the options speak of."""
    settings = read_settings(config, {"tables.root": table_root}).tables
    return Tables(settings.root, settings.storage_options)
