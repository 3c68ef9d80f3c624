"""The commands about offsets that will expire, and offsets that were removed."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from streaming.cli.layout import forms
from streaming.cli.options import (
    answer_options,
    broker_of,
    broker_options,
    config_option,
    group_option,
    output_option,
    print_answer,
    settings_of,
    since_option,
    table_root_option,
    tables_of,
    within_option,
)
from streaming.cli.output import warn
from streaming.common.times import parse_duration_ms
from streaming.model.errors import MisuseError

if TYPE_CHECKING:
    import pyarrow as pa

    from streaming.cli.options import Output


@click.command()
@group_option
@within_option
@broker_options
@answer_options
def expiring(
    groups: tuple[str, ...],
    within: str | None,
    output: "Output",
    table_root: str | None,
    config: Path | None,
    bootstrap_server: str | None,
    command_config: Path | None,
) -> None:
    """Show which committed offsets the brokers will drop, soonest first, with the time and the rule.

    A negative time_left means due, and dropped at the brokers' next check. With --bootstrap-server or
    --command-config, also what is at stake: log start and end offsets, the lag, and how many records
    auto.offset.reset=earliest would read again and latest would skip.

    \b
      offsetlake expiring --within 24h
      offsetlake expiring --group billing --bootstrap-server localhost:9092
    """
    from streaming.common.times import now_ms
    from streaming.lag.log_ends import partitions_in, with_stakes
    from streaming.queries.expiring import RetentionUnknownError, list_expiring

    settings = settings_of(config, command_config, table_root=table_root, bootstrap_server=bootstrap_server)
    within_ms = None if within is None else parse_duration_ms(within, name="--within")
    try:
        listing = list_expiring(
            tables_of(settings), groups, settings=settings.expiry, now=now_ms(), within_ms=within_ms
        )
    except RetentionUnknownError as error:
        advice = 'Use --config with [expiry] retention = "7d", or the value of your brokers.'
        raise MisuseError(f"{error} {advice}") from error
    rows = listing.rows
    if bootstrap_server or command_config:
        rows = with_stakes(rows, broker_of(settings).log_ranges(partitions_in(rows)))
    print_answer(rows, output, forms.EXPIRING, listing.about)
    warn(listing.complaints())


@click.command()
@group_option
@since_option
@config_option
@table_root_option
@output_option("document", "reset-csv")
def retired(
    groups: tuple[str, ...],
    since: str | None,
    output: "Output | Literal['reset-csv']",
    table_root: str | None,
    config: Path | None,
) -> None:
    """Show which committed offsets were removed, when and why, with their last value.

    COMMITTED-SINCE is what has been committed since: such an offset is not lost. reset-csv contains lost
    offsets only, without those of deleted topics; it requires a group without running members, and Kafka 2.4.

    \b
      offsetlake retired --group billing --since 7d
      offsetlake retired --group billing --output reset-csv | tee lost.csv
      kafka-consumer-groups --bootstrap-server localhost:9092 --group billing \\
        --reset-offsets --from-file lost.csv --execute
    """
    from streaming.common.times import now_ms
    from streaming.queries.retired import PRINTED, list_retired, parse_since

    now, tables = now_ms(), tables_of(settings_of(config, table_root=table_root))
    moment = None if since is None else parse_since(since, now, name="--since")
    listing = list_retired(tables, groups, now=now, since=moment)
    if output == "reset-csv":
        sys.stdout.writelines(reset_lines(listing.rows))
    else:
        print_answer(listing.rows.select(PRINTED.names), output, forms.RETIRED, listing.about)
    warn(listing.complaints())


def reset_lines(rows: "pa.Table") -> Iterator[str]:
    """Write lines `group,topic,partition,offset` for removed offsets that can be put back.

    That is what `kafka-consumer-groups --reset-offsets --from-file` takes (Kafka 2.4 or newer;
    `ConsumerGroupCommand.parseResetPlan`). It splits at line ends: a group with one in its name is left out.
    """
    from streaming.cli.render import csv_line
    from streaming.queries.retired import restorable

    for row in restorable(rows).select(["group", "topic", "partition", "removed_offset"]).to_pylist():
        if not {"\r", "\n"} & set(row["group"]):
            yield csv_line(row.values()) + "\n"
