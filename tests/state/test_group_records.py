"""Groups are what their records say: as the group coordinator lists and describes them after its replay.

`HISTORIES` is the table of cases. Each is replayed here, in one batch and cut at every record; where the
jars are at hand, Kafka's own coordinator replays the same bytes and must say the same.
"""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
from group_records import (
    Record,
    classic,
    classic_member,
    commit,
    consumer_current,
    consumer_member,
    packed,
    record,
    resolved,
    share_current,
    share_member,
    streams_current,
    streams_epoch,
    streams_member,
    topology,
)
from group_replay import GroupReplay, start_group_replay
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from java_lines import JavaError
from table_batches import value_of

from streaming.state.group_types import TYPE_OF_RECORD
from streaming.state.groups import SIMPLE
from streaming.state.replay import Shard, replay

EPOCH, TARGET = "epoch", "assignmentEpoch"


@dataclass
class Feed:
    """What a reader of the changes knows after some batches, and what it was told about groups."""

    shard: Shard = field(default_factory=Shard.empty)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    told: list[tuple[str, str]] = field(default_factory=list)
    position: int = 0

    def read(self, *records: Record) -> "Feed":
        """Replay one batch."""
        self.shard, changes = replay(self.shard, packed(records, self.position))
        self.position += len(records)
        for row in changes.to_pylist():
            of_offset = row["kind"] == "offset"
            held: dict[Any, Any] = self.offsets if of_offset else self.groups
            key = (row["group"], row["topic"], row["partition"]) if of_offset else row["group"]
            if (after := value_of(row, "after")) is None:
                held.pop(key, None)
            else:
                held[key] = after["committed_offset"] if of_offset else after
            self.told.append((row["kind"], row["op"]))
        return self


@dataclass(frozen=True)
class History:
    """Records of group `g`, and what it is after them (None: not there); `source` says who decides that."""

    name: str
    source: str
    records: Sequence[Record]
    group: dict[str, Any] | None
    kafka_gives_up: bool = False


def joined(member: str, epoch: int, *topics: str) -> list[Record]:
    """A member joins a consumer group and takes what it is assigned."""
    return [
        record(5, consumer_member(*topics), member),
        record(3, {EPOCH: epoch}),
        record(6, {TARGET: epoch}),
        record(7, {"topicPartitions": []}, member),
        record(8, consumer_current(epoch), member),
    ]


def left(member: str, epoch: int) -> list[Record]:
    """A member leaves a consumer group."""
    gone = [record(8, None, member), record(7, None, member), record(5, None, member)]
    return [*gone, record(3, {EPOCH: epoch})]


def upgraded() -> list[Record]:
    """A classic group with a member, and the append that makes it a consumer group."""
    return [record(2, classic(classic_member("m", "t"))), record(2, None), *joined("m", 3, "t")]


def removed_consumer_group() -> list[Record]:
    """The tombstones of a consumer group with the member `m`."""
    of_member = [record(record_type, None, "m") for record_type in (8, 7)]
    return [*of_member, record(6, None), record(5, None, "m"), record(4, None), record(3, None)]


def streams(*after_members: Record, epoch: int = 1, validated: int | None = 0) -> list[Record]:
    """A streams group with the member `m`, whose topology is validated."""
    return [
        record(19, streams_member(), "m"),
        record(23, topology(0, "t")),
        record(17, streams_epoch(epoch, validated)),
        *after_members,
    ]


def state(of: str, type: str, **more: Any) -> dict[str, Any]:
    return {"state": of, "type": type, "protocol_type": "consumer" if type == "classic" else type} | more


MEMBER = {"member_id": "m", "group_instance_id": None, "client_id": "c", "client_host": "/h"}
MIXED = [classic_member("b", "t"), classic_member("a", "u", "t", groupInstanceId="i", clientHost="/k")]
STRANGERS = [record(number, None, "n") for number in (5, 7, 8, 16)]
STREAMS_STABLE = streams(record(20, {TARGET: 1}), record(22, streams_current(1), "m"))

HISTORIES = [
    # --- classic groups: GMM.replay(GroupMetadataKey), ClassicGroup
    History(
        "classic, idle",
        "GMM.replay(GroupMetadataKey): Empty without members",
        [record(2, classic())],
        state("Empty", "classic", generation_or_epoch=3, state_timestamp=1_000, members=[], protocol=None)
        | {"subscribed_topics": [], "source_offset": 0, "source_timestamp": 1_000},
    ),
    History(
        "classic, subscribed",
        "GMM.replay(GroupMetadataKey): Stable with members; ClassicGroup.computeSubscribedTopics",
        [record(2, classic(*MIXED))],
        state("Stable", "classic", protocol="range", subscribed_topics=["t", "u"])
        | {
            "members": [
                {"member_id": "a", "group_instance_id": "i", "client_id": "c", "client_host": "/k"},
                MEMBER | {"member_id": "b"},
            ]
        },
    ),
    History(
        "classic, just created by JoinGroup",
        "GMM.classicGroupJoinToClassicGroup: written without a protocol type at generation 0",
        [record(2, classic(protocol_type="", generation=0, currentStateTimestamp=-1))],
        state("Empty", "classic", generation_or_epoch=0, state_timestamp=None) | {"protocol_type": ""},
    ),
    History(
        "classic, of Kafka Connect",
        "ClassicGroup.computeSubscribedTopics: only the consumer protocol has subscriptions",
        [record(2, classic(classic_member("m"), protocol_type="connect", protocol="sessioned"))],
        state("Stable", "classic", protocol="sessioned", subscribed_topics=None)
        | {"protocol_type": "connect", "members": [MEMBER]},
    ),
    History(
        "classic, a subscription that nobody can read",
        "ClassicGroup.computeSubscribedTopics: a SchemaException hides all",
        [record(2, classic(classic_member("m", "t"), classic_member("n", subscription=b"\0\1\0")))],
        state("Stable", "classic", subscribed_topics=None),
    ),
    History(
        "classic, members without a protocol",
        "ClassicGroup.computeSubscribedTopics: needs a protocol name",
        [record(2, classic(classic_member("m", "t"), protocol=None))],
        state("Stable", "classic", subscribed_topics=None, protocol=None),
        kafka_gives_up=True,
    ),
    History(
        "classic, written by 0.9",
        "GroupMetadataValue v0: no instance id, no timestamp",
        [record(2, classic(classic_member("m", "t")), version=0)],
        state("Stable", "classic", state_timestamp=None, members=[MEMBER]),
    ),
    History(
        "classic, flexible",
        "GroupMetadataValue v4 (KIP-915)",
        [record(2, classic(classic_member("m", "t", groupInstanceId="i")), version=4)],
        state("Stable", "classic", members=[MEMBER | {"group_instance_id": "i"}]),
    ),
    History(
        "simple",
        "OMM.replay: a commit creates an empty group without protocol type",
        [commit(1)],
        asdict(SIMPLE) | {"members": [], "subscribed_topics": []},
    ),
    # --- consumer groups: ConsumerGroup.maybeUpdateGroupState
    History(
        "consumer, stable",
        "ConsumerGroup.maybeUpdateGroupState",
        joined("m", 1, "t"),
        state("Stable", "consumer", generation_or_epoch=1, members=[MEMBER], subscribed_topics=["t"])
        | {"protocol": None, "state_timestamp": None, "source_offset": 4},
    ),
    History(
        "consumer, not assigned yet",
        "ConsumerGroup.maybeUpdateGroupState: group epoch above assignment epoch",
        [*joined("m", 1, "t"), record(5, consumer_member("t", "u"), "m"), record(3, {EPOCH: 2})],
        state("Assigning", "consumer", generation_or_epoch=2, subscribed_topics=["t", "u"]),
    ),
    History(
        "consumer, a member behind the others",
        "ModernGroupMember.isReconciledTo: memberEpoch",
        [*joined("m", 1, "t"), *joined("n", 2, "t")],
        state("Reconciling", "consumer"),
    ),
    *(
        History(
            f"consumer, a member in state {number}",
            "ModernGroupMember.isReconciledTo: MemberState",
            [*joined("m", 1, "t"), record(8, consumer_current(1, number), "m")],
            state("Reconciling", "consumer"),
        )
        for number in (1, 2, 9)
    ),
    History(
        "consumer, its epoch after its members and never an assignment",
        "ModernGroup begins at epoch 1, for the group and its assignment; ConsumerGroupMember.Builder at 0",
        [record(5, consumer_member("t"), "m")],
        state("Reconciling", "consumer", generation_or_epoch=1, members=[MEMBER]),
    ),
    History(
        "consumer, its epoch after everything else",
        "GMM.replay(ConsumerGroupMetadataKey): no order asked for",
        [*joined("m", 1, "t")[2:], *joined("m", 1, "t")[:2]],
        state("Stable", "consumer", generation_or_epoch=1, source_offset=4),
    ),
    History(
        "consumer, only a current assignment",
        "GMM.replay(ConsumerGroupCurrentMemberAssignmentKey) creates the member",
        [record(8, consumer_current(2), "m"), record(3, {EPOCH: 2}), record(6, {TARGET: 2})],
        state("Stable", "consumer", members=[MEMBER | {"client_id": "", "client_host": ""}]),
    ),
    History(
        "consumer, only a target assignment",
        "GMM.replay(ConsumerGroupTargetAssignmentMemberKey) creates the group",
        [record(7, {"topicPartitions": []}, "m")],
        state("Empty", "consumer", generation_or_epoch=1, members=[]),
    ),
    History(
        "consumer, all have left",
        "ConsumerGroup.maybeUpdateGroupState: no members",
        [*joined("m", 1, "t"), *left("m", 2), record(6, {TARGET: 2})],
        state("Empty", "consumer", generation_or_epoch=2, members=[], subscribed_topics=[]),
    ),
    History(
        "consumer, an expression",
        "ConsumerGroup.updateResolvedRegularExpression",
        [
            *joined("m", 1, "t"),
            record(5, consumer_member("t", regex="o.*"), "m"),
            record(16, resolved("orders", "others"), "o.*"),
        ],
        state("Stable", "consumer", subscribed_topics=["orders", "others", "t"]),
    ),
    History(
        "consumer, an expression that is not resolved yet",
        "ConsumerGroup.subscribedTopicNames: counts what is resolved",
        [record(5, consumer_member("t", regex="o.*"), "m")],
        state("Reconciling", "consumer", subscribed_topics=["t"]),
    ),
    History(
        "consumer, an expression given up",
        "GMM.replay(ConsumerGroupRegularExpressionKey)",
        [
            record(5, consumer_member(regex="o.*"), "m"),
            record(16, resolved("orders"), "o.*"),
            record(5, consumer_member(regex=""), "m"),
            record(16, None, "o.*"),
        ],
        state("Reconciling", "consumer", subscribed_topics=[]),
    ),
    History(
        "consumer, most ask for one assignor",
        "ConsumerGroup.preferredServerAssignor",
        [
            record(5, consumer_member("t", assignor=assignor), member)
            for member, assignor in {"m": "range", "n": "uniform", "o": "range", "p": None}.items()
        ],
        state("Reconciling", "consumer", protocol="range"),
    ),
    History(
        "consumer, two assignors asked for equally",
        "ConsumerGroup.preferredServerAssignor: by the order of a hash table",
        [
            record(5, consumer_member("t", assignor="range"), "m"),
            record(5, consumer_member("t", assignor="uniform"), "n"),
        ],
        state("Reconciling", "consumer", protocol=None),
    ),
    History(
        "consumer, partition metadata of 4.0 and its tombstone",
        "GMM.replay(ConsumerGroupPartitionMetadataKey)",
        [record(4, {"topics": []}), *joined("m", 1, "t"), record(4, None)],
        state("Stable", "consumer", source_offset=5),
    ),
    # --- share groups: ShareGroup.maybeUpdateGroupState
    History(
        "share, with a member",
        "ShareGroup.maybeUpdateGroupState: Stable with members, whatever their epochs",
        [
            record(10, share_member("u", "t"), "m"),
            record(11, {EPOCH: 4, "metadataHash": 0}),
            record(12, {TARGET: 3}),
            record(14, share_current(2), "m"),
        ],
        state("Stable", "share", generation_or_epoch=4, members=[MEMBER], subscribed_topics=["t", "u"]),
    ),
    History(
        "share, all have left",
        "ShareGroup.maybeUpdateGroupState",
        [
            record(10, share_member("t"), "m"),
            record(14, share_current(1), "m"),
            record(14, None, "m"),
            record(10, None, "m"),
            record(11, {EPOCH: 2, "metadataHash": 0}),
        ],
        state("Empty", "share", generation_or_epoch=2, members=[], subscribed_topics=[]),
    ),
    History(
        "share, only the state of its partitions",
        "GMM.replay(ShareGroupStatePartitionMetadataKey) creates the group",
        [record(15, {"initializingTopics": [], "initializedTopics": [], "deletingTopics": []})],
        state("Empty", "share", generation_or_epoch=1),
    ),
    # --- streams groups: StreamsGroup.maybeUpdateGroupState
    History(
        "streams, stable",
        "StreamsGroup.maybeUpdateGroupState",
        STREAMS_STABLE,
        state("Stable", "streams", generation_or_epoch=1, members=[MEMBER], subscribed_topics=["t"]),
    ),
    History(
        "streams, no topology",
        "StreamsGroup.maybeUpdateGroupState: NotReady first",
        [record(19, streams_member(), "m"), record(17, streams_epoch(1))],
        state("NotReady", "streams", subscribed_topics=[]),
    ),
    History(
        "streams, a topology that is not validated",
        "StreamsGroup.maybeUpdateGroupState: topology epoch and validatedTopologyEpoch",
        [*STREAMS_STABLE, record(23, topology(1, "t", "u"))],
        state("NotReady", "streams", subscribed_topics=["t", "u"]),
    ),
    History(
        "streams, a source topic is missing",
        "StreamsGroupMetadataValue: validatedTopologyEpoch is -1 when left out",
        streams(validated=None),
        state("NotReady", "streams"),
    ),
    History(
        "streams, before its first epoch",
        "StreamsGroup: validatedTopologyEpoch begins as 0",
        [record(19, streams_member(), "m"), record(23, topology(0, "t"))],
        state("Reconciling", "streams", generation_or_epoch=1),
    ),
    History(
        "streams, not assigned yet",
        "StreamsGroup.maybeUpdateGroupState: group epoch above assignment epoch, which begins at 1",
        streams(epoch=2),
        state("Assigning", "streams"),
    ),
    History(
        "streams, a member that has got nothing",
        "StreamsGroup.getOrCreateUninitializedMember: no state, no epoch",
        streams(record(20, {TARGET: 1})),
        state("Reconciling", "streams"),
    ),
    History(
        "streams, unrevoked tasks",
        "MemberState of streams: 1 stable, 2 unrevoked, 3 unreleased",
        streams(record(20, {TARGET: 1}), record(22, streams_current(1, 2), "m")),
        state("Reconciling", "streams"),
    ),
    History(
        "streams, internal topics are read too",
        "StreamsTopology.sourceTopicMap",
        [*STREAMS_STABLE, record(23, topology(0, "t", repartition=["g-repartition"]))],
        state("Stable", "streams", subscribed_topics=["g-repartition", "t"]),
    ),
    History(
        "streams, all have left",
        "StreamsGroup.isSubscribedToTopic: to nothing while Empty",
        [
            *STREAMS_STABLE,
            *(record(number, None, "m") for number in (22, 21, 19)),
            record(17, streams_epoch(2)),
        ],
        state("Empty", "streams", generation_or_epoch=2, members=[], subscribed_topics=[]),
    ),
    # --- one group after another
    History(
        "upgraded",
        "GMM.convertToConsumerGroup: the tombstone of type 2, then the records of the new group",
        upgraded(),
        state("Stable", "consumer", generation_or_epoch=3, members=[MEMBER], subscribed_topics=["t"]),
    ),
    History(
        "downgraded",
        "GMM.convertToClassicGroup: the tombstones of types 8 to 3, then type 2",
        [*joined("m", 3, "t"), *removed_consumer_group(), record(2, classic(classic_member("m", "t")))],
        state("Stable", "classic", generation_or_epoch=3, members=[MEMBER], subscribed_topics=["t"]),
    ),
    History(
        "a simple group becomes a consumer group",
        "GMM.getOrMaybeCreatePersistedConsumerGroup: replaces a simple group",
        [commit(1), *joined("m", 1, "t")],
        state("Stable", "consumer"),
    ),
    History(
        "a type 2 value replaces a consumer group",
        "GMM.replay(GroupMetadataKey): groups.put",
        [*joined("m", 1, "t"), record(2, classic())],
        state("Empty", "classic", members=[]),
    ),
    History("classic, removed", "GMM.removeGroup", [record(2, classic()), record(2, None)], None),
    History(
        "consumer, removed",
        "GMM.replay(ConsumerGroupMetadataKey)",
        [*joined("m", 1, "t"), *removed_consumer_group()],
        None,
    ),
    History(
        "streams, removed; the topology's tombstone comes last",
        "StreamsGroup.createGroupTombstoneRecords; an unknown group's tombstone is passed over",
        [
            *STREAMS_STABLE,
            *(record(number, None, "m") for number in (22, 21)),
            record(20, None),
            record(19, None, "m"),
            record(17, None),
            record(23, None),
        ],
        None,
    ),
    History(
        "tombstones of what nobody knows",
        "GMM.replay: GroupIdNotFoundException and UnknownMemberIdException are passed over",
        [*STRANGERS, record(4, None), *joined("m", 1, "t"), *STRANGERS],
        state("Stable", "consumer", members=[MEMBER], source_offset=9),
    ),
    # --- contradictions: brokers do not write them, and the later record wins
    History(
        "consumer records over a classic group",
        "GMM.getOrMaybeCreatePersistedConsumerGroup: IllegalStateException",
        [record(2, classic()), *joined("m", 1, "t")],
        state("Stable", "consumer"),
        kafka_gives_up=True,
    ),
    History(
        "streams records over a consumer group, then one of its tombstones",
        "GMM.getOrMaybeCreatePersistedStreamsGroup: IllegalStateException",
        [*joined("m", 1, "t"), *STREAMS_STABLE, record(5, None, "m")],
        state("Stable", "streams", members=[MEMBER]),
        kafka_gives_up=True,
    ),
    History(
        "removed while it has members",
        "GMM.replay(ConsumerGroupMetadataKey): IllegalStateException",
        [*joined("m", 1, "t"), record(3, None)],
        None,
        kafka_gives_up=True,
    ),
    History(
        "a member removed before its assignment",
        "GMM.replay(ConsumerGroupMemberMetadataKey): IllegalStateException",
        [*joined("m", 1, "t"), record(5, None, "m")],
        state("Empty", "consumer", members=[]),
        kafka_gives_up=True,
    ),
]

by_name = pytest.mark.parametrize("history", HISTORIES, ids=[history.name for history in HISTORIES])


@by_name
def test_a_history_makes_the_group(history: History) -> None:
    group = Feed().read(*history.records).groups.get("g")
    assert group is None if history.group is None else group is not None
    found = {name: (group or {})[name] for name in history.group or {}}
    if "members" in found:
        found["members"] = [{name: member[name] for name in MEMBER} for member in found["members"]]
    assert found == (history.group or {})


@by_name
def test_nothing_is_kept_of_a_group_that_another_one_replaced(history: History) -> None:
    kept = Feed().read(*history.records).shard.group_records.table["record_type"].to_pylist()
    assert len({TYPE_OF_RECORD[record_type] for record_type in kept}) <= 1


@by_name
def test_batches_do_not_matter(history: History) -> None:
    whole = Feed().read(*history.records)
    one_by_one = Feed()
    for each in history.records:
        one_by_one.read(each)
    assert one_by_one.groups == whole.groups
    assert one_by_one.shard.group_records.table.num_rows == whole.shard.group_records.table.num_rows


# --- groups and their offsets ----------------------------------------------------------------------------

DOWNGRADED = [*removed_consumer_group(), record(2, classic(classic_member("m", "t")))]
CONVERSIONS = {
    "upgrade": (upgraded()[:1], upgraded()[1:], "consumer"),
    "downgrade": (joined("m", 3, "t"), DOWNGRADED, "classic"),
    "a simple group gets consumers": ([], joined("m", 1, "t"), "consumer"),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_a_conversion_in_one_batch_neither_removes_the_group_nor_touches_its_offsets(name: str) -> None:
    before, append, group_type = CONVERSIONS[name]
    feed = Feed().read(*before, commit(7), commit(8, topic="u"))
    feed.told.clear()
    feed.read(*append)
    assert feed.told == [("group", "set")]
    assert feed.groups["g"]["type"] == group_type
    assert feed.offsets == {("g", "t", 0): 7, ("g", "u", 0): 8}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_a_conversion_that_two_batches_share_ends_in_the_same(name: str) -> None:
    before, append, group_type = CONVERSIONS[name]
    for cut in range(1, len(append)):
        feed = Feed().read(*before, commit(7)).read(*append[:cut]).read(*append[cut:])
        assert feed.groups["g"]["type"] == group_type
        assert feed.offsets == {("g", "t", 0): 7}


CREATED_AGAIN = {
    "a commit": commit(9, topic="u"),
    "a classic group": record(2, classic()),
    "a consumer group's member": record(5, consumer_member("t"), "m"),
    "a streams group's epoch": record(17, streams_epoch(1)),
}


@pytest.mark.parametrize("name", CREATED_AGAIN)
def test_offsets_of_a_removed_group_are_hidden_until_it_is_created_again(name: str) -> None:
    feed = Feed().read(record(2, classic()), commit(7)).read(record(2, None))
    assert (feed.groups, feed.offsets) == ({}, {})
    feed.read(record(5, None, "m"), record(23, None))
    assert (feed.groups, feed.offsets) == ({}, {}), "tombstones create nothing"
    feed.read(CREATED_AGAIN[name])
    assert feed.offsets["g", "t", 0] == 7
    assert list(feed.groups) == ["g"]


@pytest.mark.parametrize("record_type", [2, 3, 11, 17])
def test_the_tombstone_of_a_groups_epoch_or_classic_value_hides_its_offsets(record_type: int) -> None:
    feed = Feed().read(commit(7)).read(record(record_type, None))
    assert (feed.groups, feed.offsets) == ({}, {})


@pytest.mark.parametrize("record_type", [4, 6, 12, 15, 20, 23])
def test_other_tombstones_hide_nothing(record_type: int) -> None:
    feed = Feed().read(commit(7)).read(record(record_type, None))
    assert (list(feed.groups), feed.offsets) == (["g"], {("g", "t", 0): 7})


def test_records_that_brokers_pass_over_create_no_group() -> None:
    early_access = record(9, {"topics": []})
    feed = Feed().read(record(2, classic()), commit(7), record(2, None), early_access)
    assert (feed.groups, feed.offsets) == ({}, {})


def test_a_value_that_cannot_be_read_leaves_the_group_as_it_was() -> None:
    key, value = record(2, classic(classic_member("m", "t")))
    assert value is not None
    feed = Feed().read((key, value))
    before = dict(feed.groups)
    feed.read((key, b"\0\5" + value[2:])).read((key, value[:-3]))
    assert feed.groups == before


def test_groups_of_one_partition_do_not_mix() -> None:
    other = [record(2, classic(), group="h"), commit(1, group="h"), record(2, None, group="h")]
    feed = Feed().read(*joined("m", 1, "t"), commit(7), *other, commit(2, group=""))
    assert {name: group["type"] for name, group in feed.groups.items()} == {"g": "consumer", "": "classic"}
    assert feed.offsets == {("g", "t", 0): 7, ("", "t", 0): 2}


# --- beside Kafka's own coordinator ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def kafka(java_jars: Path) -> Iterator[GroupReplay]:
    """Kafka's own coordinator, in one Java process for this module."""
    with start_group_replay(java_jars) as oracle:
        yield oracle


def as_kafka_answers(groups: dict[str, dict[str, Any]], answers: dict[str, Any]) -> dict[str, Any]:
    """Our groups, reduced to what Kafka answered about each."""
    names = {"epoch": "generation_or_epoch"}
    shown = {
        name: {field: group[names.get(field, field)] for field in answers.get(name, group)}
        for name, group in groups.items()
    }
    for name, group in shown.items():
        if told := answers.get(name, {}).get("members"):
            group["members"] = [
                {field: in_base64(member[field]) for field in told[0]} for member in group["members"]
            ]
    return shown


def in_base64(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def in_order(answers: dict[str, Any]) -> dict[str, Any]:
    for group in answers.values():
        if "members" in group:
            group["members"].sort(key=lambda member: member["member_id"])
            for member in group["members"]:
                if "subscribed_topics" in member:
                    member["subscribed_topics"].sort()
    return answers


@pytest.mark.broker
@by_name
def test_kafkas_coordinator_says_the_same(history: History, kafka: GroupReplay) -> None:
    if history.kafka_gives_up:
        with pytest.raises(JavaError, match="IllegalStateException"):
            kafka.groups(history.records)
        return
    answers = in_order(kafka.groups(history.records))
    assert as_kafka_answers(Feed().read(*history.records).groups, answers) == answers


MEMBERS = st.sampled_from(["m", "n"])
EPOCHS = st.integers(1, 3)
TOPICS = st.lists(st.sampled_from(["t", "u"]), unique=True)


def consumer_steps() -> st.SearchStrategy[list[Record]]:
    """What may happen to a consumer group, a few records at a time, whether it makes sense or not."""
    return st.one_of(
        st.builds(joined, MEMBERS, EPOCHS, st.just("t")),
        st.builds(left, MEMBERS, EPOCHS),
        st.builds(lambda names, member: [record(5, consumer_member(*names), member)], TOPICS, MEMBERS),
        st.builds(lambda epoch: [record(3, {EPOCH: epoch})], EPOCHS),
        st.builds(lambda epoch: [record(6, {TARGET: epoch})], EPOCHS),
        st.builds(
            lambda epoch, state, member: [record(8, consumer_current(epoch, state), member)],
            EPOCHS,
            st.sampled_from([0, 0, 0, 1, 2, 7]),
            MEMBERS,
        ),
        st.sampled_from([[record(3, None)], [record(4, None)], removed_consumer_group(), [commit(1)]]),
    )


def share_steps() -> st.SearchStrategy[list[Record]]:
    """What may happen to a share group."""
    return st.one_of(
        st.builds(lambda member, names: [record(10, share_member(*names), member)], MEMBERS, TOPICS),
        st.builds(lambda member: [record(14, None, member), record(10, None, member)], MEMBERS),
        st.builds(lambda epoch: [record(11, {EPOCH: epoch, "metadataHash": 0})], EPOCHS),
    )


def streams_steps() -> st.SearchStrategy[list[Record]]:
    """What may happen to a streams group."""
    return st.one_of(
        st.just(STREAMS_STABLE),
        st.builds(
            lambda epoch, of: [record(17, streams_epoch(epoch, of))], EPOCHS, st.sampled_from([None, 0, 1])
        ),
        st.builds(lambda epoch: [record(23, topology(epoch, "t"))], st.integers(0, 1)),
        st.builds(lambda epoch: [record(20, {TARGET: epoch})], EPOCHS),
        st.builds(
            lambda epoch, state: [record(22, streams_current(epoch, state), "m")],
            EPOCHS,
            st.sampled_from([1, 1, 1, 2, 3, 8]),
        ),
        st.sampled_from(
            [[record(22, None, "m"), record(19, None, "m")], [record(20, None), record(17, None)]]
        ),
    )


def steps_of_any_group() -> st.SearchStrategy[list[list[Record]]]:
    classic_step = st.sampled_from([[record(2, classic())], [record(2, classic(*MIXED))], [record(2, None)]])
    converting = st.just(upgraded()) | consumer_steps() | classic_step
    return st.one_of(
        st.lists(each, min_size=2, max_size=6)
        for each in (consumer_steps(), share_steps(), streams_steps(), converting)
    )


@pytest.mark.broker
def test_kafkas_coordinator_says_the_same_after_any_history(kafka: GroupReplay) -> None:
    agreed: dict[str, int] = {}

    @settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    @given(steps=steps_of_any_group())
    @example(steps=[[commit(1)], [record(3, None)]])
    def agree(steps: list[list[Record]]) -> None:
        records = [each for step in steps for each in step]
        try:
            answers = in_order(kafka.groups(records))
        except JavaError:
            return  # records that contradict each other
        feed = Feed()
        for step in steps:
            feed.read(*step)
        if answers and not feed.groups and not feed.shard.group_records.table.num_rows:
            return  # tombstones took every record of the group but the one of its epoch, which never was
        assert as_kafka_answers(feed.groups, answers) == answers
        for group in answers.values():
            name = f"{group['type']} {group['state']}"
            agreed[name] = agreed.get(name, 0) + 1

    agree()
    assert len(agreed) >= 9, f"the histories are too much alike: {agreed}"
