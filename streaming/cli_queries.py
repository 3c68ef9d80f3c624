"""The commands that ask the tables: no Spark, no JVM, no broker."""

import sys
from pathlib import Path
from typing import Any

import click

from streaming.cli_options import query_options, tables_of, whose_reader_may_leave
from streaming.progress import Progress
from streaming.tables import Tables, TablesMissingError


@click.command()
@click.option(
    "--group", "groups", multiple=True, help="Only this group; repeatable. '' is the empty group id."
)
@click.option("--topic", "topics", multiple=True, metavar="T[:0,1]", help="Only this topic; repeatable.")
@query_options
@whose_reader_may_leave()
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
    _print_answer(queries.list_offsets(tables_of(table_root, config), groups, asked), output)


@click.command()
@click.option(
    "--group", "groups", multiple=True, help="Only this group; repeatable. '' is the empty group id."
)
@query_options
@whose_reader_may_leave()
def groups(groups: tuple[str, ...], table_root: str | None, output: Any, config: Path | None) -> None:
    """Show groups: type, state as far as the log shows it, members and subscribed topics.

    \b
      offsetlake groups
      offsetlake groups --group billing --output json
    """
    from streaming import queries

    _print_answer(queries.list_groups(tables_of(table_root, config), groups), output)


@click.command()
@click.option("--totals", "only_totals", is_flag=True, help="Print the counters instead of the partitions.")
@query_options
@whose_reader_may_leave()
def status(only_totals: bool, table_root: str | None, output: Any, config: Path | None) -> None:
    """Show how far the job has come in each offsets partition, and what it counted.

    \b
      offsetlake status
      offsetlake status --totals --output json
    """
    from streaming import queries
    from streaming.progress import now_ms
    from streaming.render import print_rows

    tables, now = tables_of(table_root, config), now_ms()
    progress = tables.progress()
    if not only_totals:
        print_rows(queries.status(progress, now), output)
    if only_totals or output == "table":
        print_rows(queries.totals(progress), output)
    if output == "table":
        print(*_alerts(tables), _sign_of_life(progress, now), sep="\n")


def _sign_of_life(progress: Progress, now: int) -> str:
    if not progress.heartbeat:
        return "the job has not written anything yet"
    return f"topic {progress.topic}; last sign of life {(now - progress.heartbeat) / 1_000:.0f} s ago"


def _alerts(tables: Tables) -> list[str]:
    from streaming.alert_queries import describe_alerts

    try:
        return describe_alerts(tables)
    except TablesMissingError:  # an older release wrote these tables
        return []


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
