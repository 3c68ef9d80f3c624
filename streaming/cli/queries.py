"""The commands that ask the tables: no Spark, no JVM, and a broker only for end offsets."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streaming.cli.options import (
    Asking,
    answer_options,
    asking_options,
    broker_of,
    broker_options,
    group_option,
    one_group_option,
    print_answer,
    settings_of,
    since_option,
    tables_of,
    topic_option,
)
from streaming.cli.output import warn
from streaming.common.escapes import shown
from streaming.common.times import iso
from streaming.model.errors import MisuseError

if TYPE_CHECKING:
    import pyarrow as pa

    from streaming.cli.options import Output
    from streaming.model.progress import Progress
    from streaming.queries.answers import Answer
    from streaming.queries.completeness import AsOf
    from streaming.tables.tables import Tables

_NOT_FOR_PEOPLE = ("source_", "topic_id")
"""How the columns begin that tables for people leave out."""


@click.command()
@group_option
@click.option("--all-groups", is_flag=True, help="All groups, as without --group.")
@topic_option
@broker_options
@asking_options
@answer_options
def offsets(
    groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[str, ...],
    bootstrap_server: str | None,
    command_config: Path | None,
    asking: Asking,
    table_root: str | None,
    output: "Output",
    config: Path | None,
) -> int:
    """Show committed offsets: the newest of every group, topic and partition.

    With --bootstrap-server or --command-config, also the log end offset of each partition, and the lag.

    \b
      offsetlake offsets --group billing --group audit
      offsetlake offsets --topic orders:0,1 --output json
      offsetlake offsets --group billing --bootstrap-server localhost:9092
      offsetlake offsets --group billing --as-of -2h
    """
    from streaming.queries import queries

    if groups and all_groups:
        raise MisuseError("--group and --all-groups: expected one of them, found both. Leave one out.")
    if asking.as_of and (bootstrap_server or command_config):
        raise MisuseError(
            "--as-of and --bootstrap-server: expected one of them, found both. Brokers only know the current "
            "log end offsets."
        )
    asked = [queries.TopicPartitions.parse(topic, name="--topic") for topic in topics]
    client = queries.OffsetQueries(tables_of(settings_of(config, table_root=table_root)))
    answer = client.list_offsets(groups or None, asked, asking.as_of)
    asking.check(answer.as_of)
    rows = _with_ends(answer.rows, bootstrap_server, command_config, config)
    _print_rows(_for_people(rows) if output == "table" else rows, output, answer)
    return _tell_errors(answer)


@click.command()
@group_option
@click.option("--list", "only_names", is_flag=True, help="Print only the names, one per line.")
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="S[,S]",
    help="Only groups in these states, such as Stable,Empty.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="T[,T]",
    help="Only groups of these types: classic, consumer, ...",
)
@asking_options
@answer_options
def groups(
    groups: tuple[str, ...],
    only_names: bool,
    states: tuple[str, ...],
    types: tuple[str, ...],
    asking: Asking,
    table_root: str | None,
    output: "Output",
    config: Path | None,
) -> int:
    """Show groups: type, state as far as the log shows it, members and subscribed topics.

    \b
      offsetlake groups --list
      offsetlake groups --state Stable,Empty --type consumer
      offsetlake groups --group billing --output json
      offsetlake groups --as-of 2026-11-20T14:03:00Z
    """
    from streaming.queries import queries

    if groups and (states or types):
        raise MisuseError(
            "--group: expected no --state or --type beside it, found one. "
            "Named groups are shown whatever their state and type."
        )
    client = queries.OffsetQueries(tables_of(settings_of(config, table_root=table_root)))
    if groups:
        answer: Answer = client.describe_groups(groups, asking.as_of)
    else:
        answer = client.list_groups(_split(states), _split(types), asking.as_of)
    asking.check(answer.as_of)
    if only_names and output == "table":
        _print_names(answer)
        return _tell_errors(answer)
    rows = answer.rows.select(["group"]) if only_names else answer.rows
    _print_rows(_for_people(rows) if output == "table" else rows, output, answer)
    return _tell_errors(answer)


@click.command()
@one_group_option
@topic_option
@since_option
@asking_options
@answer_options
def history(
    group: str,
    topics: tuple[str, ...],
    since: str | None,
    asking: Asking,
    table_root: str | None,
    output: "Output",
    config: Path | None,
) -> int:
    """Show how a group's positions moved, one line per batch.

    Commits within a batch are merged. `rewind` is a step back; `retired` is the removal of the offset, with
    its cause.

    \b
      offsetlake history --group billing --since -2h
      offsetlake history --group billing --topic orders:0 --output csv
    """
    from streaming.queries import queries

    asked = [queries.TopicPartitions.parse(topic, name="--topic") for topic in topics]
    client = queries.OffsetQueries(tables_of(settings_of(config, table_root=table_root)))
    answer = client.list_history(group, asked, asking.moment("--since", since), asking.as_of)
    asking.check(answer.as_of)
    _print_rows(answer.rows, output, answer)
    if output == "table":
        print("one line per batch that moved a position; commits within a batch are merged")
    if answer.whole_since is not None:
        warn([f"before {iso(answer.whole_since)} only the removal of offsets is kept ([tables] history)"])
    return _tell_errors(answer)


@click.command()
@click.argument("query")
@asking_options
@answer_options
def sql(query: str, asking: Asking, table_root: str | None, output: "Output", config: Path | None) -> None:
    """Run one SQL query over offsets, groups, changes, quarantine, alerts, live_offsets and live_groups.

    Read-only: SELECT, SHOW TABLES and DESCRIBE. `offsets` and `groups` are as of the last fold,
    `live_offsets` and `live_groups` as of the last batch, or of --as-of. Quote "group" and "partition": they
    are SQL keywords.

    \b
      offsetlake sql 'SELECT "group", sum(committed_offset) AS total FROM live_offsets GROUP BY "group"'
      offsetlake sql 'SELECT state, count(*) AS n FROM live_groups GROUP BY state' --output json
      offsetlake sql 'DESCRIBE live_offsets'
    """
    from streaming.queries.sql import run_sql

    answer = run_sql(tables_of(settings_of(config, table_root=table_root)), query, asking.as_of)
    asking.check(answer.as_of)
    print_answer(answer.rows, output, answer.as_of)
    if output == "table":
        print(answer.as_of)
    warn(answer.as_of.complaints())


@click.command()
@click.option("--totals", "only_totals", is_flag=True, help="Print the counters instead of the partitions.")
@asking_options
@answer_options
def status(
    only_totals: bool, asking: Asking, table_root: str | None, output: "Output", config: Path | None
) -> None:
    """Show how far the job has read each offsets partition, and its counters.

    \b
      offsetlake status
      offsetlake status --totals --output json
      offsetlake status --max-age 30s --require-complete     # health check: exit code 1 if unhealthy
    """
    from streaming.queries import status
    from streaming.queries.queries import OffsetQueries

    if only_totals and asking.as_of:
        raise MisuseError("--totals and --as-of: expected one of them, found both. Past totals are not kept.")
    tables = tables_of(settings_of(config, table_root=table_root))
    about = OffsetQueries(tables).how_complete(asking.as_of)
    asking.check(about)
    if not only_totals:
        print_answer(status.partitions(about.progress, about.moment), output, about)
    if only_totals or (output == "table" and not asking.as_of):
        print_answer(status.totals(about.progress), output, about)
    if output == "table":
        alerts = [] if asking.as_of else _alerts(tables)
        print(*map(shown, [*alerts, *_rebuild(about.progress), _last_heartbeat(about)]), sep="\n")


def _rebuild(progress: "Progress") -> list[str]:
    rebuild = progress.rebuild
    return [f"being rebuilt since {iso(rebuild.since)}, because {rebuild.reason}"] if rebuild else []


def _last_heartbeat(about: "AsOf") -> str:
    if not about.progress.heartbeat:
        return "no data recorded yet"
    if about.gap is not None:
        return f"topic {about.progress.topic}; {about.gap}"
    return f"topic {about.progress.topic}; last heartbeat {about.age_ms / 1_000:.0f} s ago"


def _alerts(tables: "Tables") -> list[str]:
    from streaming.alerts.listing import describe_alerts
    from streaming.tables.tables import TablesMissingError

    try:
        return describe_alerts(tables)
    except TablesMissingError:  # an older release wrote these tables
        return []


def _split(words: Sequence[str]) -> list[str]:
    return [word for each in words for word in each.split(",")]


def _with_ends(
    rows: "pa.Table", bootstrap_server: str | None, command_config: Path | None, config: Path | None
) -> "pa.Table":
    """Add how far each topic partition reaches, and the lag; unknown without a broker."""
    from streaming.lag.log_ends import partitions_in, with_log_ends

    if not bootstrap_server and not command_config:
        return with_log_ends(rows, {})
    settings = settings_of(config, command_config, bootstrap_server=bootstrap_server)
    ranges = broker_of(settings).log_ranges(partitions_in(rows))
    return with_log_ends(rows, {partition: log.latest for partition, log in ranges.items()})


def _for_people(rows: "pa.Table") -> "pa.Table":
    return rows.select([name for name in rows.column_names if not name.startswith(_NOT_FOR_PEOPLE)])


def _print_rows(rows: "pa.Table", output: "Output", answer: "Answer") -> None:
    """Print rows of an answer: in a table for people under Kafka's titles, and with what they reflect."""
    from streaming.cli.render import with_kafka_titles

    named = with_kafka_titles(rows) if output == "table" else rows
    print_answer(named, output, answer.as_of, answer.errors)
    if output == "table":
        print(answer.as_of)


def _print_names(answer: "Answer") -> None:
    """Print the names of groups as `kafka-consumer-groups --list` does; what they reflect is said aside."""
    for group in answer.rows["group"].to_pylist():
        print(shown(group))
    print(answer.as_of, file=sys.stderr)


def _tell_errors(answer: "Answer") -> int:
    """Say on standard error what is missing from an answer; return the exit code."""
    warn(answer.as_of.complaints())
    warn(f"group {group!r}: {error}" for group, error in answer.errors.items())
    return 1 if answer.errors or answer.as_of.is_loading else 0
