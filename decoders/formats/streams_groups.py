"""Streams groups (KIP-1071, since 4.1): types 17 and 19 to 23."""

from typing import Final

from construct import Default

from decoders.formats.group_parts import GROUP_KEY, MEMBER_KEY, TARGET_METADATA_VALUES
from decoders.formats.record_type import NONE, RecordType
from decoders.formats.wire import (
    COMPACT_NULLABLE_STRING,
    COMPACT_STRING,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT16,
    FlexibleStruct,
    compact_array,
    nullable_struct,
)

KEY_VALUE: Final = FlexibleStruct("key" / COMPACT_STRING, "value" / COMPACT_STRING)

METADATA_VALUES: Final = {
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

MEMBER_METADATA_VALUES: Final = {
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

TARGET_TASKS_VALUES: Final = {
    0: FlexibleStruct(
        "activeTasks" / compact_array(TASKS),
        "standbyTasks" / compact_array(TASKS),
        "warmupTasks" / compact_array(TASKS),
    )
}

# 4.2: the epoch at which each task was assigned. Absent is empty, as for consumer groups.
ASSIGNED_TASKS: Final = FlexibleStruct(
    "subtopologyId" / COMPACT_STRING,
    "partitions" / compact_array(INT32),
    tags={0: "assignmentEpochs" / Default(compact_array(INT32, nullable=True), [])},
)

CURRENT_ASSIGNMENT_VALUES: Final = {
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

TOPOLOGY_VALUES: Final = {
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

STREAMS_GROUP_RECORDS: Final = (
    RecordType(17, "StreamsGroupMetadata", GROUP_KEY, METADATA_VALUES, "streams"),
    RecordType(19, "StreamsGroupMemberMetadata", MEMBER_KEY, MEMBER_METADATA_VALUES, "streams"),
    RecordType(20, "StreamsGroupTargetAssignmentMetadata", GROUP_KEY, TARGET_METADATA_VALUES, "streams"),
    RecordType(21, "StreamsGroupTargetAssignmentMember", MEMBER_KEY, TARGET_TASKS_VALUES, "streams"),
    RecordType(22, "StreamsGroupCurrentMemberAssignment", MEMBER_KEY, CURRENT_ASSIGNMENT_VALUES, "streams"),
    RecordType(23, "StreamsGroupTopology", GROUP_KEY, TOPOLOGY_VALUES, "streams"),
)
