"""Every record format of `__consumer_offsets`, declared once, and the table that finds it by record type.

A key is an int16 record type and the key's fields; a value is an int16 version and the fields of that
version. A null value (a tombstone) says that the entry named by the key is gone. Field names are Kafka's own;
a field whose declaration has a `Default` means "none" where it holds it.

To add a value version: declare it below and enter it in its table. To add a record type: one line in
`RECORD_TYPES`. Readers, columns, documents and tests follow from that.

Source: the message schemas of Kafka's group coordinator (`common/message/*.json` in its jar), releases 0.8.2
to 4.4.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

from construct import Default, Struct

from decoders.formats.wire import (
    BYTES,
    COMPACT_BYTES,
    COMPACT_NULLABLE_STRING,
    COMPACT_STRING,
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UINT16,
    UUID,
    ZERO_UUID,
    FlexibleStruct,
    array,
    compact_array,
    nullable_struct,
    nullable_tagged_struct,
)

NONE: Final = -1  # what an epoch or a timestamp holds that is not there

# --- keys: never flexible, and always the group first -------------------------------------------------------

OFFSET_COMMIT_KEY: Final = Struct("group" / STRING, "topic" / STRING, "partition" / INT32)
CLASSIC_GROUP_KEY: Final = Struct("group" / STRING)
GROUP_KEY: Final = Struct("groupId" / STRING)
MEMBER_KEY: Final = Struct("groupId" / STRING, "memberId" / STRING)
REGULAR_EXPRESSION_KEY: Final = Struct("groupId" / STRING, "regularExpression" / STRING)

# --- offset commits (types 0 and 1) -------------------------------------------------------------------------

OFFSET_COMMIT_VALUES: Final = {
    # 0.8.2, which wrote it under key type 0.
    0: Struct(
        "offset" / INT64,
        "metadata" / STRING,
        "commitTimestamp" / INT64,
    ),
    # 0.9: every commit has its own expiry. Since 2.1 only where the client asks for a retention (OffsetCommit
    # v2-v4).
    1: Struct(
        "offset" / INT64,
        "metadata" / STRING,
        "commitTimestamp" / INT64,
        "expireTimestamp" / Default(INT64, NONE),
    ),
    # 2.1, KIP-211: expiry counts from the group becoming empty, so no expireTimestamp.
    2: Struct(
        "offset" / INT64,
        "metadata" / STRING,
        "commitTimestamp" / INT64,
    ),
    # 2.1, KIP-320: the leader epoch of the last consumed record.
    3: Struct(
        "offset" / INT64,
        "leaderEpoch" / Default(INT32, NONE),
        "metadata" / STRING,
        "commitTimestamp" / INT64,
    ),
    # Readable since 3.5 (and 3.4.1), KIP-915: the first flexible version. Written since 4.1, KIP-848, with
    # the topic id; transactional commits carry the id since 4.4, KIP-1319.
    4: FlexibleStruct(
        "offset" / INT64,
        "leaderEpoch" / Default(INT32, NONE),
        "metadata" / COMPACT_STRING,
        "commitTimestamp" / INT64,
        tags={0: "topicId" / Default(UUID, ZERO_UUID)},
    ),
}

# --- classic groups (type 2) --------------------------------------------------------------------------------

GROUP_METADATA_VALUES: Final = {
    # 0.9.
    0: Struct(
        "protocolType" / STRING,
        "generation" / INT32,
        "protocol" / NULLABLE_STRING,
        "leader" / NULLABLE_STRING,
        "members"
        / array(
            Struct(
                "memberId" / STRING,
                "clientId" / STRING,
                "clientHost" / STRING,
                "sessionTimeout" / INT32,
                "subscription" / BYTES,
                "assignment" / BYTES,
            )
        ),
    ),
    # 0.10.1, KIP-62: the rebalance timeout.
    1: Struct(
        "protocolType" / STRING,
        "generation" / INT32,
        "protocol" / NULLABLE_STRING,
        "leader" / NULLABLE_STRING,
        "members"
        / array(
            Struct(
                "memberId" / STRING,
                "clientId" / STRING,
                "clientHost" / STRING,
                "rebalanceTimeout" / INT32,
                "sessionTimeout" / INT32,
                "subscription" / BYTES,
                "assignment" / BYTES,
            )
        ),
    ),
    # 2.1, KIP-211: since when the group is in its state, from which offsets expire.
    2: Struct(
        "protocolType" / STRING,
        "generation" / INT32,
        "protocol" / NULLABLE_STRING,
        "leader" / NULLABLE_STRING,
        "currentStateTimestamp" / Default(INT64, NONE),
        "members"
        / array(
            Struct(
                "memberId" / STRING,
                "clientId" / STRING,
                "clientHost" / STRING,
                "rebalanceTimeout" / INT32,
                "sessionTimeout" / INT32,
                "subscription" / BYTES,
                "assignment" / BYTES,
            )
        ),
    ),
    # 2.3, KIP-345: static membership. What brokers up to 4.4 write.
    3: Struct(
        "protocolType" / STRING,
        "generation" / INT32,
        "protocol" / NULLABLE_STRING,
        "leader" / NULLABLE_STRING,
        "currentStateTimestamp" / Default(INT64, NONE),
        "members"
        / array(
            Struct(
                "memberId" / STRING,
                "groupInstanceId" / NULLABLE_STRING,
                "clientId" / STRING,
                "clientHost" / STRING,
                "rebalanceTimeout" / INT32,
                "sessionTimeout" / INT32,
                "subscription" / BYTES,
                "assignment" / BYTES,
            )
        ),
    ),
    # Readable since 3.5 (and 3.4.1), KIP-915: the first flexible version.
    4: FlexibleStruct(
        "protocolType" / COMPACT_STRING,
        "generation" / INT32,
        "protocol" / COMPACT_NULLABLE_STRING,
        "leader" / COMPACT_NULLABLE_STRING,
        "currentStateTimestamp" / Default(INT64, NONE),
        "members"
        / compact_array(
            FlexibleStruct(
                "memberId" / COMPACT_STRING,
                "groupInstanceId" / COMPACT_NULLABLE_STRING,
                "clientId" / COMPACT_STRING,
                "clientHost" / COMPACT_STRING,
                "rebalanceTimeout" / INT32,
                "sessionTimeout" / INT32,
                "subscription" / COMPACT_BYTES,
                "assignment" / COMPACT_BYTES,
            )
        ),
    ),
}

# --- parts of the newer groups' values, all flexible --------------------------------------------------------

TOPIC_PARTITIONS: Final = FlexibleStruct("topicId" / UUID, "partitions" / compact_array(INT32))
NAMED_TOPIC: Final = FlexibleStruct("topicId" / UUID, "topicName" / COMPACT_STRING)
NAMED_TOPIC_PARTITIONS: Final = FlexibleStruct(
    "topicId" / UUID,
    "topicName" / COMPACT_STRING,
    "partitions" / compact_array(INT32),
)
KEY_VALUE: Final = FlexibleStruct("key" / COMPACT_STRING, "value" / COMPACT_STRING)

# 3.7 to 4.0 for consumer groups, 3.9 to 4.0 for share groups; since 4.1 (KIP-1101) a hash stands in its
# place.
PARTITION_METADATA_VALUES: Final = {
    0: FlexibleStruct(
        "topics"
        / compact_array(
            FlexibleStruct(
                "topicId" / UUID,
                "topicName" / COMPACT_STRING,
                "numPartitions" / INT32,
                "partitionMetadata"
                / compact_array(
                    FlexibleStruct("partition" / INT32, "racks" / compact_array(COMPACT_STRING)),
                ),
            )
        ),
    )
}

# KIP-848, KIP-932, KIP-1071. 4.3, KIP-1263: when the assignment was made.
TARGET_ASSIGNMENT_METADATA_VALUES: Final = {
    0: FlexibleStruct(
        "assignmentEpoch" / INT32,
        tags={0: "assignmentTimestamp" / Default(INT64, 0)},
    )
}

# KIP-848, KIP-932.
TARGET_ASSIGNMENT_MEMBER_VALUES: Final = {
    0: FlexibleStruct("topicPartitions" / compact_array(TOPIC_PARTITIONS)),
}

# --- consumer groups (KIP-848, since 3.7; types 5, 7 and 8 of 3.7 had other layouts under the same version) -

CONSUMER_GROUP_METADATA_VALUES: Final = {
    # 4.1, KIP-1101: the hash of the subscribed topics' metadata.
    0: FlexibleStruct("epoch" / INT32, tags={0: "metadataHash" / Default(INT64, 0)}),
}

CONSUMER_GROUP_MEMBER_METADATA_VALUES: Final = {
    0: FlexibleStruct(
        "instanceId" / COMPACT_NULLABLE_STRING,
        "rackId" / COMPACT_NULLABLE_STRING,
        "clientId" / COMPACT_STRING,
        "clientHost" / COMPACT_STRING,
        "subscribedTopicNames" / compact_array(COMPACT_STRING),
        "subscribedTopicRegex" / COMPACT_NULLABLE_STRING,
        "rebalanceTimeoutMs" / INT32,
        "serverAssignor" / COMPACT_NULLABLE_STRING,
        tags={
            # Not null: a member that still speaks the classic protocol. The schema's default is a bare
            # `null`, which Kafka's generator takes for "no default": absent is an empty struct, null is
            # written out.
            0: "classicMemberMetadata"
            / Default(
                nullable_tagged_struct(
                    FlexibleStruct(
                        "sessionTimeoutMs" / INT32,
                        "supportedProtocols"
                        / compact_array(FlexibleStruct("name" / COMPACT_STRING, "metadata" / COMPACT_BYTES)),
                    )
                ),
                {"sessionTimeoutMs": 0, "supportedProtocols": []},
            )
        },
    )
}

# 4.3, KIP-1251: the epoch at which each partition was assigned. Absent is empty, as above.
ASSIGNED_TOPIC_PARTITIONS: Final = FlexibleStruct(
    "topicId" / UUID,
    "partitions" / compact_array(INT32),
    tags={0: "assignmentEpochs" / Default(compact_array(INT32, nullable=True), [])},
)

CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUES: Final = {
    0: FlexibleStruct(
        "memberEpoch" / INT32,
        "previousMemberEpoch" / INT32,
        "state" / INT8,  # 0 stable, 1 unrevoked partitions, 2 unreleased partitions
        "assignedPartitions" / compact_array(ASSIGNED_TOPIC_PARTITIONS),
        "partitionsPendingRevocation" / compact_array(ASSIGNED_TOPIC_PARTITIONS),
    )
}

# 4.0: the topics that a regular expression resolved to.
CONSUMER_GROUP_REGULAR_EXPRESSION_VALUES: Final = {
    0: FlexibleStruct(
        "topics" / compact_array(COMPACT_STRING),
        "version" / INT64,
        "timestamp" / INT64,
    )
}

# --- share groups (KIP-932, since 3.9 early access, these layouts since 4.1) --------------------------------

SHARE_GROUP_MEMBER_METADATA_VALUES: Final = {
    0: FlexibleStruct(
        "rackId" / COMPACT_NULLABLE_STRING,
        "clientId" / COMPACT_STRING,
        "clientHost" / COMPACT_STRING,
        "subscribedTopicNames" / compact_array(COMPACT_STRING),
    )
}

SHARE_GROUP_METADATA_VALUES: Final = {
    0: FlexibleStruct("epoch" / INT32, "metadataHash" / INT64),
}

SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUES: Final = {
    0: FlexibleStruct(
        "memberEpoch" / INT32,
        "previousMemberEpoch" / INT32,
        "state" / INT8,  # as for consumer groups
        "assignedPartitions" / compact_array(TOPIC_PARTITIONS),
    )
}

SHARE_GROUP_STATE_PARTITION_METADATA_VALUES: Final = {
    0: FlexibleStruct(
        "initializingTopics" / compact_array(NAMED_TOPIC_PARTITIONS),
        "initializedTopics" / compact_array(NAMED_TOPIC_PARTITIONS),
        "deletingTopics" / compact_array(NAMED_TOPIC),
    )
}

# --- streams groups (KIP-1071, since 4.1) -------------------------------------------------------------------

STREAMS_GROUP_METADATA_VALUES: Final = {
    0: FlexibleStruct(
        "epoch" / INT32,
        "metadataHash" / INT64,
        tags={
            # 4.2.
            0: "validatedTopologyEpoch" / Default(INT32, NONE),
            1: "lastAssignmentConfigs" / Default(compact_array(KEY_VALUE, nullable=True), []),
            # 4.4.
            2: "storedDescriptionTopologyEpoch" / Default(INT32, NONE),
            3: "failedDescriptionTopologyEpoch" / Default(INT32, NONE),
        },
    )
}

STREAMS_GROUP_MEMBER_METADATA_VALUES: Final = {
    0: FlexibleStruct(
        "instanceId" / COMPACT_NULLABLE_STRING,
        "rackId" / COMPACT_NULLABLE_STRING,
        "clientId" / COMPACT_STRING,
        "clientHost" / COMPACT_STRING,
        "rebalanceTimeoutMs" / INT32,
        "topologyEpoch" / INT32,
        "processId" / COMPACT_STRING,
        "userEndpoint" / nullable_struct(FlexibleStruct("host" / COMPACT_STRING, "port" / UINT16)),
        "clientTags" / compact_array(KEY_VALUE),
    )
}

TASKS: Final = FlexibleStruct("subtopologyId" / COMPACT_STRING, "partitions" / compact_array(INT32))

STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUES: Final = {
    0: FlexibleStruct(
        "activeTasks" / compact_array(TASKS),
        "standbyTasks" / compact_array(TASKS),
        "warmupTasks" / compact_array(TASKS),
    )
}

# 4.2: the epoch at which each task was assigned. Absent is empty, as above.
ASSIGNED_TASKS: Final = FlexibleStruct(
    "subtopologyId" / COMPACT_STRING,
    "partitions" / compact_array(INT32),
    tags={0: "assignmentEpochs" / Default(compact_array(INT32, nullable=True), [])},
)

STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUES: Final = {
    0: FlexibleStruct(
        "memberEpoch" / INT32,
        "previousMemberEpoch" / INT32,
        "state" / INT8,  # 1 stable, 2 unrevoked tasks, 3 unreleased tasks: one more than for consumer groups
        "activeTasks" / compact_array(ASSIGNED_TASKS),
        "standbyTasks" / compact_array(ASSIGNED_TASKS),
        "warmupTasks" / compact_array(ASSIGNED_TASKS),
        "activeTasksPendingRevocation" / compact_array(ASSIGNED_TASKS),
        "standbyTasksPendingRevocation" / compact_array(ASSIGNED_TASKS),
        "warmupTasksPendingRevocation" / compact_array(ASSIGNED_TASKS),
    )
}

TOPIC_INFO: Final = FlexibleStruct(
    "name" / COMPACT_STRING,
    "partitions" / INT32,
    "replicationFactor" / INT16,
    "topicConfigs" / compact_array(KEY_VALUE),
)

STREAMS_GROUP_TOPOLOGY_VALUES: Final = {
    0: FlexibleStruct(
        "epoch" / INT32,
        "subtopologies"
        / compact_array(
            FlexibleStruct(
                "subtopologyId" / COMPACT_STRING,
                "sourceTopics" / compact_array(COMPACT_STRING),
                "sourceTopicRegex" / compact_array(COMPACT_STRING),
                "stateChangelogTopics" / compact_array(TOPIC_INFO),
                "repartitionSinkTopics" / compact_array(COMPACT_STRING),
                "repartitionSourceTopics" / compact_array(TOPIC_INFO),
                # Indexes into the three lists of source topics above.
                "copartitionGroups"
                / compact_array(
                    FlexibleStruct(
                        "sourceTopics" / compact_array(INT16),
                        "sourceTopicRegex" / compact_array(INT16),
                        "repartitionSourceTopics" / compact_array(INT16),
                    )
                ),
            )
        ),
    )
}

# --- the table ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordType:
    """One kind of record: Kafka's name for it, its key, and its value in every version that exists.

    The value fields of a `tabular` type are columns of their own in the decoded table; other values are
    documents.
    """

    name: str
    key: Struct
    values: Mapping[int, Struct]
    tabular: bool = False

    @cached_property
    def key_subject(self) -> str:
        """The key as messages to people call it: `offset-commit key`."""
        return f"{self._spoken_name} key"

    @cached_property
    def value_subject(self) -> str:
        """The value as messages to people call it: `offset-commit value`."""
        return f"{self._spoken_name} value"

    @property
    def _spoken_name(self) -> str:
        return re.sub(r"(?<!^)(?=[A-Z])", "-", self.name).lower()


RecordTypes = Mapping[int, RecordType]

# Type 18 is unused. Type 0 has only value version 0 since 4.1; coordinators before that read all of type 1's
# under it.
RECORD_TYPES: Final[RecordTypes] = MappingProxyType(
    {
        0: RecordType("LegacyOffsetCommit", OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUES, tabular=True),
        1: RecordType("OffsetCommit", OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUES, tabular=True),
        2: RecordType("GroupMetadata", CLASSIC_GROUP_KEY, GROUP_METADATA_VALUES),
        3: RecordType("ConsumerGroupMetadata", GROUP_KEY, CONSUMER_GROUP_METADATA_VALUES),
        4: RecordType("ConsumerGroupPartitionMetadata", GROUP_KEY, PARTITION_METADATA_VALUES),
        5: RecordType("ConsumerGroupMemberMetadata", MEMBER_KEY, CONSUMER_GROUP_MEMBER_METADATA_VALUES),
        6: RecordType("ConsumerGroupTargetAssignmentMetadata", GROUP_KEY, TARGET_ASSIGNMENT_METADATA_VALUES),
        7: RecordType("ConsumerGroupTargetAssignmentMember", MEMBER_KEY, TARGET_ASSIGNMENT_MEMBER_VALUES),
        8: RecordType(
            "ConsumerGroupCurrentMemberAssignment",
            MEMBER_KEY,
            CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUES,
        ),
        9: RecordType("ShareGroupPartitionMetadata", GROUP_KEY, PARTITION_METADATA_VALUES),
        10: RecordType("ShareGroupMemberMetadata", MEMBER_KEY, SHARE_GROUP_MEMBER_METADATA_VALUES),
        11: RecordType("ShareGroupMetadata", GROUP_KEY, SHARE_GROUP_METADATA_VALUES),
        12: RecordType("ShareGroupTargetAssignmentMetadata", GROUP_KEY, TARGET_ASSIGNMENT_METADATA_VALUES),
        13: RecordType("ShareGroupTargetAssignmentMember", MEMBER_KEY, TARGET_ASSIGNMENT_MEMBER_VALUES),
        14: RecordType(
            "ShareGroupCurrentMemberAssignment", MEMBER_KEY, SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUES
        ),
        15: RecordType(
            "ShareGroupStatePartitionMetadata", GROUP_KEY, SHARE_GROUP_STATE_PARTITION_METADATA_VALUES
        ),
        16: RecordType(
            "ConsumerGroupRegularExpression", REGULAR_EXPRESSION_KEY, CONSUMER_GROUP_REGULAR_EXPRESSION_VALUES
        ),
        17: RecordType("StreamsGroupMetadata", GROUP_KEY, STREAMS_GROUP_METADATA_VALUES),
        19: RecordType("StreamsGroupMemberMetadata", MEMBER_KEY, STREAMS_GROUP_MEMBER_METADATA_VALUES),
        20: RecordType("StreamsGroupTargetAssignmentMetadata", GROUP_KEY, TARGET_ASSIGNMENT_METADATA_VALUES),
        21: RecordType(
            "StreamsGroupTargetAssignmentMember", MEMBER_KEY, STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUES
        ),
        22: RecordType(
            "StreamsGroupCurrentMemberAssignment", MEMBER_KEY, STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUES
        ),
        23: RecordType("StreamsGroupTopology", GROUP_KEY, STREAMS_GROUP_TOPOLOGY_VALUES),
    }
)
