"""The commands about offsets that will go, and offsets that went."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from streaming.cli.options import (
    answer_options,
    command_config_option,
    config_option,
    group_option,
    print_answer,
    tables_of,
    with_command_config,
)
from streaming.common.escapes import shown
from streaming.common.times import parse_duration_ms
from streaming.model.errors import MisuseError
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables


@click.command()
@group_option
@click.option("--within", metavar="DURATION", help="Only what is due by then, such as 24h.")
@click.option("--bootstrap-server", metavar="HOST:PORT[,...]", help="Brokers to ask what is at stake.")
@command_config_option
@answer_options
def expiring(
    groups: tuple[str, ...],
    within: str | None,
    output: Any,
    table_root: str | None,
    config: Path | None,
    bootstrap_server: str | None,
    command_config: Path | None,
) -> None:
    """Show which committed offsets the brokers will drop, soonest first, by which rule and when.

    A negative time_left: due, and waiting for the brokers' next check. With --bootstrap-server or
    --command-config also what is at stake: where the log starts and ends, the lag, how many records
    auto.offset.reset=earliest would read again, and how many unread ones latest would skip.

    \b
      offsetlake expiring --within 24h
      offsetlake expiring --group billing --bootstrap-server localhost:9092
    """
    from streaming.lag.log_ends import partitions_in, with_stakes
    from streaming.model.progress import now_ms
    from streaming.queries.expiring import RetentionUnknownError, list_expiring

    options = {"source.bootstrap_servers": bootstrap_server, "tables.root": table_root}
    settings, now = read_settings(config, options), now_ms()
    within_ms = None if within is None else parse_duration_ms(within, name="--within")
    tables = Tables(settings.tables.root, settings.tables.storage_options)
    try:
        listing = list_expiring(tables, groups, settings=settings.expiry, now=now, within_ms=within_ms)
    except RetentionUnknownError as error:
        advice = 'Give --config with [expiry] retention = "7d", or whatever the brokers have.'
        raise MisuseError(f"{error} {advice}") from error
    rows = listing.rows
    if bootstrap_server or command_config:
        from streaming.brokers.broker import Broker

        source = with_command_config(settings, command_config).source
        rows = with_stakes(rows, Broker(source).log_ranges(partitions_in(rows)))
    print_answer(rows, output, listing.about)
    _complain(listing)


@click.command()
@group_option
@click.option("--since", metavar="TIME", help="Only what went since then: 7d, or 2026-11-21T12:00:00Z.")
@click.option(
    "--output",
    type=click.Choice(["table", "json", "csv", "document", "reset-csv"]),
    default="table",
    show_default=True,
    help="How to print the rows; document: a JSON object with what they reflect (as_of) and rows; "
    "reset-csv: for kafka-consumer-groups --reset-offsets --from-file.",
)
@click.option("--table-root", metavar="DIR|URL", help="Where the tables are.  [default: warehouse]")
@config_option
def retired(
    groups: tuple[str, ...],
    since: str | None,
    output: Any,
    table_root: str | None,
    config: Path | None,
) -> None:
    """Show which committed offsets are gone, what they were, when they went and why.

    current_offset is what has been committed since: such an offset is not lost. reset-csv leaves it out, and
    offsets of deleted topics; it is for a group without running members, and takes Kafka 2.4 or newer.

    \b
      offsetlake retired --group billing --since 7d
      offsetlake retired --group billing --output reset-csv | tee lost.csv
      kafka-consumer-groups --bootstrap-server localhost:9092 --group billing \\
        --reset-offsets --from-file lost.csv --execute
    """
    from streaming.model.progress import now_ms
    from streaming.queries.retired import PRINTED, list_retired, parse_since

    now, tables = now_ms(), tables_of(table_root, config)
    moment = None if since is None else parse_since(since, now, name="--since")
    listing = list_retired(tables, groups, now=now, since=moment)
    if output == "reset-csv":
        sys.stdout.writelines(reset_lines(listing.rows))
    else:
        print_answer(listing.rows.select(PRINTED.names), output, listing.about)
    _complain(listing)


def reset_lines(rows: Any) -> Iterator[str]:
    """Write lines `group,topic,partition,offset` for removed offsets that can be put back.

    That is what `kafka-consumer-groups --reset-offsets --from-file` takes (Kafka 2.4 or newer;
    `ConsumerGroupCommand.parseResetPlan`). It splits at line ends: a group with one in its name is left out.
    """
    from streaming.cli.render import csv_line
    from streaming.queries.retired import restorable

    for row in restorable(rows).select(["group", "topic", "partition", "committed_offset"]).to_pylist():
        if not {"\r", "\n"} & set(row["group"]):
            yield csv_line(row.values())


def _complain(listing: Any) -> None:
    for complaint in listing.complaints():
        print(f"offsetlake: {shown(complaint)}", file=sys.stderr)
