"""The `offsetlake` command: reads options, puts the parts together, prints, and turns errors into exit codes.

Exit code 0 is success, 1 failure, 2 misuse.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import click

from streaming.errors import OffsetlakeError
from streaming.progress import Progress
from streaming.settings import Settings, parse_duration_ms, read_settings
from streaming.tables import Tables

Command = Callable[..., Any]


def main() -> None:
    """Run the command; errors that a user can act on are one message without a traceback."""
    try:
        sys.exit(cli(prog_name="offsetlake", standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:  # Ctrl-C
        sys.exit(130)
    except OffsetlakeError as error:
        print(f"offsetlake: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


@contextmanager
def _whose_reader_may_leave() -> Iterator[None]:
    """Let a command end quietly when nobody reads on, as in `offsetlake offsets | head`."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # for what is still buffered


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="offsetlake")
def cli() -> None:
    """Kafka's __consumer_offsets as tables that people can query, keep and be warned by.

    \b
      offsetlake demo                                      see it work, nothing else needed
      offsetlake run --bootstrap-server localhost:9092     follow the topic into tables
      offsetlake offsets --group billing                   committed offsets of a group
      offsetlake status                                    how far the job has come
    """


def _config_option(command: Command) -> Command:
    return click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Settings file; holds what differs from the defaults (conf/offsetlake.toml).",
    )(command)


def _query_options(command: Command) -> Command:
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
    return _config_option(command)


@cli.command()
@click.option("--bootstrap-server", metavar="HOST:PORT[,...]", help="Brokers to ask first.")
@click.option("--topic", metavar="TOPIC", help="The topic to read.  [default: __consumer_offsets]")
@click.option("--table-root", metavar="DIR|URL", help="Where the tables are kept.  [default: warehouse]")
@click.option(
    "--checkpoint", metavar="DIR|URL", help="Spark's checkpoint.  [default: checkpoints/offsetlake]"
)
@click.option(
    "--trigger", metavar="DURATION", help="How often to read new commits, such as 1s.  [default: 5s]"
)
@click.option("--once", is_flag=True, help="Read to the present end of the topic and stop.")
@_config_option
@click.option(
    "--command-config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Properties file with Kafka client settings, as Kafka's own tools take it (SASL, TLS).",
)
def run(config: Path | None, command_config: Path | None, once: bool, **options: str | None) -> None:
    """Follow the offsets topic into tables until stopped (Ctrl-C or SIGTERM).

    \b
      offsetlake run --bootstrap-server localhost:9092
      offsetlake run --command-config client.properties --table-root s3://lake/offsets
      offsetlake run --once          # read to the present end and stop
    """
    from streaming.console import Console
    from streaming.run import Listener, run_job, stop_on_signals

    settings = _run_settings(config, command_config, options)
    console, stop = Console(), threading.Event()
    for line in settings.describe():
        console.say(line)
    with stop_on_signals(stop):
        run_job(settings, Listener(console.say, console.batch), stop, once=once)
    console.say("stopped")


def _run_settings(
    config: Path | None, command_config: Path | None, options: dict[str, str | None]
) -> Settings:
    from streaming.client_settings import read_properties

    names = {
        "bootstrap_server": "source.bootstrap_servers",
        "topic": "source.topic",
        "table_root": "tables.root",
        "checkpoint": "job.checkpoint",
        "trigger": "job.trigger",
    }
    settings = read_settings(config, {names[name]: value for name, value in options.items()})
    if command_config is None:
        return settings
    client = {**settings.source.client, **read_properties(command_config)}
    client.pop("bootstrap.servers", None)
    return replace(settings, source=replace(settings.source, client=client))


@cli.command()
@click.option(
    "--group", "groups", multiple=True, help="Only this group; repeatable. '' is the empty group id."
)
@click.option("--topic", "topics", multiple=True, metavar="T[:0,1]", help="Only this topic; repeatable.")
@_query_options
@_whose_reader_may_leave()
def offsets(
    groups: tuple[str, ...], topics: tuple[str, ...], table_root: str | None, output: Any, config: Path | None
) -> None:
    """Show committed offsets: the newest of every group, topic and partition.

    \b
      offsetlake offsets --group billing --group audit
      offsetlake offsets --topic orders:0,1 --output json
    """
    from streaming import queries

    asked = [queries.TopicPartitions.parse(topic) for topic in topics]
    _print_answer(queries.list_offsets(_tables(table_root, config), groups, asked), output)


@cli.command()
@click.option(
    "--group", "groups", multiple=True, help="Only this group; repeatable. '' is the empty group id."
)
@_query_options
@_whose_reader_may_leave()
def groups(groups: tuple[str, ...], table_root: str | None, output: Any, config: Path | None) -> None:
    """Show groups: type, state as far as the log shows it, members and subscribed topics.

    \b
      offsetlake groups
      offsetlake groups --group billing --output json
    """
    from streaming import queries

    _print_answer(queries.list_groups(_tables(table_root, config), groups), output)


@cli.command()
@click.option("--totals", "only_totals", is_flag=True, help="Print the counters instead of the partitions.")
@_query_options
@_whose_reader_may_leave()
def status(only_totals: bool, table_root: str | None, output: Any, config: Path | None) -> None:
    """Show how far the job has come in each offsets partition, and what it counted.

    \b
      offsetlake status
      offsetlake status --totals --output json
    """
    from streaming import queries
    from streaming.progress import now_ms
    from streaming.render import print_rows

    progress, now = _tables(table_root, config).progress(), now_ms()
    if not only_totals:
        print_rows(queries.status(progress, now), output)
    if only_totals or output == "table":
        print_rows(queries.totals(progress), output)
    if output == "table":
        print(_sign_of_life(progress, now))


@cli.command()
@click.argument("file", type=click.File("r", encoding="utf-8", errors="replace"), default="-")
@_whose_reader_may_leave()
def decode(file: TextIO) -> None:
    """Decode records: JSON lines {"key": hex, "value": hex or null} from FILE or standard input.

    Prints a line for each: what Kafka's own message formatter prints, or {"error": {...}}.

    \b
      echo '{"key": "000100016700017400000003", "value": null}' | offsetlake decode
    """
    from streaming.decode_lines import decode_line

    for number, line in enumerate(file, start=1):
        if line.strip():
            print(
                json.dumps(decode_line(line, number), ensure_ascii=False, separators=(",", ":")), flush=True
            )


@cli.command()
@click.option("--for", "duration", metavar="DURATION", help="End by itself after this long, such as 60s.")
def demo(duration: str | None) -> None:
    """Start a real local broker, real consumer groups and the job, and show the live table.

    \b
      offsetlake demo
      offsetlake demo --for 60s
    """
    from streaming.demo import run_demo
    from streaming.run import stop_on_signals

    stop = threading.Event()
    seconds = None if duration is None else parse_duration_ms(duration, name="--for") / 1_000
    with stop_on_signals(stop):
        run_demo(stop, seconds)


def _tables(table_root: str | None, config: Path | None) -> Tables:
    settings = read_settings(config, {"tables.root": table_root}).tables
    return Tables(settings.root, settings.storage_options)


def _sign_of_life(progress: Progress, now: int) -> str:
    if not progress.heartbeat:
        return "the job has not written anything yet"
    return f"topic {progress.topic}; last sign of life {(now - progress.heartbeat) / 1_000:.0f} s ago"


def _print_answer(answer: Any, output: Any) -> None:
    from streaming.render import print_rows

    print_rows(answer.rows, output)
    if answer.is_loading:
        print(f"offsetlake: COORDINATOR_LOAD_IN_PROGRESS: {_loading(answer)}", file=sys.stderr)


def _loading(answer: Any) -> str:
    if not answer.progress.partitions:
        return "nothing has been read yet"
    partitions = ", ".join(map(str, answer.loading_partitions))
    return (
        f"offsets partitions {partitions} are still being read; "
        "groups in them may be missing or not up to date"
    )


if __name__ == "__main__":
    main()
