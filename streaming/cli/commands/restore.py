"""The command that prints where groups were, to put them back."""

import sys
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from streaming.cli.options import (
    Asking,
    all_of,
    asking_options,
    config_option,
    group_options,
    settings_of,
    table_root_option,
    tables_of,
    tell,
    topic_option,
    topics_of,
)
from streaming.cli.reset_csv import groups_left_out, reset_lines
from streaming.model.errors import MisuseError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

_MOST_NAMED: Final = 5  # partitions in a warning


@click.command()
@all_of(group_options, topic_option, asking_options, config_option, table_root_option)
def restore(
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    asking: Asking,
    table_root: str | None,
    config: Path | None,
) -> int:
    """Print where groups were at a past moment, in the format of kafka-consumer-groups --from-file.

    What the log has lost since is said on standard error: its start has passed the offset, or the topic was
    made anew. Nothing is put back: that takes Kafka's tool (2.4), and a group without running members.

    \b
      offsetlake restore --group billing --as-of 02:30 | tee billing.csv
      offsetlake restore billing --topic 'orders*' --as-of -2h > billing.csv
      kafka-consumer-groups --bootstrap-server localhost:9092 --group billing \\
        --reset-offsets --from-file billing.csv --dry-run
    """
    from streaming.queries.lag import LagQueries
    from streaming.queries.names import Search
    from streaming.queries.queries import OffsetQueries

    if not groups:
        raise MisuseError("restore: expected a group, found none. Name it: --group G.")
    if asking.as_of is None:
        raise MisuseError("restore: expected --as-of, found none. Say as of when: --as-of -2h.")
    settings = settings_of(config, table_root=table_root)
    tables = tables_of(settings)
    search = Search(groups, topics_of(topics), partial(OffsetQueries(tables).names, as_of=asking.as_of))
    answer = LagQueries(tables).restore(search.groups, search.topics, as_of=asking.as_of)
    about = asking.checked(answer.as_of, settings, search)
    missing = search.missing(
        answer.rows, answer.errors, nothing="readable offsets", is_partial=about.is_partial
    )
    sys.stdout.writelines(reset_lines(answer.rows, "committed_offset"))
    left_out = groups_left_out(answer.rows)
    remarks = [str(about).replace("\n", "; "), *_warnings(answer.rows), *left_out]
    return tell(about, answer.errors, missing, remarks) or int(bool(left_out))


def _warnings(positions: "pa.Table") -> "Iterator[str]":
    """Say which positions of each group and topic are not what they were, and why."""
    rows = [row for row in positions.to_pylist() if row["warning"] is not None]
    by = itemgetter("group", "topic", "warning")
    for (group, topic, warning), of_them in groupby(sorted(rows, key=by), by):
        places = [f"{topic}:{row['partition']}, offset {row['committed_offset']}" for row in of_them]
        more = f"; and {len(places) - _MOST_NAMED} more" if len(places) > _MOST_NAMED else ""
        yield f"group {group!r}: {'; '.join(places[:_MOST_NAMED])}{more}: {warning}"
