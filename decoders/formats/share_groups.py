"""Share groups (KIP-932, early access in 3.9, these layouts since 4.1): types 9 to 15."""

from typing import Final

from decoders.formats.group_parts import (
    GROUP_KEY,
    MEMBER_KEY,
    PARTITION_METADATA_VALUES,
    TARGET_MEMBER_VALUES,
    TARGET_METADATA_VALUES,
    TOPIC_PARTITIONS,
)
from decoders.formats.record_type import RecordType
from decoders.formats.wire import (
    COMPACT_NULLABLE_STRING,
    COMPACT_STRING,
    INT8,
    INT32,
    INT64,
    UUID,
    FlexibleStruct,
    compact_array,
)

NAMED_TOPIC: Final = FlexibleStruct("topicId" / UUID, "topicName" / COMPACT_STRING)
NAMED_TOPIC_PARTITIONS: Final = FlexibleStruct(
    "topicId" / UUID,
    "topicName" / COMPACT_STRING,
    "partitions" / compact_array(INT32),
)

MEMBER_METADATA_VALUES: Final = {
    0: FlexibleStruct(
        "rackId" / COMPACT_NULLABLE_STRING,
        "clientId" / COMPACT_STRING,
        "clientHost" / COMPACT_STRING,
        "subscribedTopicNames" / compact_array(COMPACT_STRING),
    )
}

METADATA_VALUES: Final = {
    0: FlexibleStruct("epoch" / INT32, "metadataHash" / INT64),
}

CURRENT_ASSIGNMENT_VALUES: Final = {
    0: FlexibleStruct(
        "memberEpoch" / INT32,
        "previousMemberEpoch" / INT32,
        "state" / INT8,  # as for consumer groups
        "assignedPartitions" / compact_array(TOPIC_PARTITIONS),
    )
}

STATE_PARTITION_METADATA_VALUES: Final = {
    0: FlexibleStruct(
        "initializingTopics" / compact_array(NAMED_TOPIC_PARTITIONS),
        "initializedTopics" / compact_array(NAMED_TOPIC_PARTITIONS),
        "deletingTopics" / compact_array(NAMED_TOPIC),
    )
}

SHARE_GROUP_RECORDS: Final = (
    # Only in the early access: brokers skip it since 4.1, so no group consists of it.
    RecordType(9, "ShareGroupPartitionMetadata", GROUP_KEY, PARTITION_METADATA_VALUES),
    RecordType(10, "ShareGroupMemberMetadata", MEMBER_KEY, MEMBER_METADATA_VALUES, "share"),
    RecordType(11, "ShareGroupMetadata", GROUP_KEY, METADATA_VALUES, "share"),
    RecordType(12, "ShareGroupTargetAssignmentMetadata", GROUP_KEY, TARGET_METADATA_VALUES, "share"),
    RecordType(13, "ShareGroupTargetAssignmentMember", MEMBER_KEY, TARGET_MEMBER_VALUES, "share"),
    RecordType(14, "ShareGroupCurrentMemberAssignment", MEMBER_KEY, CURRENT_ASSIGNMENT_VALUES, "share"),
    RecordType(15, "ShareGroupStatePartitionMetadata", GROUP_KEY, STATE_PARTITION_METADATA_VALUES, "share"),
)
