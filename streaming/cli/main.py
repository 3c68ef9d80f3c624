"""The `offsetlake` command: reads options, puts the parts together, prints, and turns errors into exit codes.

Exit code 0 is success, 1 failure, 2 misuse.
"""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from streaming.cli import alerts, expiry, maintain, queries
from streaming.cli.options import (
    Command,
    command_config_option,
    config_option,
    with_command_config,
)
from streaming.cli.output import complain, finish, telling, watched_output
from streaming.common.escapes import json_text
from streaming.common.times import parse_duration_ms
from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings
from streaming.settings.shown import describe

if TYPE_CHECKING:  # Spark is loaded only by the commands that need it
    from streaming.job.listener import Listener


def main() -> None:
    """Run the command; errors that a user can act on are one message without a traceback."""
    with watched_output():
        sys.exit(finish(_run_command()))


def _run_command() -> int:
    """Run the command and say what went wrong; return the exit code."""
    try:
        _refuse_other_bytes(sys.argv)
        return int(cli(prog_name="offsetlake", standalone_mode=False) or 0)
    except SystemExit as ended:
        return int(ended.code or 0)
    except click.ClickException as error:
        with telling():
            error.show()
        return error.exit_code
    except click.Abort:  # Ctrl-C
        return 130
    except BrokenPipeError:  # nobody reads on, as in `offsetlake offsets | head`
        return 0
    except OffsetlakeError as error:
        complain(error)
        return error.exit_code


def _refuse_other_bytes(arguments: list[str]) -> None:
    """Refuse arguments that are not UTF-8, which no name in Kafka is; Python keeps them as surrogates."""
    for argument in arguments:
        if not argument.isascii() and any("\ud800" <= char <= "\udfff" for char in argument):
            raise MisuseError(
                f"reading the command line: expected text in UTF-8, found {argument!r}. "
                "Check the encoding of the terminal or script."
            )


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="offsetlake")
def cli() -> None:
    """Kafka's __consumer_offsets as tables that people can query, keep and be warned by.

    \b
      offsetlake demo                                      see it work, nothing else needed
      offsetlake run --bootstrap-server localhost:9092     follow the topic into tables
      offsetlake offsets --group billing                   committed offsets of a group
      offsetlake offsets --group billing --as-of -2h       and as they were two hours ago
      offsetlake status                                    how far the job has come
    """


def _job_options(command: Command) -> Command:
    """Add the options of commands that read the topic into the tables."""
    for option in (
        command_config_option,
        config_option,
        click.option(
            "--checkpoint", metavar="DIR|URL", help="Spark's checkpoint.  [default: checkpoints/offsetlake]"
        ),
        click.option(
            "--table-root", metavar="DIR|URL", help="Where the tables are kept.  [default: warehouse]"
        ),
        click.option("--topic", metavar="TOPIC", help="The topic to read.  [default: __consumer_offsets]"),
        click.option("--bootstrap-server", metavar="HOST:PORT[,...]", help="Brokers to ask first."),
        click.option(
            "--master",
            metavar="MASTER",
            help="Spark's master, such as spark://host:7077.  [default: local[*]]",
        ),
    ):
        command = option(command)
    return command


@cli.command()
@_job_options
@click.option(
    "--trigger", metavar="DURATION", help="How often to read new commits, such as 1s.  [default: 5s]"
)
@click.option("--once", is_flag=True, help="Read to the present end of the topic and stop.")
def run(config: Path | None, command_config: Path | None, once: bool, **options: str | None) -> None:
    """Follow the offsets topic into tables until stopped (Ctrl-C or SIGTERM).

    \b
      offsetlake run --bootstrap-server localhost:9092
      offsetlake run --command-config client.properties --table-root s3://lake/offsets
      offsetlake run --once          # read to the present end and stop
      offsetlake run --master spark://spark:7077 --checkpoint s3a://lake/checkpoint
    """
    from streaming.job.run import run_job

    settings = _run_settings(config, command_config, options)
    _as_job(settings, lambda listener, stop: run_job(settings, listener, stop, once=once))


@cli.command()
@_job_options
def rebuild(config: Path | None, command_config: Path | None, **options: str | None) -> None:
    """Read the topic anew from its start and bring the tables to what that gives, then end.

    `run` does so by itself where it must. By hand it is for a lost checkpoint, or another number of state
    partitions. Stop the running job first. History is kept: what is different becomes one more step.

    \b
      offsetlake rebuild --bootstrap-server localhost:9092
    """
    from streaming.job.run import rebuild_tables

    settings = _run_settings(config, command_config, options)
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


def _run_settings(
    config: Path | None, command_config: Path | None, options: dict[str, str | None]
) -> Settings:
    names = {
        "bootstrap_server": "source.bootstrap_servers",
        "topic": "source.topic",
        "table_root": "tables.root",
        "checkpoint": "job.checkpoint",
        "trigger": "job.trigger",
        "master": "spark.master",
    }
    settings = read_settings(config, {names[name]: value for name, value in options.items()})
    return with_command_config(settings, command_config)


@cli.command()
@click.argument("file", type=click.File("r", encoding="utf-8", errors="replace"), default="-")
def decode(file: TextIO) -> None:
    """Decode records: JSON lines {"key": hex, "value": hex or null} from FILE or standard input.

    Prints a line for each: what Kafka's own message formatter prints, or {"error": {...}}.

    \b
      echo '{"key": "000100016700017400000003", "value": null}' | offsetlake decode
    """
    from streaming.cli.decode import decode_line

    for number, line in enumerate(file, start=1):
        if line.strip():
            print(json_text(decode_line(line, number), separators=(",", ":")), flush=True)


@cli.command()
@click.option("--for", "duration", metavar="DURATION", help="End by itself after this long, such as 60s.")
def demo(duration: str | None) -> None:
    """Start a real local broker, real consumer groups and the job, and show the live table.

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


for command in (
    alerts.alerts,
    maintain.maintain,
    queries.offsets,
    queries.groups,
    queries.history,
    queries.sql,
    queries.status,
):
    cli.add_command(command)
for command in (expiry.expiring, expiry.retired):
    cli.add_command(command)
