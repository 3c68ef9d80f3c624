"""The commands for expiring and removed offsets."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from streaming.cli.answering import AskedSnapshot, Found, Question, recreated_topics, write_reset_csv
from streaming.cli.layout import forms
from streaming.cli.options import (
    Asking,
    Output,
    all_of,
    answer_options,
    asking_options,
    broker_of,
    broker_options,
    config_option,
    group_options,
    output_option,
    settings_of,
    since_option,
    table_options,
    topic_option,
    within_option,
)
from streaming.common.times import now_ms, parse_duration_ms, to_ms
from streaming.model.errors import MisuseError
from streaming.queries.reset_csv import MOST_NAMED, doubts, is_one_group, member_warnings

if TYPE_CHECKING:
    import pyarrow as pa

    from streaming.queries.expiring import Listing

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
    output: Output,
    table_root: str | None,
    cluster: str | None,
    config: Path | None,
    bootstrap_server: str | None,
    command_config: Path | None,
) -> int:
    """Show which committed offsets the brokers will drop, soonest first, with the time and the rule.

    If TIME-LEFT is negative, the brokers drop the offset at their next check. With --bootstrap-server or
    --command-config, the output also has log start and end offsets, the lag, and the numbers of records that
    auto.offset.reset would repeat (earliest) or skip (latest).

    \b
      offsetlake expiring --within 24h
      offsetlake expiring billing --topic 'orders*' --bootstrap-server localhost:9092
    """
    from streaming.lag.log_ranges import partitions_in, with_stakes
    from streaming.queries import expiring as expiry

    asks_brokers = bool(bootstrap_server or command_config)
    if asking.as_of and asks_brokers:
        raise MisuseError(
            "--as-of and --bootstrap-server: expected one of them, found both. Brokers only know the current "
            "log start and end offsets."
        )
    settings = settings_of(
        config, command_config, table_root=table_root, cluster=cluster, bootstrap_server=bootstrap_server
    )
    within_ms = None if within is None else parse_duration_ms(within, name="--within")
    then = f" within {within}" if within else ""

    def answer(asked: AskedSnapshot) -> tuple["Listing", Found]:
        listing = expiry.expiring(
            asked.at, asked.groups or (), asked.topics, settings=settings.expiry, within_ms=within_ms
        )
        return listing, asked.answered(listing.rows, listing.about, nothing="expiring offsets", when=then)

    try:
        listing, found = Question.of(settings, asking, groups, topics).ask(answer)
    except expiry.RetentionUnknownError as error:
        advice = 'Use --config with [expiry] retention = "7d", or the value of your brokers.'
        raise MisuseError(f"{error} {advice}") from error
    rows = listing.rows
    if asks_brokers:
        found = found.with_log_ends(now_ms())
        rows = with_stakes(rows, broker_of(settings).log_ranges(partitions_in(rows)))
    found.show(rows, output, forms.EXPIRING, with_line=False)
    return found.report([*listing.all_remarks(), *recreated_topics(rows)])


@click.command()
@asked_options
@since_option
@asking_options
@config_option
@table_options
@output_option("document", "reset-csv")
def removed(
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    since: str | None,
    asking: Asking,
    output: Output | Literal["reset-csv"],
    table_root: str | None,
    cluster: str | None,
    config: Path | None,
) -> int:
    """Show which committed offsets were removed, when and why, with their last value.

    CURRENT-OFFSET is the present committed offset of the group for the partition. An offset is lost only if
    CURRENT-OFFSET is empty. --output reset-csv prints lost offsets as a file for kafka-consumer-groups
    (2.4 or newer). The file does not contain offsets that were removed because their topic was deleted or
    recreated. Standard error lists doubtful offsets, for example offsets whose records were deleted in the
    meantime; offsets that cannot be restored because no commit could be read (exit code 1); and groups with
    members, which the tool refuses. To restore lost offsets, stop the consumers, then:

    \b
      offsetlake removed --group billing --since 7d
      kafka-consumer-groups --bootstrap-server localhost:9092 --describe --group billing --state
        (continue when #MEMBERS is 0; killed consumers remain members until their sessions time out)
      offsetlake removed billing --topic orders --output reset-csv > lost.csv
      kafka-consumer-groups --bootstrap-server localhost:9092 --group billing \\
        --reset-offsets --from-file lost.csv --dry-run
      kafka-consumer-groups --bootstrap-server localhost:9092 --group billing \\
        --reset-offsets --from-file lost.csv --execute
    """
    from streaming.queries import removed as removals

    start = to_ms(asking.since(since))
    settings = settings_of(config, table_root=table_root, cluster=cluster)
    then = " in that time" if start is not None else ""

    def answer(asked: AskedSnapshot) -> tuple["Listing", Found]:
        listing = removals.removed(asked.at, asked.groups or (), asked.topics, since=start)
        return listing, asked.answered(listing.rows, listing.about, nothing="removed offsets", when=then)

    def to_restore(asked: AskedSnapshot) -> tuple["Listing", Found, "pa.Table", bool, list[str]]:
        listing, found = answer(asked)
        lost = asked.lag.to_restore(removals.restorable(listing.rows))
        running = list(member_warnings(asked.at, lost))
        return listing, found, lost, is_one_group(groups, asked.groups), running

    question = Question.of(settings, asking, groups, topics, among="history")
    if output != "reset-csv":
        listing, found = question.ask(answer)
        found.show(listing.rows.select(removals.PRINTED.names), output, forms.REMOVED, with_line=False)
        return found.report(listing.all_remarks())
    listing, found, lost, one_group, running = question.ask(to_restore)
    of_file, is_whole = write_reset_csv(lost, one_group=one_group)
    outside = removals.without_last(listing.rows)
    remarks = [*listing.all_remarks(), *of_file, *doubts(outside, most=MOST_NAMED), *running]
    if not (len(lost) or len(outside) or found.missing):
        which = " of those that were removed in that time" if start is not None or asking.as_of else ""
        remarks.append(f"no offset{which} is lost: there is nothing to restore")
    return found.report(remarks) or int(not is_whole or len(outside) > 0)
