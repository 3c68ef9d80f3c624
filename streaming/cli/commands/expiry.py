"""The commands about offsets that will expire, and offsets that were removed."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from streaming.cli.layout import forms
from streaming.cli.options import (
    Asking,
    all_of,
    answer_options,
    asking_options,
    broker_of,
    broker_options,
    config_option,
    group_options,
    output_option,
    print_answer,
    settings_of,
    since_option,
    table_root_option,
    tables_of,
    tell,
    topic_option,
    topics_of,
    within_option,
)
from streaming.cli.reset_csv import groups_left_out, reset_lines
from streaming.common.times import now_ms, parse_duration_ms, to_ms
from streaming.model.errors import MisuseError

if TYPE_CHECKING:
    from streaming.cli.options import Output

asked_options = all_of(group_options, topic_option)


@click.command()
@asked_options
@within_option
@broker_options
@asking_options
@answer_options
def expiring(
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    within: str | None,
    asking: Asking,
    output: "Output",
    table_root: str | None,
    config: Path | None,
    bootstrap_server: str | None,
    command_config: Path | None,
) -> int:
    """Show which committed offsets the brokers will drop, soonest first, with the time and the rule.

    A negative time_left means due, and dropped at the brokers' next check. With --bootstrap-server or
    --command-config, also what is at stake: log start and end offsets, the lag, and how many records
    auto.offset.reset=earliest would read again and latest would skip.

    \b
      offsetlake expiring --within 24h
      offsetlake expiring billing --topic 'orders*' --bootstrap-server localhost:9092
    """
    from streaming.lag.log_ends import partitions_in, with_stakes
    from streaming.queries.expiring import RetentionUnknownError, list_expiring
    from streaming.queries.names import Search
    from streaming.queries.queries import OffsetQueries

    asks_brokers = bool(bootstrap_server or command_config)
    if asking.as_of and asks_brokers:
        raise MisuseError(
            "--as-of and --bootstrap-server: expected one of them, found both. Brokers only know the current "
            "log start and end offsets."
        )
    settings = settings_of(config, command_config, table_root=table_root, bootstrap_server=bootstrap_server)
    tables, as_of = tables_of(settings), asking.as_of
    search = Search(groups, topics_of(topics), partial(OffsetQueries(tables).names, as_of=as_of))
    try:
        listing = list_expiring(
            tables,
            search.groups or (),
            search.topics,
            settings=settings.expiry,
            now=asking.now,
            within_ms=None if within is None else parse_duration_ms(within, name="--within"),
            as_of=to_ms(as_of),
        )
    except RetentionUnknownError as error:
        advice = 'Use --config with [expiry] retention = "7d", or the value of your brokers.'
        raise MisuseError(f"{error} {advice}") from error
    about = asking.checked(listing.about, settings, search)
    errors = about.loading_of(search.groups)
    then = f" within {within}" if within else ""
    missing = search.missing(
        listing.rows, errors, nothing="expiring offsets", when=then, is_partial=about.is_partial
    )
    rows = listing.rows
    if asks_brokers:
        about = about.with_log_ends(now_ms())
        rows = with_stakes(rows, broker_of(settings).log_ranges(partitions_in(rows)))
    print_answer(rows, output, forms.EXPIRING, about, errors, missing)
    return tell(about, errors, missing, listing.all_remarks())


@click.command()
@asked_options
@since_option
@asking_options
@config_option
@table_root_option
@output_option("document", "reset-csv")
def retired(
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    since: str | None,
    asking: Asking,
    output: "Output | Literal['reset-csv']",
    table_root: str | None,
    config: Path | None,
) -> int:
    """Show which committed offsets were removed, when and why, with their last value.

    COMMITTED-SINCE is what has been committed since: such an offset is not lost. reset-csv contains lost
    offsets only, without those of deleted topics; it requires a group without running members, and Kafka 2.4.

    \b
      offsetlake retired --group billing --since 7d
      offsetlake retired billing --topic orders --output reset-csv | tee lost.csv
      kafka-consumer-groups --bootstrap-server localhost:9092 --group billing \\
        --reset-offsets --from-file lost.csv --execute
    """
    from streaming.queries.names import Search
    from streaming.queries.queries import OffsetQueries
    from streaming.queries.retired import PRINTED, list_retired, restorable

    start = to_ms(asking.since(since))
    settings = settings_of(config, table_root=table_root)
    tables, as_of = tables_of(settings), asking.as_of
    names = partial(OffsetQueries(tables).names, as_of=as_of, among="history")
    search = Search(groups, topics_of(topics), names)
    listing = list_retired(
        tables, search.groups or (), search.topics, now=asking.now, since=start, as_of=to_ms(as_of)
    )
    about = asking.checked(listing.about, settings, search)
    errors = about.loading_of(search.groups)
    then = " in that time" if start is not None else ""
    missing = search.missing(
        listing.rows, errors, nothing="removed offsets", when=then, is_partial=about.is_partial
    )
    remarks = listing.all_remarks()
    if output != "reset-csv":
        print_answer(listing.rows.select(PRINTED.names), output, forms.RETIRED, about, errors, missing)
        return tell(about, errors, missing, remarks)
    lost = restorable(listing.rows)
    sys.stdout.writelines(reset_lines(lost, "removed_offset"))
    remarks += (left_out := groups_left_out(lost))
    remarks += [] if len(lost) or missing else ["no offset is lost: there is nothing to restore"]
    return tell(about, errors, missing, remarks) or int(bool(left_out))
