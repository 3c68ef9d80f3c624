"""The commands that query the tables: without Spark or a JVM; a broker is only needed for current log
ends."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from streaming.cli.answering import AskedSnapshot, Found, Question, recreated_topics
from streaming.cli.layout import forms
from streaming.cli.options import (
    Asking,
    Output,
    all_groups_option,
    answer_options,
    asking_options,
    broker_of,
    broker_options,
    group_options,
    print_answer,
    refuse_both,
    settings_of,
    tables_of,
    topic_option,
    words_of,
)
from streaming.cli.output import for_programs, print_footer, warn
from streaming.common.escapes import printable, shown
from streaming.common.times import in_words, iso, now_ms
from streaming.model.errors import MisuseError

if TYPE_CHECKING:
    import pyarrow as pa

    from streaming.model.progress import Progress
    from streaming.queries.answers import Answer, DescribedGroups
    from streaming.queries.as_of import AsOf
    from streaming.settings.model import Settings
    from streaming.tables.tables import Tables


@click.command()
@group_options
@all_groups_option
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
    cluster: str | None,
    output: Output,
    config: Path | None,
) -> int:
    """Show committed offsets, one line per group, topic and partition.

    CURRENT-OFFSET is `-` if a member owns the partition and the group has not committed an offset.
    The job reads log end offsets every 10 s (a sample). CURRENT-OFFSET, LOG-END-OFFSET, LAG and LAG-TIME are
    the values at the last sample; `>=`: the lag began before the first sample, or in a gap between samples.
    With --bootstrap-server or --command-config, the command requests the current log end offsets from the
    brokers. CONSUMER-ID, HOST and CLIENT-ID belong to the member that owns the partition. The exit code is 1
    if a named group or topic does not exist.

    \b
      offsetlake offsets billing audit
      offsetlake offsets --group 'bill*' --topic orders:0,1 --output json
      offsetlake offsets --group billing --bootstrap-server localhost:9092
      offsetlake offsets --group billing --as-of 2h
    """
    refuse_both(groups, all_groups=all_groups)
    if asking.as_of and (bootstrap_server or command_config):
        raise MisuseError(
            "--as-of and --bootstrap-server: expected one of them, found both. Brokers only know the current "
            "log end offsets."
        )
    settings = settings_of(
        config, command_config, table_root=table_root, cluster=cluster, bootstrap_server=bootstrap_server
    )
    asks_brokers = bool(bootstrap_server or command_config)

    def answer(asked: AskedSnapshot) -> tuple["pa.Table", Found, list[str]]:
        listed = asked.lag.list_offsets(asked.groups, asked.topics, with_former=True, with_owners=True)
        found = asked.answered(listed.rows, listed.as_of, nothing="committed offsets")
        if not asks_brokers:
            found = found.with_sampled_ends(listed.rows, asked.lag.max_age_ms)
        named = asked.groups if output == "table" else None
        about_members = _member_messages(asked.offsets.describe_groups(named)) if named else []
        return listed.rows, found, about_members

    rows, found, about_members = Question.of(settings, asking, groups, topics, has_assigned=True).ask(answer)
    if asks_brokers:
        found = found.with_log_ends(now := now_ms())
        found.show(_with_live_ends(rows, settings, now), output, forms.OFFSETS_WITH_ENDS)
    else:
        found.show(rows, output, forms.OFFSETS)
    _print_messages(about_members)
    return found.report(recreated_topics(rows))


@click.command()
@group_options
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
@click.option("--members", "by_member", is_flag=True, help="Print the members, one per line.")
@click.option(
    "--verbose", is_flag=True, help="With --members: also print the current and target assignments."
)
@asking_options
@answer_options
def groups(
    groups: tuple[str, ...],
    only_names: bool,
    states: tuple[str, ...],
    types: tuple[str, ...],
    by_member: bool,
    verbose: bool,
    asking: Asking,
    table_root: str | None,
    cluster: str | None,
    output: Output,
    config: Path | None,
) -> int:
    """Show groups: type, state (as logged by the brokers), members and subscribed topics.

    \b
      offsetlake groups --list
      offsetlake groups --state Stable,Empty --type consumer
      offsetlake groups billing --output json
      offsetlake groups billing --members --verbose
      offsetlake groups --as-of 2026-11-20T14:03:00Z
    """
    from streaming.queries.answers import LOGGED_STATES, STATES, TYPES, DescribedGroups
    from streaming.queries.bound.offsets import comparable_state
    from streaming.queries.members import in_words, with_identities

    if groups and (states or types):
        raise MisuseError(
            "--group: expected no --state or --type beside it, found one. "
            "Named groups are shown whatever their state and type."
        )
    if verbose and not by_member:
        raise MisuseError("--verbose: expected --members beside it, found none.")
    if by_member and (only_names or states or types):
        raise MisuseError("--members: expected no --list, --state or --type beside it, found one.")
    wanted_states = words_of(states, STATES, name="--state", comparable=comparable_state)
    wanted_types = words_of(types, TYPES, name="--type")
    settings = settings_of(config, table_root=table_root, cluster=cluster)

    def ask(asked: AskedSnapshot) -> tuple["Answer", "pa.Table | None", Found]:
        answer: Answer
        if asked.groups is not None:
            answer = asked.offsets.describe_groups(asked.groups)
        else:
            answer = asked.offsets.list_groups(wanted_states, wanted_types)
        found = asked.answered(answer.rows, answer.as_of, nothing="state or members")
        members = asked.offsets.list_members(asked.groups).rows if by_member else None
        return answer, members, found

    answer, members, found = Question.of(settings, asking, groups, among="groups").ask(ask)
    remarks = [f"brokers do not log the state {name}" for name in wanted_states if name not in LOGGED_STATES]
    if only_names and output == "table":
        _print_names(answer, found.about)
    elif members is not None:
        form = forms.MEMBERS_VERBOSE if verbose else forms.MEMBERS
        rows = in_words(members, verbose=verbose) if output == "table" else members
        found.show(rows, output, form, errors=answer.errors)
        if output == "table" and isinstance(answer, DescribedGroups):
            _print_messages(_member_messages(answer))
    else:
        rows = answer.rows.select(["group"]) if only_names else with_identities(answer.rows)
        found.show(rows, output, forms.GROUPS, errors=answer.errors)
    return found.report(remarks)


@click.command()
@click.argument("query")
@asking_options
@answer_options
def sql(
    query: str,
    asking: Asking,
    table_root: str | None,
    cluster: str | None,
    output: Output,
    config: Path | None,
) -> None:
    """Run one SQL query over the tables, and over live_offsets, live_groups, lag and health.

    Read-only: SELECT, SHOW TABLES and DESCRIBE. `live_offsets`, `live_groups`, `lag` and `health` contain all
    changes that the job has written, or the state at the time of --as-of. The tables `offsets` and `groups`
    lack the newest changes, which the job adds every 30 s. Quote the names "group" and "partition", because
    they are SQL keywords.

    \b
      offsetlake sql 'SELECT "group", sum(committed_offset) AS total FROM live_offsets GROUP BY "group"'
      offsetlake sql 'SELECT state, count(*) AS n FROM live_groups GROUP BY state' --output json
      offsetlake sql 'SELECT * FROM lag WHERE lag_seconds > 600'
      offsetlake sql 'DESCRIBE lag'
    """
    from streaming.cli.own_process import bounded
    from streaming.queries.sql import run_sql

    settings = settings_of(config, table_root=table_root, cluster=cluster)
    answer = run_sql(tables_of(settings), query, asking.as_of, health=settings.health, bounded=bounded)
    about = asking.checked(answer.as_of)
    print_answer(answer.rows, output, forms.SQL, about)
    if output == "table":
        print_footer([about])
    warn(about.caveats())


@click.command()
@click.option("--totals", "only_totals", is_flag=True, help="Print the counters instead of the partitions.")
@asking_options
@answer_options
def status(
    only_totals: bool,
    asking: Asking,
    table_root: str | None,
    cluster: str | None,
    output: Output,
    config: Path | None,
) -> None:
    """Show how far the job has read each offsets partition, and the counters of the job.

    \b
      offsetlake status
      offsetlake status --totals --output json
      offsetlake status --max-age 30s --require-complete     # health check: exit code 1 if unhealthy
    """
    from streaming.queries import status

    if only_totals and asking.as_of:
        raise MisuseError("--totals and --as-of: expected one of them, found both. Past totals are not kept.")
    settings = settings_of(config, table_root=table_root, cluster=cluster)
    with_alerts = output == "table" and not asking.as_of

    def answer(asked: AskedSnapshot) -> tuple["AsOf", list[str]]:
        about = asked.checked(asked.offsets.how_complete())
        return about, _alerts(tables_of(settings), about) if with_alerts else []

    about, alerts = Question.of(settings, asking).ask(answer)
    if not only_totals:
        print_answer(status.partitions(about), output, forms.STATUS, about)
    if only_totals or (output == "table" and not asking.as_of):
        if not only_totals:
            print()
        print_answer(status.totals(about.progress), output, forms.TOTALS, about)
    if output == "table":
        print(*map(shown, [*alerts, *_rebuild(about.progress), _last_heartbeat(about)]), sep="\n")
    warn(about.silence())


def _rebuild(progress: "Progress") -> list[str]:
    rebuild = progress.rebuild
    return [f"being rebuilt since {iso(rebuild.since)}, because {rebuild.reason}"] if rebuild else []


def _last_heartbeat(about: "AsOf") -> str:
    if not about.progress.heartbeat:
        return "no data recorded yet"
    if about.gap is not None:
        return f"topic {about.progress.topic}; {about.gap}"
    states = "; states: last known" if about.is_last_known else ""
    return f"topic {about.progress.topic}; last heartbeat {in_words(about.age_ms)} ago{states}"


def _alerts(tables: "Tables", about: "AsOf") -> list[str]:
    from streaming.alerts.listing import describe_alerts, describe_evaluation
    from streaming.tables.tables import TablesMissingError

    now = about.progress.heartbeat + about.age_ms
    try:
        return [*describe_alerts(tables), describe_evaluation(about.progress, now)]
    except TablesMissingError:  # not created yet
        return []


def _with_live_ends(rows: "pa.Table", brokers: "Settings", now: int) -> "pa.Table":
    """Replace sampled log ends and lag by the current ones from the brokers."""
    from streaming.lag.log_ranges import LAG, partitions_in, with_log_ends

    ranges = broker_of(brokers).log_ranges(partitions_in(rows))
    ends = {partition: log.latest for partition, log in ranges.items()}
    return with_log_ends(rows.drop_columns(LAG.names), ends, now)


def _print_names(answer: "Answer", about: "AsOf") -> None:
    """Print group names as `kafka-consumer-groups --list` does; the state that they reflect goes to standard
    error.

    On a terminal, names with invisible characters are quoted.
    """
    is_seen = sys.stdout.isatty()
    if not is_seen:
        for_programs(sys.stdout)
    for group in answer.rows["group"].to_pylist():
        print(printable(group) if is_seen else shown(group))
    print_footer([about])


_REBALANCING: Final = "Warning: {type} group '{group}' is rebalancing."
_MEMBERS: Final = {
    "Empty": "{type} group '{group}' has no active members.",
    "Assigning": _REBALANCING,
    "Reconciling": _REBALANCING,
}
"""Messages for group states (Kafka 4.3: `ConsumerGroupCommand.shouldPrintMemberState`)."""


def _member_messages(described: "DescribedGroups") -> list[str]:
    """Return which of the named groups have no members or are rebalancing, in the words of Kafka's tools."""
    lines = []
    for group in described.groups.values():
        if sentence := _MEMBERS.get(group.state):
            kind = "Consumer" if group.type == "classic" else str(group.type).capitalize()
            lines.append(sentence.format(type=kind, group=group.group))
    return lines


def _print_messages(sentences: list[str]) -> None:
    for sentence in sentences:
        print(shown(sentence), file=sys.stderr)
