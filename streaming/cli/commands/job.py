"""The commands that read the topic into the tables: `run`, `rebuild` and `demo`."""

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streaming.cli.logs import logs_to
from streaming.cli.options import (
    all_of,
    broker_options,
    config_option,
    log_format_option,
    settings_of,
    source_topic_option,
    table_root_option,
)
from streaming.cli.signals import stop_on_signals
from streaming.common.times import parse_duration_ms
from streaming.model.errors import OffsetlakeError
from streaming.settings.client_names import unknown_names
from streaming.settings.exposed import exposed_secrets
from streaming.settings.model import Settings
from streaming.settings.shown import describe, shown_duration, shown_place

_log = logging.getLogger(__name__)

if TYPE_CHECKING:  # Spark is loaded only by the commands that need it
    from streaming.cli.console import LogFormat
    from streaming.job.reporter import Reporter

_job_options = all_of(
    broker_options,
    source_topic_option,
    config_option,
    table_root_option,
    click.option(
        "--checkpoint", metavar="DIR|URL", help="Spark's checkpoint.  [default: checkpoints/offsetlake]"
    ),
    click.option(
        "--master", metavar="MASTER", help="Spark's master, such as spark://host:7077.  [default: local[*]]"
    ),
    click.option("--show-settings", is_flag=True, help="Print all settings, as a settings file, and exit."),
    log_format_option,
)


@click.command()
@_job_options
@click.option(
    "--trigger", metavar="DURATION", help="How often to read new commits, such as 1s.  [default: 5s]"
)
@click.option("--once", is_flag=True, help="Read to the current end, then exit.")
def run(once: bool, **options: Any) -> None:
    """Follow the offsets topic and maintain the tables, until stopped (Ctrl-C or SIGTERM).

    Progress and messages go to standard error, alerts to standard output as lines of JSON.

    \b
      offsetlake run --bootstrap-server localhost:9092
      offsetlake run --command-config client.properties --table-root s3://lake/offsets
      offsetlake run --once          # read to the current end, then exit
      offsetlake run --master spark://spark:7077 --checkpoint s3a://lake/checkpoint --table-root s3://lake/offsets
      offsetlake run --log-format json
    """

    def follow(settings: Settings, listener: "Reporter", stop: threading.Event) -> None:
        from streaming.job.run import run_job

        run_job(settings, listener, stop, once=once)

    def how_far(settings: Settings) -> str:
        return "to its current end" if once else f"every {shown_duration(settings.job.trigger_ms)}"

    _as_job(follow, how_far, **options)


@click.command()
@_job_options
def rebuild(**options: Any) -> None:
    """Read the topic again from the beginning, correct the tables, then exit.

    `run` does this by itself when necessary. Use `rebuild` to replace a lost checkpoint, or to change the
    number of state partitions. Stop the running job first. The tables keep their history.

    \b
      offsetlake rebuild --bootstrap-server localhost:9092
    """

    def reread(settings: Settings, listener: "Reporter", stop: threading.Event) -> None:
        from streaming.job.run import rebuild_tables

        rebuild_tables(settings, listener, stop)

    _as_job(reread, lambda _: "from the beginning", **options)


def _as_job(
    act: Callable[[Settings, "Reporter", threading.Event], None],
    how_far: Callable[[Settings], str],
    *,
    config: Path | None,
    command_config: Path | None,
    show_settings: bool,
    log_format: "LogFormat",
    **options: str | None,
) -> None:
    """Run `act`, which reads the topic, with messages on the console, until it ends or a signal stops it."""
    from streaming.cli.console import Console

    stop = threading.Event()
    # first: the kernel drops signals of a first process of a container (PID 1) that has no handler
    with Console(log_format) as console, stop_on_signals(stop):
        with _failing():
            settings = settings_of(config, command_config, **options)
        if show_settings:
            print(*describe(settings), sep="\n")
            return
        where = _from_where_to(settings)
        _log.info("reading topic %s %s %s", settings.source.topic, how_far(settings), where)
        exposed = exposed_secrets(settings, config, command_config)
        for sentence in (*unknown_names(settings.source.client), *exposed):
            _log.warning(sentence)
        with _failing():
            with console.waiting("loading Spark"):
                from streaming.job.reporter import Reporter
            act(settings, Reporter(console.batch, console.write, console.waiting), stop)
        _log.info("stopped")


@contextmanager
def _failing() -> Iterator[None]:
    """Log an error as one line, and exit with its code."""
    try:
        yield
    except OffsetlakeError as error:
        _log.error(str(error))
        sys.exit(error.exit_code)


def _from_where_to(settings: Settings) -> str:
    root, checkpoint = settings.tables.root, settings.job.checkpoint
    return (
        f"from {settings.source.bootstrap_servers} into {shown_place(root)} "
        f"(checkpoint {shown_place(checkpoint)})"
    )


@click.command()
@click.option("--for", "duration", metavar="DURATION", help="Exit after this time, such as 60s.")
def demo(duration: str | None) -> None:
    """Start a local broker, real consumer groups, the job and `serve`, and show the live tables.

    \b
      offsetlake demo
      offsetlake demo --for 60s
    """
    from streaming.demo.demo import run_demo

    stop = threading.Event()
    seconds = None if duration is None else parse_duration_ms(duration, name="--for") / 1_000
    with stop_on_signals(stop), logs_to(logging.NullHandler()):  # the screen shows what goes on
        run_demo(stop, seconds)
