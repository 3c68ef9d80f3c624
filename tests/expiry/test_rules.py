"""Expiry: every clause of Kafka's rule, each with the place in Kafka's source that it comes from."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from streaming.common.times import FIRST_MS, LAST_MS
from streaming.expiry.rules import RULES, UNKNOWN_RULES, expiry
from streaming.model.schemas import GROUPS, OFFSETS

RETENTION = 1_000
COMMITTED = 10_000
CHANGED = 30_000  # the group's state_timestamp
EXPLICIT = 20_000

CONDITION = "ClassicGroup.offsetExpirationCondition"
CLEANUP = "OffsetMetadataManager.cleanupExpiredOffsets"


def at(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1_000, UTC)


def ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1_000)


def offset_row(**values: Any) -> dict[str, Any]:
    row = {"group": "g", "topic": "t", "partition": 0, "committed_offset": 1, "source_partition": 0}
    times = {"commit_timestamp": COMMITTED, "expire_timestamp": None, **values}
    return {**row, **times, **{name: at(times[name]) for name in ("commit_timestamp", "expire_timestamp")}}


def group_row(**values: Any) -> dict[str, Any]:
    row = {"group": "g", "type": "classic", "protocol_type": "consumer", "state": "Empty"}
    row |= {"subscribed_topics": [], "state_timestamp": None, **values}
    return {**row, "state_timestamp": at(row["state_timestamp"])}


@dataclass(frozen=True)
class Case:
    """A clause: a group and an offset of it, what follows, and where Kafka says so."""

    group: dict[str, Any] | None
    rule: str
    starts: int | None
    expires: int | None
    kafka: str
    offset: dict[str, Any] = field(default_factory=dict)
    stalled: tuple[int, ...] = ()


SIMPLE = {"protocol_type": ""}
STABLE = {"state": "Stable", "state_timestamp": CHANGED, "subscribed_topics": ["t", "u"]}
CONSUMER = {"type": "consumer", "state": "Reconciling", "subscribed_topics": ["t"]}
STREAMS = {"type": "streams", "protocol_type": "streams", "state": "NotReady", "subscribed_topics": ["t"]}
OTHER_TOPIC = {"topic": "dropped"}
OPAQUE = STABLE | {"subscribed_topics": None}

CASES = {
    "simple": Case(SIMPLE, "simple", COMMITTED, 11_000, f"{CONDITION}: no protocolType"),
    "created by JoinGroup, not joined yet": Case(
        SIMPLE | {"state_timestamp": CHANGED}, "simple", COMMITTED, 11_000, f"{CONDITION}: no protocolType"
    ),
    "classic, Empty since a known time": Case(
        {"state_timestamp": CHANGED}, "classic empty", CHANGED, 31_000, f"{CONDITION}: currentStateTimestamp"
    ),
    "classic of another protocol, Empty": Case(
        {"state_timestamp": CHANGED, "protocol_type": "connect"},
        "classic empty",
        CHANGED,
        31_000,
        f"{CONDITION}: EMPTY comes before the protocol type",
    ),
    "classic, Empty since nobody knows when": Case(
        {},
        "classic empty (since unknown)",
        COMMITTED,
        11_000,
        f"{CONDITION}: currentStateTimestamp.orElse(commitTimestampMs)",
    ),
    "classic, subscribed": Case(
        STABLE, "classic subscribed", None, None, f"ClassicGroup.isSubscribedToTopic, {CLEANUP}"
    ),
    "classic, topic dropped": Case(
        STABLE,
        "classic not subscribed",
        COMMITTED,
        11_000,
        f"{CONDITION}: usesConsumerGroupProtocol, STABLE",
        OTHER_TOPIC,
    ),
    "classic, subscription that does not parse": Case(
        OPAQUE,
        "classic subscription unreadable",
        None,
        None,
        f"{CONDITION}: subscribedTopics.isPresent",
        OTHER_TOPIC,
    ),
    "classic, connect": Case(
        OPAQUE | {"protocol_type": "connect"},
        "classic other protocol",
        None,
        None,
        f"{CONDITION}: usesConsumerGroupProtocol",
    ),
    "classic, PreparingRebalance": Case(
        STABLE | {"state": "PreparingRebalance"},
        "classic rebalancing",
        None,
        None,
        f"{CONDITION}: none",
        OTHER_TOPIC,
    ),
    "classic, CompletingRebalance": Case(
        STABLE | {"state": "CompletingRebalance"},
        "classic rebalancing",
        None,
        None,
        f"{CONDITION}: none",
        OTHER_TOPIC,
    ),
    "classic, Dead": Case(
        STABLE | {"state": "Dead"}, "classic rebalancing", None, None, f"{CONDITION}: none", OTHER_TOPIC
    ),
    "consumer, subscribed": Case(
        CONSUMER, "consumer subscribed", None, None, "ConsumerGroup.isSubscribedToTopic"
    ),
    "consumer, not subscribed": Case(
        CONSUMER,
        "consumer not subscribed",
        COMMITTED,
        11_000,
        "ConsumerGroup.offsetExpirationCondition",
        OTHER_TOPIC,
    ),
    "consumer, Empty": Case(
        CONSUMER | {"state": "Empty", "subscribed_topics": []},
        "consumer empty",
        COMMITTED,
        11_000,
        "ConsumerGroup.offsetExpirationCondition: any state",
    ),
    "streams, source topic": Case(
        STREAMS, "streams subscribed", None, None, "StreamsGroup.isSubscribedToTopic"
    ),
    "streams, other topic": Case(
        STREAMS,
        "streams not subscribed",
        COMMITTED,
        11_000,
        "StreamsGroup.offsetExpirationCondition",
        OTHER_TOPIC,
    ),
    "streams, Empty": Case(
        STREAMS | {"state": "Empty", "subscribed_topics": []},
        "streams empty",
        COMMITTED,
        11_000,
        "StreamsGroup.offsetExpirationCondition: any state",
    ),
    "share": Case(
        {"type": "share"}, "share", None, None, "ShareGroup.offsetExpirationCondition: unsupported"
    ),
    "explicit": Case(
        SIMPLE,
        "explicit",
        None,
        EXPLICIT,
        "OffsetExpirationConditionImpl.isOffsetExpired: expireTimestampMs",
        {"expire_timestamp": EXPLICIT},
    ),
    "explicit -1 is no expiry; the table has null for it": Case(
        SIMPLE, "simple", COMMITTED, 11_000, "OffsetAndMetadata.fromRecord", {"expire_timestamp": None}
    ),
    "explicit in an Empty group": Case(
        {"state_timestamp": CHANGED},
        "explicit",
        None,
        EXPLICIT,
        "OffsetExpirationConditionImpl.isOffsetExpired",
        {"expire_timestamp": EXPLICIT},
    ),
    "explicit does not count where nothing of the group expires": Case(
        OPAQUE,
        "classic subscription unreadable",
        None,
        None,
        f"{CLEANUP}: offsetExpirationCondition.isEmpty",
        {"expire_timestamp": EXPLICIT},
    ),
    "explicit does not count for a subscribed topic": Case(
        CONSUMER,
        "consumer subscribed",
        None,
        None,
        f"{CLEANUP}: isSubscribedToTopic",
        {"expire_timestamp": EXPLICIT},
    ),
    "no group object: hidden, never expired": Case(
        None, "no group", None, None, f"{CLEANUP}: group(groupId)"
    ),
    "a type of group that we do not know": Case(
        {"type": "new", "protocol_type": ""}, "unknown (group)", None, None, "none: ours"
    ),
    "consumer, topics not known": Case(
        CONSUMER | {"subscribed_topics": None}, "unknown (group)", None, None, "none: ours"
    ),
    "newest value not readable": Case(
        SIMPLE,
        "unknown (unreadable)",
        None,
        None,
        "none: ours",
        {"unreadable_source_offset": 7, "source_partition": 3},
    ),
    "behind an open transaction": Case(
        SIMPLE,
        "unknown (stalled)",
        None,
        None,
        f"{CLEANUP}: hasPendingTransactionalOffsets",
        {"source_partition": 3},
        (3,),
    ),
    "both of these": Case(
        SIMPLE, "unknown (unreadable)", None, None, "none: ours", {"unreadable_source_offset": 7}, (0,)
    ),
    "another partition is stalled": Case(
        SIMPLE, "simple", COMMITTED, 11_000, f"{CLEANUP}: hasPendingTransactionalOffsets", stalled=(3,)
    ),
    "a commit timestamp of -1 is a value": Case(
        SIMPLE, "simple", -1, 999, "OffsetExpirationConditionImpl.isOffsetExpired", {"commit_timestamp": -1}
    ),
}


def tables_of(*cases: Case) -> tuple[pa.Table, pa.Table]:
    """The offsets and groups of all cases, each case a group of its own."""
    groups = [
        group_row(**{**case.group, "group": str(n)}) for n, case in enumerate(cases) if case.group is not None
    ]
    offsets = [offset_row(**{**case.offset, "group": str(number)}) for number, case in enumerate(cases)]
    return pa.Table.from_pylist(offsets, OFFSETS), pa.Table.from_pylist(groups, GROUPS)


def answers(table: pa.Table) -> list[tuple[str, int | None, int | None]]:
    return [(row["rule"], ms(row["clock_starts_at"]), ms(row["expires_at"])) for row in table.to_pylist()]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_clause(case: Case) -> None:
    assert answers(expiry(*tables_of(case), RETENTION, stalled=case.stalled)) == [
        (case.rule, case.starts, case.expires)
    ]


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES.values()} == {rule.name for rule in RULES}
    assert {rule.name for rule in RULES if rule.name.startswith("unknown")} == UNKNOWN_RULES


def test_rows_do_not_disturb_each_other() -> None:
    """All cases at once, in two orders, in chunks and as a slice: each offset is judged by its own group."""
    cases = [case for case in CASES.values() if not case.stalled]
    expected = [(case.rule, case.starts, case.expires) for case in cases]
    offsets, groups = tables_of(*cases)
    assert answers(expiry(offsets, groups, RETENTION)) == expected
    backwards = pa.concat_tables([offsets.slice(number, 1) for number in reversed(range(len(offsets)))])
    turned = pa.concat_tables([groups.slice(5), groups.slice(0, 5)])
    assert answers(expiry(backwards, turned, RETENTION)) == expected[::-1]
    assert answers(expiry(offsets.slice(3, 4), groups, RETENTION)) == expected[3:7]


def test_columns_are_appended_and_the_rest_stays_as_it_is() -> None:
    offsets, groups = tables_of(CASES["simple"], CASES["share"])
    answered = expiry(offsets, groups, RETENTION)
    assert answered.schema.names == [*OFFSETS.names, "rule", "clock_starts_at", "expires_at"]
    assert answered.select(OFFSETS.names) == offsets
    assert len(expiry(OFFSETS.empty_table(), groups, RETENTION)) == 0
    assert expiry(offsets, GROUPS.empty_table(), RETENTION)["rule"].to_pylist() == ["no group"] * 2


@pytest.mark.parametrize(
    ("commit_timestamp", "retention", "expires"),
    [
        (LAST_MS, RETENTION, LAST_MS),
        (LAST_MS, 2**31 * 60_000, LAST_MS),
        (0, 10**30, LAST_MS),
        (FIRST_MS, 10**30, LAST_MS),
        (FIRST_MS, RETENTION, FIRST_MS + RETENTION),
    ],
)
def test_times_beyond_the_year_9999_end_there(commit_timestamp: int, retention: int, expires: int) -> None:
    case = Case(SIMPLE, "simple", 0, 0, "", {"commit_timestamp": 0})
    offsets, groups = tables_of(case)
    at_place = offsets.schema.get_field_index("commit_timestamp")
    times = pa.array([commit_timestamp * 1_000], pa.int64()).cast(OFFSETS.field(at_place).type)
    offsets = offsets.set_column(at_place, OFFSETS.field(at_place), times)
    found = expiry(offsets, groups, retention)["expires_at"].cast(pa.int64())
    assert found.to_pylist() == [expires * 1_000]
