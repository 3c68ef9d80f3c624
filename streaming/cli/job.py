"""The commands that read the topic into the tables: `run`, `rebuild`, and `demo` to see it work."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streaming.cli.options import (
    all_of,
    broker_options,
    config_option,
    settings_of,
    table_root_option,
)
from streaming.common.times import parse_duration_ms
from streaming.settings.model import Settings
from streaming.settings.shown import describe

if TYPE_CHECKING:  # Spark is loaded only by the commands that need it
    from streaming.job.listener import Listener

_job_options = all_of(
    broker_options,
    click.option("--topic", metavar="TOPIC", help="The topic to read.  [default: __consumer_offsets]"),
    config_option,
    table_root_option,
    click.option(
        "--checkpoint", metavar="DIR|URL", help="Spark's checkpoint.  [default: checkpoints/offsetlake]"
    ),
    click.option(
        "--master", metavar="MASTER", help="Spark's master, such as spark://host:7077.  [default: local[*]]"
    ),
)


@click.command()
@_job_options
@click.option(
    "--trigger", metavar="DURATION", help="How often to read new commits, such as 1s.  [default: 5s]"
)
@click.option("--once", is_flag=True, help="Read to the current end, then exit.")
def run(config: Path | None, command_config: Path | None, once: bool, **options: str | None) -> None:
    """Follow the offsets topic and maintain the tables, until stopped (Ctrl-C or SIGTERM).

    \b
      offsetlake run --bootstrap-server localhost:9092
      offsetlake run --command-config client.properties --table-root s3://lake/offsets
      offsetlake run --once          # read to the current end, then exit
      offsetlake run --master spark://spark:7077 --checkpoint s3a://lake/checkpoint
    """
    from streaming.job.run import run_job

    settings = settings_of(config, command_config, **options)
    _as_job(settings, lambda listener, stop: run_job(settings, listener, stop, once=once))


@click.command()
@_job_options
def rebuild(config: Path | None, command_config: Path | None, **options: str | None) -> None:
    """Re-read the topic from the beginning, reconcile the tables, exit.

    `run` does this by itself when it is necessary. By hand, it replaces a lost checkpoint, or changes the
    number of state partitions. Stop the running job first. The tables keep their history.

    \b
      offsetlake rebuild --bootstrap-server localhost:9092
    """
    from streaming.job.run import rebuild_tables

    settings = settings_of(config, command_config, **options)
    _as_job(settings, lambda listener, stop: rebuild_tables(settings, listener, stop))


def _as_job(settings: Settings, act: Callable[["Listener", threading.Event], None]) -> None:
    """Do something that reads the topic, on the console and until a signal says to stop."""
    from streaming.cli.console import Console
    from streaming.job.listener import Listener
    from streaming.job.run import stop_on_signals

    console, stop = Console(), threading.Event()
    for line in describe(settings):
        console.say(line)
    with stop_on_signals(stop):
        act(Listener(console.say, console.batch, console.write), stop)
    console.say("stopped")


@click.command()
@click.option("--for", "duration", metavar="DURATION", help="Exit after this time, such as 60s.")
def demo(duration: str | None) -> None:
    """Start a local broker, real consumer groups and the job, and show the live table.

    \b
      offsetlake demo
      offsetlake demo --for 60s
    """
    from streaming.demo.demo import run_demo
    from streaming.job.run import stop_on_signals

    stop = threading.Event()
    seconds = None if duration is None else parse_duration_ms(duration, name="--for") / 1_000
    with stop_on_signals(stop):
        run_demo(stop, seconds)
