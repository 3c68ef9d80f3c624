"""The command that shows the steps of committed offsets, with their lag."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streaming.cli.answering import AskedSnapshot, Found, Question, start_of_history
from streaming.cli.layout import forms
from streaming.cli.options import (
    Asking,
    Output,
    all_groups_option,
    answer_options,
    asking_options,
    group_options,
    refuse_both,
    settings_of,
    since_option,
    topic_option,
    until_option,
    words_of,
)
from streaming.cli.output import print_footer
from streaming.common.times import parse_duration_ms, to_ms
from streaming.model.errors import MisuseError

if TYPE_CHECKING:
    import pyarrow as pa

    from streaming.queries.answers import History


@click.command()
@group_options
@all_groups_option
@topic_option
@since_option
@until_option
@click.option(
    "--event",
    "events",
    multiple=True,
    metavar="E[,E]",
    help="Only these events: first, commit, rewind, removed.",
)
@click.option(
    "--every",
    metavar="DURATION",
    help="Print committed offsets and lag at regular times instead of changes, for plots. The value is the "
    "interval, such as 5m. Needs --since.",
)
@asking_options
@answer_options
def history(
    groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[str, ...],
    since: str | None,
    until: str | None,
    events: tuple[str, ...],
    every: str | None,
    asking: Asking,
    table_root: str | None,
    cluster: str | None,
    output: Output,
    config: Path | None,
) -> int:
    """Show how the committed offsets of groups changed, one line per offset and batch.

    Commits within a batch are merged; COMMITS is their number. `rewind` is a commit of an earlier offset
    in the same topic (the first commit to a recreated topic is a `commit`);
    `removed` is the removal of the offset, with its cause. LAG and LAG-TIME are the values at the time of the
    batch; they are left out if the command would read more than 10 million samples of log ends for them.
    With only --event rewind, BY shows who may have committed the earlier offset.

    \b
      offsetlake history --event rewind --since 2h
      offsetlake history billing audit --since 02:00 --until 02:34
      offsetlake history --group billing --topic orders:0 --output csv
      offsetlake history billing --since 1d --every 5m --output csv
    """
    from streaming.queries.rewound import with_by
    from streaming.tables.feed import EVENTS

    refuse_both(groups, all_groups=all_groups)
    wanted_events = words_of(events, EVENTS, name="--event")
    first, last = asking.since(since), asking.until(until)
    if first and last and last < first:
        raise MisuseError(
            f"--until: expected a time after --since {since}, found {until}, which is before it."
        )
    settings = settings_of(config, table_root=table_root, cluster=cluster)
    question = Question.of(settings, asking, groups, topics, among="history")
    if every is not None:
        if first is None or events or asking.as_of:
            raise MisuseError(
                "--every: expected --since, and neither --event nor --as-of beside it. "
                "A series has all committed offsets at regular moments from --since to --until."
            )
        every_ms = parse_duration_ms(every, name="--every")
        return _print_series(question, (first, last, every_ms), output)
    nothing = f"{' or '.join(wanted_events)} events" if wanted_events else "changes of committed offsets"
    then = " in that time" if first or last else ""
    is_about_rewinds = wanted_events == ["rewind"]

    def steps(asked: AskedSnapshot) -> tuple["History", "pa.Table", Found]:
        answer = asked.lag.list_history(
            asked.groups, asked.topics, to_ms(first), until=to_ms(last), events=wanted_events
        )
        rows = with_by(asked.lag, answer.rows) if is_about_rewinds else answer.rows
        return answer, rows, asked.answered(answer.rows, answer.as_of, nothing=nothing, when=then)

    answer, rows, found = question.ask(steps)
    found.show(rows, output, forms.REWINDS if is_about_rewinds else forms.HISTORY)
    if output == "table":
        print_footer(
            ["one line per group, topic partition and batch with a change; commits within a batch are merged"]
        )
    return found.report([*found.why_no_lag(output), *start_of_history(answer.whole_since, answer.starts_at)])


def _print_series(question: Question, times: tuple[datetime, datetime | None, int], output: Output) -> int:
    """Print committed offsets and their lag from one moment to another (None: now), at an interval in ms."""
    since, until, every_ms = times
    start = to_ms(since)

    def series(asked: AskedSnapshot) -> tuple["pa.Table", Found, list[str]]:
        answer = asked.lag.lag_over_time(
            asked.groups, asked.topics, since=start, until=asked.until(until), every_ms=every_ms
        )
        then = " at these moments"
        found = asked.answered(answer.rows, answer.as_of, nothing="committed offsets", when=then)
        return answer.rows, found, asked.start_of_history(start)

    rows, found, remarks = question.ask(series)
    found.show(rows, output, forms.SERIES)
    return found.report([*found.why_no_lag(output), *remarks])
