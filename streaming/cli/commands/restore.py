"""The command that prints the committed offsets of groups at a past moment, for a reset."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from streaming.cli.answering import AskedSnapshot, Found, Question, write_reset_csv
from streaming.cli.options import (
    Asking,
    all_of,
    asking_options,
    config_option,
    group_options,
    settings_of,
    table_options,
    topic_option,
)
from streaming.model.errors import MisuseError
from streaming.queries.reset_csv import is_one_group, member_warnings

if TYPE_CHECKING:
    import pyarrow as pa


@click.command()
@all_of(group_options, topic_option, asking_options, config_option, table_options)
def restore(
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    asking: Asking,
    table_root: str | None,
    cluster: str | None,
    config: Path | None,
) -> int:
    """Print the committed offsets of groups at a past moment, in the file format of kafka-consumer-groups.

    This command changes nothing; only Kafka's tool (2.4 or newer) does. Standard error lists three things:
    doubtful offsets, for example offsets whose records were deleted in the meantime; offsets that cannot be
    restored because no commit could be read (exit code 1); and groups with members, which the tool refuses.
    To restore, stop the consumers, then:

    \b
      kafka-consumer-groups --bootstrap-server localhost:9092 --describe --group billing --state
        (continue when #MEMBERS is 0; killed consumers remain members until their sessions time out)
      offsetlake restore --group billing --as-of 02:30 > billing.csv
      kafka-consumer-groups --bootstrap-server localhost:9092 --group billing \\
        --reset-offsets --from-file billing.csv --dry-run
      kafka-consumer-groups --bootstrap-server localhost:9092 --group billing \\
        --reset-offsets --from-file billing.csv --execute
    """
    if not groups:
        raise MisuseError("restore: expected a group, found none. Name it: --group G.")
    if not asking.has_as_of:
        raise MisuseError("restore: expected --as-of, found none. Add a time: --as-of 2h.")
    settings = settings_of(config, table_root=table_root, cluster=cluster)
    rows, found, one_group, running = Question.of(settings, asking, groups, topics).ask(_restored)
    remarks, is_whole = write_reset_csv(rows, one_group=one_group)
    return found.report([str(found.about), *remarks, *running]) or int(not is_whole)


def _restored(asked: AskedSnapshot) -> tuple["pa.Table", Found, bool, list[str]]:
    """Return positions, the state that they reflect, whether they are of one named group, and groups with
    members."""
    answer = asked.lag.restore(asked.groups, asked.topics)
    found = asked.answered(answer.rows, answer.as_of, nothing="committed offsets")
    one_group = is_one_group(asked.question.groups, asked.groups)
    return answer.rows, found, one_group, list(member_warnings(asked.at, answer.rows))
