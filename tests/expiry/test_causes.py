"""Causes: each verdict needs its evidence, and without it the answer is `unknown`."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.expiry.causes import (
    CAUSES,
    CLOCK_TOLERANCE_MS,
    LARGE_CHECK,
    RECENT_MS,
    Evidence,
    undecided,
    with_causes,
    with_causes_of_absence,
    without_evidence,
)
from streaming.job.change_over import differences
from streaming.model.progress import Retention
from streaming.model.schemas import CHANGES_IN_BATCH, GROUPS, OFFSETS
from streaming.state.changes import HIDDEN, TOMBSTONED, TOMBSTONED_AFTER_CHANGE
from streaming.tables.rows import change_rows

DAY, MINUTE = 86_400_000, 60_000
T0 = 1_700_000_000_000
DUE = T0 + 7 * DAY  # of what was committed at T0
INTERVAL = 10 * MINUTE
RETENTION = Retention(
    retention_ms=7 * DAY, check_interval_ms=INTERVAL, source="broker", read_at=T0, known_since=T0
)
ID, OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"

Row = dict[str, Any]


def simple(name: str = "g") -> Row:
    return {"group": name, "type": "classic", "protocol_type": "", "state": "Empty", "subscribed_topics": []}


def stable(*topics: str, name: str = "g") -> Row:
    return simple(name) | {"protocol_type": "consumer", "state": "Stable", "subscribed_topics": list(topics)}


def empty_since(moment: int, name: str = "g") -> Row:
    return simple(name) | {"protocol_type": "consumer", "state_timestamp": moment}


def offset(partition: int = 0, *, topic: str = "t", group: str = "g", at: int = T0, **more: Any) -> Row:
    key = {"group": group, "topic": topic, "partition": partition, "source_partition": 0}
    return {**key, "committed_offset": 5, "commit_timestamp": at, "topic_id": ID, **more}


def removal(row: Row, at: int, cause: str = TOMBSTONED) -> Row:
    key = {name: row[name] for name in ("group", "topic", "partition", "source_partition")}
    change = {"kind": "offset", "op": "remove", "before": row, "cause": cause}
    return {**key, **change, "source_timestamp": at, "source_offset": 100 + row["partition"]}


def group_change(before: Row | None, after: Row | None, at: int) -> Row:
    name = (before or after or {})["group"]
    change = {
        "kind": "group",
        "op": "set" if after else "remove",
        "group_before": before,
        "group_after": after,
    }
    return {"group": name, "source_partition": 0, "source_timestamp": at, "source_offset": 999, **change}


def changes_of(*rows: Row) -> pa.Table:
    schema = CHANGES_IN_BATCH
    return change_rows(pa.Table.from_pylist(list(rows), schema), sequence=1, batch_time=0)[0]


def table_of(schema: pa.Schema, rows: list[Row]) -> pa.Table:
    def moment(name: str, value: Any) -> Any:
        is_time = value is not None and name.endswith("timestamp")
        return datetime.fromtimestamp(value / 1_000, UTC) if is_time else value

    values = [{name: moment(name, value) for name, value in row.items()} for row in rows]
    return pa.Table.from_pylist(values, schema)


def causes(
    *rows: Row,
    groups: list[Row] | None = None,
    staying: list[Row] | None = None,
    topics: Mapping[str, str | None] | None = None,
    retention: Retention | None = RETENTION,
    stalled: frozenset[int] = frozenset(),
    late_by: int = 0,
    ends: Mapping[int, int] | None = None,
    cut: frozenset[int] = frozenset(),
    ask: bool = True,
) -> list[str]:
    """The causes of the removed offsets of a batch that is written `late_by` after its last removal."""
    removed = [row["before"] for row in rows if row["kind"] == "offset" and row["before"]]
    evidence = Evidence(
        offsets=table_of(OFFSETS, [*removed, *(staying or [])]),
        groups=table_of(GROUPS, [simple()] if groups is None else groups),
        topic_ids={"t": ID, "u": ID, **(topics or {})} if ask else None,
        retention=retention,
        stalled=stalled,
        now=max(row["source_timestamp"] for row in rows) + late_by,
        ends=ends or {},
        cut=cut,
    )
    decided = with_causes(changes_of(*rows), evidence).to_pylist()
    assert all((row["cause"] is None) == (row["kind"] == "group" or row["op"] == "set") for row in decided)
    assert {row["cause"] for row in decided} <= {*CAUSES, None}
    return [row["cause"] for row in decided if row["kind"] == "offset" and row["op"] == "remove"]


EXPIRED, DELETED, TOPIC_DELETED, UNKNOWN = (
    "expired (probable)",
    "deleted",
    "topic deleted (probable)",
    "unknown",
)
EARLY = T0 + DAY

# --- before it was due -----------------------------------------------------------------------------------


def test_what_goes_before_it_is_due_was_deleted() -> None:
    assert causes(removal(offset(), EARLY)) == [DELETED]
    assert causes(removal(offset(), DUE - CLOCK_TOLERANCE_MS - 1)) == [DELETED]


def test_what_could_not_expire_was_deleted() -> None:
    assert causes(removal(offset(), DUE + 1), groups=[stable("t")]) == [DELETED]
    assert causes(removal(offset(), EARLY), groups=[stable("t")], retention=None) == [DELETED]


def test_one_early_removal_speaks_for_the_whole_request() -> None:
    """DeleteGroups on a group of which one offset happens to be due."""
    due, early = removal(offset(0), DUE + 1), removal(offset(1, at=T0 + DAY), DUE + 1)
    assert causes(due, early) == [DELETED, DELETED]
    assert causes(due, {**early, "source_timestamp": DUE + 2}) == [EXPIRED, DELETED]
    assert causes(due, {**early, "group": "h"}, groups=[simple(), simple("h")]) == [EXPIRED, DELETED]


# --- when it was due -------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [-CLOCK_TOLERANCE_MS, 0, INTERVAL, 2 * INTERVAL + CLOCK_TOLERANCE_MS])
def test_what_goes_when_it_is_due_has_probably_expired(late: int) -> None:
    assert causes(removal(offset(), DUE + late)) == [EXPIRED]


def test_what_goes_much_later_is_not_known() -> None:
    assert causes(removal(offset(), DUE + 2 * INTERVAL + CLOCK_TOLERANCE_MS + 1)) == [UNKNOWN]


LATE = DUE + 30 * DAY


@pytest.mark.parametrize(
    "group",
    [
        simple() | {"type": "consumer", "subscribed_topics": []},
        stable("u"),
        simple() | {"protocol_type": "consumer"},
    ],
    ids=["empty", "unsubscribed", "empty classic group without a time"],
)
def test_an_overdue_offset_that_its_group_exempted_expires_when_the_group_has_changed(group: Row) -> None:
    was = group | {"source_timestamp": LATE - MINUTE}
    assert causes(removal(offset(), LATE), groups=[was]) == [EXPIRED]
    assert causes(removal(offset(expire_timestamp=EARLY), LATE), groups=[was]) == [EXPIRED]
    long_ago = group | {"source_timestamp": LATE - 2 * INTERVAL - CLOCK_TOLERANCE_MS - 1}
    assert causes(removal(offset(), LATE), groups=[long_ago]) == [UNKNOWN]
    assert causes(removal(offset(), LATE), groups=[was], staying=[offset(1)]) == [DELETED]


def test_an_overdue_offset_expires_when_the_retention_is_lowered() -> None:
    lowered = replace(RETENTION, known_since=LATE - MINUTE)
    assert causes(removal(offset(), LATE), retention=lowered) == [EXPIRED]
    assert causes(removal(offset(), LATE), retention=replace(lowered, known_since=LATE - DAY)) == [UNKNOWN]


def test_a_check_that_drops_offsets_just_due_drops_overdue_ones() -> None:
    due, overdue = removal(offset(0, at=T0 + 30 * DAY), LATE + MINUTE), removal(offset(1), LATE + MINUTE)
    assert causes(due, overdue) == [EXPIRED, EXPIRED]
    assert causes(due, {**overdue, "source_timestamp": LATE}) == [EXPIRED, UNKNOWN]


def test_an_explicit_expiry_needs_no_retention() -> None:
    explicit = removal(offset(expire_timestamp=EARLY), EARLY + 5_000)
    assert causes(explicit) == [EXPIRED]
    assert causes(explicit, retention=None) == [EXPIRED]


def test_a_group_that_goes_with_its_offsets_is_judged_as_it_was() -> None:
    was, at = empty_since(T0 + DAY), DUE + DAY + 1
    assert causes(removal(offset(), at), group_change(was, None, at), groups=[was]) == [EXPIRED]
    assert causes(removal(offset(), DUE + 1), group_change(was, None, DUE + 1), groups=[was]) == [DELETED]


def test_an_earlier_offset_that_stays_rules_out_expiry() -> None:
    went, older = removal(offset(0), DUE + MINUTE), offset(1, at=T0 - 1)
    assert causes(went, staying=[older]) == [DELETED]
    assert causes(went, staying=[older], stalled=frozenset({0})) == [EXPIRED]
    assert causes(went, staying=[{**older, "group": "h"}], groups=[simple(), simple("h")]) == [EXPIRED]
    assert causes(went, staying=[offset(1, at=T0 + 1)]) == [EXPIRED]
    assert causes(went, {**removal(older, 0), "op": "set", "cause": None, "source_timestamp": DUE}) == [
        EXPIRED
    ]


def test_of_offsets_that_are_due_at_one_moment_none_can_stay() -> None:
    """An administrator deletes one offset of a group that has been empty for the retention time."""
    was = empty_since(T0)
    assert causes(removal(offset(0), DUE + MINUTE), groups=[was], staying=[offset(1)]) == [DELETED]


def test_an_offset_that_was_not_due_yet_may_stay() -> None:
    assert causes(removal(offset(0), DUE - 5_000), staying=[offset(1, at=T0 - 1)]) == [EXPIRED]


def test_an_offset_that_stays_in_a_group_that_changed_rules_out_nothing() -> None:
    went, older = removal(offset(0), DUE + MINUTE, TOMBSTONED_AFTER_CHANGE), offset(1, at=T0 - 1)
    assert causes(went, staying=[older]) == [DELETED]
    assert causes(went, group_change(simple(), stable("t"), DUE), staying=[older]) == [UNKNOWN]


def test_a_check_that_may_go_on_in_the_next_batch_leaves_nothing_behind() -> None:
    went = [removal(offset(number), DUE + MINUTE) for number in range(LARGE_CHECK)]
    older = offset(LARGE_CHECK, at=T0 - 1)
    assert set(causes(*went, staying=[older])) == {EXPIRED}
    assert set(causes(*went[1:], staying=[older])) == {DELETED}
    [place] = {(row["source_partition"], row["source_offset"]) for row in went[-1:]}
    assert set(causes(*went, staying=[older], ends=dict([place]))) == {EXPIRED}
    assert set(causes(*went, staying=[older], ends={place[0]: place[1] + 1})) == {DELETED}, (
        "others came later"
    )


def test_a_check_that_the_batch_cuts_leaves_nothing_behind() -> None:
    went, older = [removal(offset(0), DUE + MINUTE), removal(offset(1), DUE + MINUTE)], offset(2, at=T0 - 1)
    assert causes(*went, staying=[older], cut=frozenset({0})) == [EXPIRED, EXPIRED]
    assert causes(*went, staying=[older], cut=frozenset({1})) == [DELETED, DELETED], "another partition"
    assert causes(*went, staying=[older], cut=frozenset({0}), ends={0: 102}) == [DELETED, DELETED]
    assert causes(*went, removal(offset(3, at=T0 + DAY), DUE + MINUTE), cut=frozenset({0})) == [DELETED] * 3


NAMES = st.lists(st.text(alphabet="g\0", max_size=3), min_size=3, max_size=3, unique=True)
PLACES = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1))  # numbers of group and topic
TIMES = st.tuples(st.sampled_from([T0 - MINUTE, T0, T0 + DAY]), st.sampled_from([None, EARLY, DUE + 1]))


def causes_under_names(history: dict[tuple[int, int, int], tuple[int, int | None]], names: list[str]) -> Any:
    """The causes in groups and topics of these names; each offset says when it was committed and went."""
    held = {
        place: (offset(place[2], group=names[place[0]], topic=names[place[1]], at=at), went)
        for place, (at, went) in history.items()
    }
    rows = [removal(row, went) for row, went in held.values() if went is not None]
    staying = [row for row, went in held.values() if went is None]
    groups = [empty_since(T0, names[0]), simple(names[1]), stable(names[0], name=names[2])]
    topics = {names[0]: ID, names[1]: ID, names[2]: None}
    return causes(*rows, groups=groups, staying=staying, topics=topics) if rows else []


@given(history=st.dictionaries(PLACES, TIMES, max_size=8), names=NAMES)
def test_names_that_are_alike_up_to_a_nul_are_names_like_others(
    history: dict[tuple[int, int, int], tuple[int, int | None]], names: list[str]
) -> None:
    assert causes_under_names(history, names) == causes_under_names(history, ["a", "b", "c"])


# --- topics ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [None, OTHER_ID], ids=["absent", "another id"])
def test_what_goes_with_its_topic_is_not_called_expiry(answer: str | None) -> None:
    assert causes(removal(offset(), EARLY), topics={"t": answer}) == [TOPIC_DELETED]
    assert causes(removal(offset(), DUE + 1), topics={"t": answer}) == [TOPIC_DELETED]
    assert causes(removal(offset(), EARLY), groups=[stable("t")], topics={"t": answer}) == [TOPIC_DELETED]


def test_a_topic_that_is_gone_by_now_does_not_explain_what_was_due() -> None:
    late = {"topics": {"t": None}, "late_by": RECENT_MS + 1}
    assert causes(removal(offset(), DUE + 1), **late) == [UNKNOWN]  # type: ignore[arg-type]
    assert causes(removal(offset(), EARLY), **late) == [TOPIC_DELETED]  # type: ignore[arg-type]


def test_a_request_that_takes_offsets_of_topics_that_are_there_is_no_topic_deletion() -> None:
    rows = [removal(offset(topic=topic), EARLY) for topic in ("t", "gone")]
    assert causes(*rows, topics={"gone": None}) == [DELETED, DELETED]


def test_a_request_that_may_have_taken_offsets_of_topics_that_are_there_is_not_known() -> None:
    rows = [removal(offset(topic=topic), EARLY) for topic in ("secret", "gone")]
    assert causes(*rows, topics={"gone": None}) == [UNKNOWN, UNKNOWN]


def test_a_topic_without_an_id_is_the_same_for_a_while() -> None:
    for row, topics in ((offset(topic_id=None), {}), (offset(), {"t": ""})):
        assert causes(removal(row, EARLY), topics=topics) == [DELETED]
        assert causes(removal(row, EARLY), topics=topics, late_by=RECENT_MS + 1) == [UNKNOWN]


# --- without evidence ------------------------------------------------------------------------------------

NO_EVIDENCE: dict[str, tuple[list[Row], dict[str, Any]]] = {
    "not held": ([{**removal(offset(), EARLY), "before": None}], {}),
    "no tombstone of its own": ([removal(offset(), EARLY, HIDDEN)], {}),
    "from before the retention was known": (
        [removal(offset(), EARLY)],
        {"retention": replace(RETENTION, known_since=EARLY + 1)},
    ),
    "no retention": ([removal(offset(), EARLY)], {"retention": None}),
    "no answer about topics": ([removal(offset(), EARLY)], {"ask": False}),
    "no answer about topics, when due": ([removal(offset(), DUE)], {"ask": False}),
    "topic that this user may not see": ([removal(offset(topic="secret"), EARLY)], {}),
    "value that could not be read": ([removal(offset(unreadable_source_offset=3), EARLY)], {}),
    "group that is not in the tables": ([removal(offset(), EARLY)], {"groups": []}),
    "later commit in the batch, when due": ([removal(offset(), DUE, TOMBSTONED_AFTER_CHANGE)], {}),
    "explicit expiry, and a later commit": (
        [removal(offset(expire_timestamp=DUE), EARLY, TOMBSTONED_AFTER_CHANGE)],
        {},
    ),
    "group that may have become empty in the batch": (
        [removal(offset(), DUE, TOMBSTONED_AFTER_CHANGE), group_change(stable("t"), None, DUE)],
        {"groups": [stable("t")]},
    ),
}


@pytest.mark.parametrize(("rows", "more"), NO_EVIDENCE.values(), ids=NO_EVIDENCE.keys())
def test_without_evidence_nothing_is_claimed(rows: list[Row], more: dict[str, Any]) -> None:
    assert causes(*rows, **more) == [UNKNOWN]


def test_what_changed_in_the_batch_is_deleted_if_it_cannot_have_been_due_whatever_happened() -> None:
    """A consumer stops and its group is deleted at once."""
    went = removal(offset(), EARLY, TOMBSTONED_AFTER_CHANGE)
    assert causes(went, group_change(stable("t"), None, EARLY), groups=[stable("t")]) == [DELETED]


def test_nothing_is_looked_into_where_nothing_can_be_found() -> None:
    rows = changes_of(*(row for rows, _ in list(NO_EVIDENCE.values())[:2] for row in rows))
    assert not undecided(rows, RETENTION.known_since).any()
    assert undecided(changes_of(removal(offset(), EARLY)), RETENTION.known_since).all()
    assert without_evidence(rows)["cause"].to_pylist() == [UNKNOWN, UNKNOWN]


# --- what a rebuild did not find any more ----------------------------------------------------------------

AWAY = "gone while away"


def causes_of_absence(
    before: list[Row],
    *,
    seen_at: int | None,
    now: int,
    after: list[Row] | None = None,
    groups: list[Row] | None = None,
    topics: Mapping[str, str | None] | None = None,
    retention: Retention | None = RETENTION,
) -> list[str]:
    """The causes of the offsets that went between `seen_at` and `now`."""
    old, new = (table_of(OFFSETS, rows) for rows in (before, after or []))
    evidence = Evidence(
        offsets=old,
        groups=table_of(GROUPS, [simple()] if groups is None else groups),
        topic_ids={"t": ID, **(topics or {})},
        retention=retention,
        stalled=frozenset(),
        now=now,
    )
    rows = differences("offsets", old, new, sequence=2, batch_time=now)
    decided = with_causes_of_absence(rows, evidence, {0: seen_at})
    return [row["cause"] for row in decided.to_pylist() if row["op"] == "remove"]


def test_what_was_due_while_nobody_looked_has_probably_expired() -> None:
    assert causes_of_absence([offset()], seen_at=DUE - DAY, now=DUE + DAY) == [EXPIRED]
    assert causes_of_absence([offset()], seen_at=DUE - 1, now=DUE + 1) == [EXPIRED]
    waiting_for_the_check = DUE + 2 * INTERVAL
    assert causes_of_absence([offset()], seen_at=waiting_for_the_check, now=DUE + DAY) == [EXPIRED]
    assert causes_of_absence([offset(expire_timestamp=EARLY)], seen_at=T0 + 1, now=EARLY + 1) == [EXPIRED]


def test_what_was_not_due_while_nobody_looked_is_gone_and_that_is_all() -> None:
    assert causes_of_absence([offset()], seen_at=DUE - DAY, now=DUE - 1) == [AWAY]
    assert causes_of_absence([offset()], seen_at=DUE + DAY, now=DUE + 2 * DAY) == [AWAY], "it was there still"
    assert causes_of_absence([offset()], seen_at=DUE - 1, now=DUE + 1, groups=[stable("t")]) == [AWAY]


def test_absence_without_evidence_is_no_expiry() -> None:
    def away(**evidence: Any) -> list[str]:
        return causes_of_absence([offset()], **{"seen_at": DUE - DAY, "now": DUE + DAY, **evidence})

    assert away() == [EXPIRED]
    assert away(seen_at=None) == [AWAY]
    assert away(retention=None) == [AWAY]
    assert away(retention=replace(RETENTION, known_since=DUE)) == [AWAY], "it may have been longer"
    assert away(topics={"t": None}) == [AWAY]
    assert away(topics={"t": OTHER_ID}) == [AWAY]
    assert away(groups=[]) == [AWAY]


def test_an_absent_offset_that_another_outlives_has_not_expired() -> None:
    older = offset(1, at=T0 - DAY)
    both = [offset(), older]
    assert causes_of_absence(both, after=[older], seen_at=T0, now=DUE + DAY) == [AWAY]
    assert causes_of_absence(both, seen_at=DUE - 2 * DAY, now=DUE + DAY) == [EXPIRED, EXPIRED]


def test_what_a_rebuild_finds_changed_has_no_cause() -> None:
    moved = offset() | {"committed_offset": 9}
    assert causes_of_absence([offset()], after=[moved], seen_at=DUE - 1, now=DUE + 1) == []
