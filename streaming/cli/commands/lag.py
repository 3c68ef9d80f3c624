"""The commands for lag and health."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from streaming.cli.answering import AskedSnapshot, Found, Question
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
from streaming.common.times import parse_duration_ms, to_ms
from streaming.model.errors import MisuseError

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

    from streaming.settings.model import Settings

By = Literal["group", "topic"]

_FORMS: Final[dict[By, forms.Form]] = {"group": forms.LAG, "topic": forms.LAG_BY_TOPIC}
_WATCH_S: Final = 5.0


@click.command()
@group_options
@all_groups_option
@topic_option
@click.option(
    "--by",
    type=click.Choice(["group", "topic"]),
    default="group",
    show_default=True,
    help="One line per group, or per topic over all groups.",
)
@click.option(
    "--min-lag",
    type=click.IntRange(0, 2**63 - 1),
    metavar="N",
    help="Only groups or topics with a lag of at least N records.",
)
@click.option(
    "--min-time",
    metavar="DURATION",
    help="Only groups or topics with a lag time of at least this, such as 10m.",
)
@click.option("--watch", is_flag=True, help=f"Repeat every {_WATCH_S:g} s, until Ctrl-C.")
@asking_options
@answer_options
def lag(
    groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[str, ...],
    by: By,
    min_lag: int | None,
    min_time: str | None,
    watch: bool,
    asking: Asking,
    table_root: str | None,
    cluster: str | None,
    output: Output,
    config: Path | None,
) -> int:
    """Show the lag of groups or topics, one line each, the longest lag time first.

    LAG is the sum over all partitions. LAG-TIME is the age of the first unread record in the partition with
    the longest lag time, at the time of the last sample of log ends. `>=`: the actual time may be longer, or
    is unknown for some partition. SINCE: since this time, the lag of that partition has been larger than
    `[health] min_lag` in every sample; `<=`: the lag may have begun earlier.

    \b
      offsetlake lag
      offsetlake lag 'bill*' --min-time 10m --watch
      offsetlake lag --by topic --as-of 2h --output json
    """
    refuse_both(groups, all_groups=all_groups)
    if watch and (asking.as_of or output != "table"):
        raise MisuseError("--watch: expected neither --as-of nor --output beside it, found one.")
    settings = settings_of(config, table_root=table_root, cluster=cluster)
    least_ms = None if min_time is None else parse_duration_ms(min_time, name="--min-time")
    least = min_lag, None if least_ms is None else least_ms / 1_000
    ask = partial(_print_lag, groups, topics, by, least, asking, settings, output)
    if not watch:
        return ask()
    from streaming.cli.watching import watched

    return watched(ask, _WATCH_S)


def _print_lag(
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    by: By,
    least: tuple[int | None, float | None],
    asking: Asking,
    settings: "Settings",
    output: Output,
) -> int:
    from streaming.common.arrays import where
    from streaming.lag.summary import lag_by
    from streaming.queries.lag_rows import far_behind

    def answer(asked: AskedSnapshot) -> tuple["pa.Table", Found, int]:
        listed = asked.lag.list_offsets(asked.groups, asked.topics)
        found = asked.answered(listed.rows, listed.as_of, nothing="committed offsets")
        summed = lag_by(listed.rows, by)
        are_behind, may_be = far_behind(summed, min_lag=least[0], min_seconds=least[1])
        rows = asked.lag.with_since(where(summed, are_behind), by, listed.rows, listed.as_of)
        found = found.with_sampled_ends(listed.rows, asked.lag.max_age_ms)
        return rows, found, int(may_be.sum())

    rows, found, left_out = Question.of(settings, asking, groups, topics, has_assigned=True).ask(answer)
    found.show(rows, output, _FORMS[by])
    remark = f"{left_out} {by}s whose lag or lag time is not known, or only a lower bound (>=), are left out"
    return found.report([*found.why_no_lag(output), *([remark] if left_out else [])])


@click.command()
@group_options
@all_groups_option
@topic_option
@click.option(
    "--status",
    "statuses",
    multiple=True,
    metavar="S[,S]",
    help="Only groups with one of the given statuses: OK, UNKNOWN, WARNING, STOPPED, STALLED, REWOUND.",
)
@since_option
@until_option
@asking_options
@answer_options
def health(
    groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[str, ...],
    statuses: tuple[str, ...],
    since: str | None,
    until: str | None,
    asking: Asking,
    table_root: str | None,
    cluster: str | None,
    output: Output,
    config: Path | None,
) -> int:
    """Show the status of groups, the worst first, with the partition that determines the status.

    STOPPED: no commits while records are waiting. STALLED: commits do not advance while records are waiting.
    WARNING: the lag is growing. REWOUND: the group committed an earlier offset. UNKNOWN: not enough data, see
    REASON. The rules are based on Burrow's rules, and use the last commits (`[health] window`). With
    --since, the command prints the first status of each group in this time, and one line per change.

    \b
      offsetlake health --status STOPPED,STALLED
      offsetlake health billing --since -2d
      offsetlake health --as-of 02:34 --output json
    """
    from streaming.lag.health_rules import STATUSES

    refuse_both(groups, all_groups=all_groups)
    wanted = words_of(statuses, STATUSES, name="--status")
    first, last = asking.since(since), asking.until(until)
    if (first and asking.as_of) or (last and not first):
        raise MisuseError(
            "--since and --until: expected without --as-of, and the second only beside the first. "
            "--as-of is one moment."
        )
    settings = settings_of(config, table_root=table_root, cluster=cluster)
    among: Literal["history", "live"] = "history" if first else "live"
    question = Question.of(settings, asking, groups, topics, among=among, has_assigned=True)
    start = to_ms(first)
    answer = _health if start is None else partial(_health_changes, since=start, until=last)
    rows, found, remarks = question.ask(answer)
    form = forms.STATUS_CHANGES if first else forms.HEALTH
    found.show(_of_status(rows, wanted), output, form)
    return found.report([*found.why_no_lag(output), *remarks])


def _health(asked: AskedSnapshot) -> tuple["pa.Table", Found, list[str]]:
    answer = asked.lag.health(asked.groups, asked.topics)
    found = asked.answered(answer.positions, answer.as_of, nothing="committed offsets")
    return answer.rows, found.with_sampled_ends(answer.rows, asked.lag.max_age_ms), []


def _health_changes(
    asked: AskedSnapshot, *, since: int, until: "datetime | None"
) -> tuple["pa.Table", Found, list[str]]:
    until_ms = asked.until(until)
    answer = asked.lag.health_changes(asked.groups, asked.topics, since=since, until=until_ms)
    nothing, then = "committed offsets", " at these moments"
    found = asked.answered(answer.positions, answer.as_of, nothing=nothing, when=then)
    return answer.rows, found, asked.start_of_history(since)


def _of_status(rows: "pa.Table", wanted: list[str]) -> "pa.Table":
    import pyarrow.compute as pc

    from streaming.common.arrays import from_texts

    return rows.filter(pc.is_in(rows["status"], value_set=from_texts(wanted))) if wanted else rows
