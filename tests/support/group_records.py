"""Makes records of groups, as bytes: few words for what a test is about, plain defaults for the rest.

A record is a pair of key and value bytes, built by the declarations of the decoders; no value is a tombstone.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from decoders import RECORD_TYPES, decode_columns
from decoders.formats.consumer_protocol import SUBSCRIPTION_VERSIONS
from streaming.model.schemas import PACKED_RECORDS

Record = tuple[bytes, bytes | None]
Fields = Mapping[str, Any]

NOBODY: Final = bytes(16)  # the zero id of a topic
GROUP_VALUE_VERSION: Final = 3  # what brokers write


def record(
    record_type: int, value: Fields | None, *part: str, group: str = "g", version: int | None = None
) -> Record:
    """A record of a group, of the version that a 4.x broker writes; `part` is a member or an expression."""
    declared = RECORD_TYPES[record_type]
    names = [field.name for field in declared.key.subcons]
    key = record_type.to_bytes(2) + declared.key.build(dict(zip(names, [group, *part], strict=True)))
    if value is None:
        return key, None
    written = version if version is not None else GROUP_VALUE_VERSION if record_type == 2 else 0
    return key, written.to_bytes(2) + declared.values[written].build(dict(value))


def commit(committed: int, *, group: str = "g", topic: str = "t", partition: int = 0) -> Record:
    """An offset commit."""
    key = {"group": group, "topic": topic, "partition": partition}
    value = {"offset": committed, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 5}
    return (
        b"\0\1" + RECORD_TYPES[1].key.build(key),
        b"\0\4" + RECORD_TYPES[1].values[4].build(value),
    )


# --- classic groups --------------------------------------------------------------------------------------


def classic(
    *members: Fields, protocol_type: str = "consumer", protocol: str | None = "range", **more: Any
) -> Fields:
    """The value of a classic group (type 2), at generation 3."""
    fields = {
        "protocolType": protocol_type,
        "generation": 3,
        "protocol": protocol if members else None,
        "leader": members[0]["memberId"] if members else None,
        "currentStateTimestamp": 1_000,
        "members": members,
    }
    return fields | more


def classic_member(name: str, *topics: str, **more: Any) -> Fields:
    """A member of a classic group that subscribes to topics."""
    subscription = SUBSCRIPTION_VERSIONS[1].build(
        {"topics": list(topics), "userData": None, "ownedPartitions": []}
    )
    return {
        "memberId": name,
        "groupInstanceId": None,
        "clientId": "c",
        "clientHost": "/h",
        "rebalanceTimeout": 60,
        "sessionTimeout": 10,
        "subscription": b"\0\1" + subscription,
        "assignment": b"",
    } | more


# --- members of the other groups -------------------------------------------------------------------------


def consumer_member(*topics: str, regex: str | None = None, assignor: str | None = None) -> Fields:
    """The value of a consumer group's member (type 5)."""
    return {
        "instanceId": None,
        "rackId": None,
        "clientId": "c",
        "clientHost": "/h",
        "subscribedTopicNames": topics,
        "subscribedTopicRegex": regex,
        "rebalanceTimeoutMs": 60,
        "serverAssignor": assignor,
    }


def consumer_current(epoch: int, state: int = 0) -> Fields:
    """How far a consumer group's member has come (type 8)."""
    none: list[Any] = []
    fields = {"memberEpoch": epoch, "previousMemberEpoch": 0, "state": state}
    return fields | {"assignedPartitions": none, "partitionsPendingRevocation": none}


def resolved(*topics: str) -> Fields:
    """What a regular expression was resolved to (type 16)."""
    return {"topics": topics, "version": 1, "timestamp": 1}


def share_member(*topics: str) -> Fields:
    """The value of a share group's member (type 10)."""
    return {"rackId": None, "clientId": "c", "clientHost": "/h", "subscribedTopicNames": topics}


def share_current(epoch: int) -> Fields:
    """How far a share group's member has come (type 14)."""
    return {"memberEpoch": epoch, "previousMemberEpoch": 0, "state": 0, "assignedPartitions": []}


def streams_member() -> Fields:
    """The value of a streams group's member (type 19)."""
    return {
        "instanceId": None,
        "rackId": None,
        "clientId": "c",
        "clientHost": "/h",
        "rebalanceTimeoutMs": 60,
        "topologyEpoch": 0,
        "processId": "p",
        "userEndpoint": None,
        "clientTags": [],
    }


def streams_current(epoch: int, state: int = 1) -> Fields:
    """How far a streams group's member has come (type 22)."""
    kinds = ("activeTasks", "standbyTasks", "warmupTasks")
    tasks: Fields = {f"{kind}{suffix}": [] for kind in kinds for suffix in ("", "PendingRevocation")}
    return {"memberEpoch": epoch, "previousMemberEpoch": 0, "state": state, **tasks}


def streams_epoch(epoch: int, validated: int | None = 0) -> Fields:
    """The value of a streams group (type 17); `validated` is None before 4.2."""
    tagged = {} if validated is None else {"validatedTopologyEpoch": validated}
    return {"epoch": epoch, "metadataHash": 0, **tagged}


def topology(epoch: int, *source_topics: str, repartition: Iterable[str] = ()) -> Fields:
    """The topology of a streams group (type 23), with one subtopology."""
    infos = [
        {"name": name, "partitions": 0, "replicationFactor": 0, "topicConfigs": []} for name in repartition
    ]
    subtopology = {
        "subtopologyId": "0",
        "sourceTopics": source_topics,
        "sourceTopicRegex": [],
        "stateChangelogTopics": [],
        "repartitionSinkTopics": [],
        "repartitionSourceTopics": infos,
        "copartitionGroups": [],
    }
    return {"epoch": epoch, "subtopologies": [subtopology]}


# --- as the job gets them --------------------------------------------------------------------------------


def packed(records: Iterable[Record], first_offset: int = 0) -> pa.Table:
    """Decode records that stand in the log one after another (schema `PACKED_RECORDS`)."""
    keys, values = zip(*records, strict=True) if records else ((), ())
    decoded = decode_columns(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
    offsets = pa.array(range(first_offset, first_offset + len(keys)), pa.int64())
    beside = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "key_length": pa.nulls(len(keys), pa.int32()),
        "value_length": pa.nulls(len(keys), pa.int32()),
        "stands_for": pa.nulls(len(keys), pa.int32()),
        "source_partition": pa.repeat(pa.scalar(0, pa.int32()), len(keys)),
        "source_offset": offsets,
        "source_timestamp": pa.compute.add(offsets, 1_000),
    }
    columns = [beside[name] if name in beside else decoded[name] for name in PACKED_RECORDS.names]
    return pa.table(columns, schema=PACKED_RECORDS)
