"""The command for left-over offsets."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from streaming.cli.answering import AskedSnapshot, Found, Question
from streaming.cli.layout import forms
from streaming.cli.options import (
    Asking,
    Output,
    answer_options,
    asking_options,
    broker_options,
    group_options,
    refuse_output_options,
    settings_of,
    topic_option,
)
from streaming.cli.output import write_for_programs
from streaming.common.times import parse_duration_ms
from streaming.model.errors import MisuseError
from streaming.settings.clusters import brokers_to_fill_in

if TYPE_CHECKING:
    from streaming.queries.expiring import Listing


@click.command()
@group_options
@topic_option
@click.option(
    "--idle",
    default="14d",
    show_default=True,
    metavar="DURATION",
    help="Reason `no members, no commits`: only if the group has not committed or changed for this time.",
)
@click.option(
    "--commands",
    "as_commands",
    is_flag=True,
    help="Print shell commands that remove the offsets (kafka-consumer-groups), instead of a table.",
)
@broker_options
@asking_options
@answer_options
def leftovers(
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    idle: str,
    as_commands: bool,
    bootstrap_server: str | None,
    command_config: Path | None,
    asking: Asking,
    table_root: str | None,
    cluster: str | None,
    output: Output,
    config: Path | None,
) -> int:
    """Show left-over committed offsets, one line per group and topic.

    REASON: the group has no members, and no commits since IDLE-SINCE; the topic was deleted, or recreated
    after the commits; or the group has members, and no member subscribes to the topic any more. EXPIRES-AT:
    the time at which the brokers drop the first of the offsets by themselves. This command changes nothing.
    --commands prints lines for Kafka's tool: run --describe first, check the output, then delete.
    --bootstrap-server and --command-config are for these lines; this command requests nothing from brokers.

    \b
      offsetlake leftovers
      offsetlake leftovers 'test-*' --idle 30d --output json
      offsetlake leftovers billing --commands --command-config admin.properties
    """
    from streaming.queries.bound.leftovers import leftovers as left_over
    from streaming.queries.leftovers import each_partition
    from streaming.queries.removal_lines import removal_lines

    given = {"--bootstrap-server": bootstrap_server, "--command-config": command_config}
    if not as_commands and (alone := [name for name, value in given.items() if value is not None]):
        raise MisuseError(
            f"{alone[0]}: expected --commands beside it, found none. It is for the lines of --commands."
        )
    if as_commands:
        refuse_output_options("--commands", output)
        if asking.as_of:
            raise MisuseError("--commands: expected no --as-of beside it, found one. Lines are about now.")
    idle_ms = parse_duration_ms(idle, name="--idle")
    settings = settings_of(config, table_root=table_root, cluster=cluster, bootstrap_server=bootstrap_server)

    def answer(asked: AskedSnapshot) -> tuple["Listing", Found]:
        listing = left_over(
            asked.at, asked.groups or (), asked.topics, settings=settings.expiry, idle_ms=idle_ms
        )
        keys = each_partition(listing.rows)
        return listing, asked.answered(keys, listing.about, nothing="left-over offsets")

    listing, found = Question.of(settings, asking, groups, topics).ask(answer)
    if not as_commands:
        found.show(listing.rows, output, forms.LEFTOVERS)
        return found.report(listing.all_remarks())
    removal = removal_lines(
        listing.rows,
        bootstrap_servers=settings.source.bootstrap_servers,
        command_config=None if command_config is None else str(command_config),
        complete=listing.about.completeness.complete,
        are_whole_groups=not topics,
    )
    write_for_programs(f"{line}\n" for line in removal.lines)
    remarks = [str(listing.about), *removal.remarks()]
    if cluster is not None and bootstrap_server is None and removal.lines:
        remarks.append(
            f"replace {brokers_to_fill_in(cluster)} in the lines, or add --bootstrap-server: "
            "the settings do not contain the brokers of this cluster"
        )
    code = found.report(remarks)
    return code or int(bool(removal.refused or removal.left_out))
