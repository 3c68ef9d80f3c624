"""Rules about lag and progress: groups that stop, stall, rewind, fall behind, or have offsets outside their
logs.

Unknown lag is not judged, and leaves open episodes open. Silence and lag count only if log ends were sampled
without a gap for a window of the rules of health (10 minutes), because after an absence of the job or the
brokers every group seems silent. Restarts of groups take less time than that.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.alerts.episodes import WARNING, Episode, Finding, Judgement
from streaming.alerts.rules.rule import AlertRule, is_recent, text
from streaming.alerts.rules.subjects import (
    BEYOND_END_RULE,
    LAG_RULE,
    RECREATED_TOPIC_RULE,
    REWOUND_RULE,
    STALLED_RULE,
    STOPPED_RULE,
    Worst,
    subject_of,
    worst_of_each_subject,
)
from streaming.alerts.rules.view import RuleContext, cannot_be_judged
from streaming.common.arrays import Index, Mask, from_mask, numbers_or, to_mask
from streaming.common.keys import KEY_NAMES
from streaming.common.timestamps import to_milliseconds
from streaming.lag.health_rules import STALLED, STATUSES, STOPPED, UNKNOWN
from streaming.lag.log_ranges import lag
from streaming.lag.rewinds import words_of

_MOST_NAMED: Final = 5  # members in a message

Facts = Callable[[Worst], Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class _Masks:
    """Masks of n positions: those with a finding, those that cannot be judged, and those because of which an
    open episode of their subject stays open."""

    is_found: Mask
    is_unknown: Mask
    lingers: Mask | None = None


_MasksOf = Callable[[RuleContext, pa.Table], _Masks]


def _selecting(rule: str, masks_of: _MasksOf) -> Callable[[RuleContext, pa.Table], Mask]:
    """Return the `of_positions` of a rule: it selects positions with a finding or that keep an open episode
    open."""

    def selected(view: RuleContext, rows: pa.Table) -> Mask:
        masks = masks_of(view, rows)
        is_selected = masks.is_found | _are_of_open_episodes(view, rule, rows, masks.is_unknown)
        if masks.lingers is not None:
            is_selected |= masks.lingers
        return is_selected & view.policies.are_on(rows, rule)

    return selected


def _are_of_open_episodes(view: RuleContext, rule: str, rows: pa.Table, some: Mask) -> Mask:
    """Return which of n positions are among `some` (n), and have the place of an open episode of a rule."""
    places = _places_of_episodes(view, rule)
    topics = pa.array({topic for _, topic, _ in places}, pa.string())
    found = some & to_mask(pc.is_in(rows["topic"], value_set=topics))
    found[found] = [
        (group, *place) in places or (None, *place) in places
        for group, *place in _keys(rows.filter(from_mask(found)))
    ]
    return found


def _judgement(
    view: RuleContext,
    rule: str,
    rows: pa.Table,
    masks: _Masks,
    *,
    order: Sequence[tuple[str, str]],
    facts: Facts,
    evidence: Callable[[Worst], str] = lambda worst: worst.source,
    keeps: Callable[[Worst, Finding], bool] = lambda *_: False,
) -> Judgement:
    """Return the result of a rule for n positions (those that it selects) and their masks.

    `keeps` returns whether an open episode keeps its finding: facts such as the lag would otherwise change
    with every new sample.
    """
    found = list(worst_of_each_subject(rows.filter(from_mask(masks.is_found)), view.policies, order=order))
    stay = rows.filter(from_mask(masks.lingers)) if masks.lingers is not None else rows.slice(0, 0)
    lingering = {worst.subject for worst in worst_of_each_subject(stay, view.policies)}
    unknown = _places(rows.filter(from_mask(masks.is_unknown)))
    is_not_judged = cannot_be_judged(view)

    def finding(worst: Worst) -> Finding:
        now = worst.finding(WARNING, {**worst.counts(), **facts(worst)}, evidence=evidence(worst))
        held = view.known.get((rule, worst.subject))
        if held is None or held.finding.severity != now.severity or not keeps(worst, held.finding):
            return now
        return held.finding

    return Judgement(
        findings=[finding(worst) for worst in found],
        stays=lambda episode: (
            is_not_judged(episode) or episode.finding.subject in lingering or _place(episode) in unknown
        ),
    )


_Place = tuple[str | None, str | None, int | None]
"""Group, topic and partition of a position; without the group: of all groups of a summary."""


def _places(rows: pa.Table) -> set[_Place]:
    """Return the places of rows, each also without the group, for summaries."""
    with_group = set(_keys(rows))
    return with_group | {(None, topic, partition) for _, topic, partition in with_group}


def _places_of_episodes(view: RuleContext, rule: str) -> set[_Place]:
    return {_place(one) for (of, _), one in view.known.items() if of == rule and one.is_open}


def _keys(rows: pa.Table) -> Iterator[_Place]:
    return zip(*(rows[name].to_pylist() for name in KEY_NAMES), strict=True)


def _place(episode: Episode) -> _Place:
    finding = episode.finding
    return (finding.group, finding.topic, finding.partition)


def _nothing_new(view: RuleContext, rule: str) -> Judgement:
    """Return the result of a rule that is off (its episodes close), or that has no new samples (they
    stay)."""
    is_on = view.policies.has_on(rule)
    return Judgement(findings=[], stays=lambda _: is_on)


# --- group_stopped and group_stalled ---------------------------------------------------------------------


def _judge_health(
    view: RuleContext,
    rule: str,
    status: int,
    facts: Facts,
    evidence: Callable[[Worst], str],
    keeps: Callable[[Worst, Finding], bool] = lambda *_: False,
) -> Judgement:
    if view.lag is None:
        return _nothing_new(view, rule)
    own = [view.lag.offsets, view.lag.uncommitted] if status == STOPPED else [view.lag.offsets]
    rows = pa.concat_tables(own)
    by_place = [("topic", "ascending"), ("partition", "ascending")]
    return _judgement(
        view,
        rule,
        rows,
        _masks_of_health(view, rows, status),
        order=[("since", "ascending"), *by_place] if status == STOPPED else by_place,
        facts=facts,
        evidence=evidence,
        keeps=keeps,
    )


def _masks_of_health(view: RuleContext, rows: pa.Table, status: int) -> _Masks:
    is_whole = to_mask(rows["is_sampled"])
    is_unknown = ~is_whole | _has_status(rows, UNKNOWN)
    if status == STOPPED:
        assert view.lag is not None
        # a position with a recent commit has not stopped, whatever else is unknown
        is_unknown &= view.lag.moment - _times(rows, "last_at") > view.lag.health.window_ms
    return _Masks(is_found=is_whole & _has_status(rows, status), is_unknown=is_unknown)


def _has_status(rows: pa.Table, status: int) -> Mask:
    return to_mask(pc.equal(rows["status"], STATUSES[status]))


def _judge_group_stopped(view: RuleContext) -> Judgement:
    """Find groups that no longer commit while records wait, or never did."""
    return _judge_health(
        view,
        STOPPED_RULE,
        STOPPED,
        _facts_of_stopped,
        lambda worst: worst.source if _is_committed(worst) else f"{_name(worst)} {worst.row['since']}",
        # without commits, the message has the number of records that waited when this was noticed
        lambda worst, held: (
            not _is_committed(worst) and "waiting" in held.facts and _name(worst) == _name_of(held)
        ),
    )


def _facts_of_stopped(worst: Worst) -> Mapping[str, Any]:
    row = worst.row
    if _is_committed(worst):
        return {"committed_offset": row["committed_offset"], "last_commit_at": text(row["last_at"])}
    start = row["log_start_offset"]
    named = [row[name] for name in ("client_id", "host") if row[name] is not None]
    return {
        "assigned_since": text(row["since"]),
        "member": "".join(named) or None,
        "waiting": None if start is None else row["log_end_offset"] - start,
    }


def _is_committed(worst: Worst) -> bool:
    return worst.row["committed_offset"] is not None


def _name(worst: Worst) -> str:
    return f"{worst.row['topic']}-{worst.row['partition']}"


def _name_of(finding: Finding) -> str:
    return f"{finding.topic}-{finding.partition}"


def _stopped_sentence(finding: Finding) -> str:
    facts = finding.facts
    if "waiting" not in facts:
        return (
            "{subject}: records are waiting without new commits for {offsets}; for the longest time for "
            "{place}, {committed_offset}, since {last_commit_at}"
        )
    member = "{member}" if facts["member"] else "a member of unknown name"
    is_known = facts["waiting"] is not None
    waiting = "{waiting} records waited" if is_known else "it was not known how many records waited"
    return (
        "{subject}: records are waiting in {partitions} without any commit: {place} has "
        f"been assigned since {{assigned_since}} or longer, now to {member}; when this was noticed {waiting}"
    )


GROUP_STOPPED: Final = AlertRule(
    id=STOPPED_RULE,
    judge=_judge_group_stopped,
    sentence=_stopped_sentence,
    of_positions=_selecting(STOPPED_RULE, partial(_masks_of_health, status=STOPPED)),
)


def _judge_group_stalled(view: RuleContext) -> Judgement:
    return _judge_health(
        view,
        STALLED_RULE,
        STALLED,
        lambda worst: {"committed_offset": worst.row["committed_offset"]},
        lambda worst: f"{_name(worst)} at {worst.row['committed_offset']}",
    )


GROUP_STALLED: Final = AlertRule(
    id=STALLED_RULE,
    judge=_judge_group_stalled,
    sentence="{subject}: records are waiting, and {offsets} are committed repeatedly without advancing, "
    "such as {place} at offset {committed_offset}",
    of_positions=_selecting(STALLED_RULE, partial(_masks_of_health, status=STALLED)),
)


# --- group_rewound ---------------------------------------------------------------------------------------


def _judge_group_rewound(view: RuleContext) -> Judgement:
    """Find groups that went back since the last evaluation.

    A later commit does not undo a rewind, so an episode closes by age. While it is open, it keeps its
    message, and later rewinds only increase its count.
    """
    return Judgement(findings=list(_rewound(view)), stays=is_recent(view))


def _rewound(view: RuleContext) -> Iterator[Finding]:
    rows = view.rewound
    is_new = [place > _last_counted(view, group) for group, place in _places_in_log(rows)]
    rows = rows.filter(from_mask(np.array(is_new, np.bool_)))
    rows = rows.append_column("back", lag(rows["offset_before"], rows["committed_offset"]))
    lasts = dict(sorted(_places_in_log(rows)))
    order = [("back", "descending"), ("topic", "ascending"), ("partition", "ascending")]
    for worst in worst_of_each_subject(rows, view.policies, order=order):
        row, members = worst.row, worst.row["members"]
        counted = {
            "offsets": worst.offsets + view.counted(REWOUND_RULE, worst.subject, "offsets"),
            **({} if worst.group is None else dict(zip(_LAST_COUNTED, lasts[worst.group], strict=True))),
        }
        held = view.known.get((REWOUND_RULE, worst.subject))
        if held is not None and held.is_open:  # keep the first rewind: later ones are only counted
            yield replace(held.finding, facts={**held.finding.facts, **counted})
            continue
        yield worst.finding(
            WARNING,
            {
                **worst.counts(),
                "committed_offset": row["committed_offset"],
                "offset_before": row["offset_before"],
                "went_back_at": text(row["committed_at"]),
                "was_empty": row["was_empty"],
                "members": None if members is None else len(members),
                "who": words_of(row["was_empty"], members, most=_MOST_NAMED),
                **counted,
            },
            evidence=f"{worst.source} {row['sequence']}",
        )


_LAST_COUNTED: Final = ("sequence", "source_offset")  # a batch may have several rewinds of a group


def _places_in_log(rows: pa.Table) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the group of each of n rows, with its sequence and source offset."""
    places = (numbers_or(rows[name], 0).tolist() for name in _LAST_COUNTED)
    return zip(rows["group"].to_pylist(), zip(*places, strict=True), strict=True)


def _last_counted(view: RuleContext, group: str) -> tuple[int, int]:
    sequence, source_offset = (view.counted(REWOUND_RULE, subject_of(group), name) for name in _LAST_COUNTED)
    return sequence, source_offset


GROUP_REWOUND: Final = AlertRule(
    id=REWOUND_RULE,
    judge=_judge_group_rewound,
    sentence="{subject}: {offsets} moved back; the furthest is {place}, from {offset_before} to "
    "{committed_offset} at {went_back_at}, {who}",
)


# --- offset_beyond_log_end -------------------------------------------------------------------------------


def _masks_of_beyond(_: RuleContext, rows: pa.Table) -> _Masks:
    return _Masks(is_found=to_mask(pc.less(rows["lag"], 0)), is_unknown=~to_mask(rows["lag"].is_valid()))


def _judge_offset_beyond_log_end(view: RuleContext) -> Judgement:
    if view.lag is None:
        return _nothing_new(view, BEYOND_END_RULE)
    rows = view.lag.offsets
    return _judgement(
        view,
        BEYOND_END_RULE,
        rows,
        _masks_of_beyond(view, rows),
        order=[("lag", "ascending"), ("topic", "ascending"), ("partition", "ascending")],
        facts=lambda worst: {
            "committed_offset": worst.row["offset_as_of_ends"],
            "log_end_offset": worst.row["log_end_offset"],
        },
        keeps=lambda *_: True,
    )


OFFSET_BEYOND_LOG_END: Final = AlertRule(
    id=BEYOND_END_RULE,
    judge=_judge_offset_beyond_log_end,
    sentence="{subject}: {offsets} are beyond the end of the log; the worst is {place} at offset "
    "{committed_offset}, where the log ended at {log_end_offset}",
    of_positions=_selecting(BEYOND_END_RULE, _masks_of_beyond),
)


# --- offset_of_recreated_topic ------------------------------------------------------------------------------


def _masks_of_recreated(view: RuleContext, rows: pa.Table) -> _Masks:
    assert view.lag is not None
    of_recreated = rows["of_recreated_topic"]
    is_of_recreated = to_mask(of_recreated)
    since = view.now - view.lag.health.window_ms
    would_start, may_come_back = _starters(rows, is_of_recreated, view.groups, since=since)
    return _Masks(
        is_found=is_of_recreated & would_start,
        is_unknown=~to_mask(of_recreated.is_valid()),
        lingers=is_of_recreated & may_come_back,
    )


def _judge_offset_of_recreated_topic(view: RuleContext) -> Judgement:
    """Find groups with members that would start at an offset of a deleted topic of the same name."""
    if view.lag is None:
        return _nothing_new(view, RECREATED_TOPIC_RULE)
    rows = view.lag.offsets
    return _judgement(
        view,
        RECREATED_TOPIC_RULE,
        rows,
        _masks_of_recreated(view, rows),
        order=[("topic", "ascending"), ("partition", "ascending")],
        facts=lambda worst: {"committed_offset": worst.row["committed_offset"]},
    )


def _starters(rows: pa.Table, is_of_recreated: Mask, groups: pa.Table, *, since: int) -> tuple[Mask, Mask]:
    """Return for n positions, where `is_of_recreated`, whether the group has members that read the topic, and
    whether the group changed since a moment (ms): restarting members will soon be back."""
    wanted = pc.unique(rows.filter(from_mask(is_of_recreated))["group"])
    groups = groups.filter(pc.is_in(groups["group"], value_set=wanted))
    columns = ["group", "members", "subscribed_topics"]
    changed_at = _times(groups, "source_timestamp").tolist()
    of_group = {
        row["group"]: (bool(row["members"]), set(row["subscribed_topics"] or ()), at >= since)
        for row, at in zip(groups.select(columns).to_pylist(), changed_at, strict=True)
    }
    starts, changed = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    numbers = np.flatnonzero(is_of_recreated)
    keys = rows.select(["group", "topic"]).filter(from_mask(is_of_recreated)).to_pylist()
    for number, key in zip(numbers, keys, strict=True):
        has_members, topics, has_changed = of_group.get(key["group"], (False, set(), False))
        starts[number] = has_members and (not topics or key["topic"] in topics)
        changed[number] = has_changed
    return starts, changed


OFFSET_OF_RECREATED_TOPIC: Final = AlertRule(
    id=RECREATED_TOPIC_RULE,
    judge=_judge_offset_of_recreated_topic,
    sentence="{subject} has members, and {offsets} of a deleted topic of the same name, such as {place} "
    "at offset {committed_offset}: its consumers would start there",
    of_positions=_selecting(RECREATED_TOPIC_RULE, _masks_of_recreated),
)


# --- lag_seconds -----------------------------------------------------------------------------------------


def _masks_of_lag_seconds(view: RuleContext, rows: pa.Table) -> _Masks:
    assert view.lag is not None
    allowed = view.policies.lag_ms(rows)
    is_behind = to_mask(pc.greater(rows["lag"], view.lag.health.min_lag))
    is_whole = to_mask(rows["is_sampled"])
    lag_ms = numbers_or(pc.multiply(rows["lag_seconds"], 1_000.0).cast(pa.int64(), safe=False), 0)
    is_unknown = ~to_mask(rows["lag"].is_valid()) | (is_behind & ~to_mask(rows["lag_seconds"].is_valid()))
    return _Masks(
        is_found=is_behind & is_whole & (lag_ms > allowed),
        is_unknown=is_unknown | ~is_whole,
        lingers=is_behind & is_whole & (lag_ms > allowed // 2),
    )


def _judge_lag_seconds(view: RuleContext) -> Judgement:
    """Find groups whose lag time exceeds their threshold, until it is below half of that."""
    if view.lag is None:
        return _nothing_new(view, LAG_RULE)
    rows = view.lag.offsets
    return _judgement(
        view,
        LAG_RULE,
        rows,
        _masks_of_lag_seconds(view, rows),
        order=[("lag_seconds", "descending"), ("topic", "ascending"), ("partition", "ascending")],
        facts=lambda worst: {
            "committed_offset": worst.row["committed_offset"],
            "lag": worst.row["lag"],
            "lag_seconds": round(worst.row["lag_seconds"]),
            "lag_is_at_least": worst.row["lag_is_at_least"],
        },
        keeps=lambda *_: True,
    )


def _lag_sentence(finding: Finding) -> str:
    least = "at least " if finding.facts["lag_is_at_least"] else ""
    return (
        "{subject} is too far behind with {offsets}; when the alert opened the furthest was {place}, "
        f"{{committed_offset}}, behind by {{lag}} records and {least}{{lag_seconds}} s"
    )


LAG_SECONDS: Final = AlertRule(
    id=LAG_RULE,
    judge=_judge_lag_seconds,
    sentence=_lag_sentence,
    of_positions=_selecting(LAG_RULE, _masks_of_lag_seconds),
)


def _times(rows: pa.Table, name: str) -> Index:
    return numbers_or(to_milliseconds(rows[name]), 0)
