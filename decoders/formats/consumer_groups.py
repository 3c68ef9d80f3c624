"""Consumer groups (KIP-848, since 3.7): types 3 to 8 and 16.

Types 5, 7 and 8 of 3.7 had other layouts under the same version.
"""

from typing import Final

from construct import Default, Struct

from decoders.formats.group_parts import (
    GROUP_KEY,
    MEMBER_KEY,
    PARTITION_METADATA_VALUES,
    TARGET_MEMBER_VALUES,
    TARGET_METADATA_VALUES,
)
from decoders.formats.record_type import RecordType
from decoders.formats.wire import (
    COMPACT_BYTES,
    COMPACT_NULLABLE_STRING,
    COMPACT_STRING,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID,
    FlexibleStruct,
    compact_array,
    nullable_tagged_struct,
)

REGULAR_EXPRESSION_KEY: Final = Struct("groupId" / STRING, "regularExpression" / STRING)

METADATA_VALUES: Final = {
    # 4.1, KIP-1101: the hash of the subscribed topics' metadata.
    0: FlexibleStruct("epoch" / INT32, tags={0: "metadataHash" / Default(INT64, 0)}),
}

MEMBER_METADATA_VALUES: Final = {
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
            # Not null: a member that still uses the classic protocol. The schema's default is a bare `null`,
            # which Kafka's generator takes for "no default": absent means an empty struct, and null is
            # written explicitly.
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

CURRENT_ASSIGNMENT_VALUES: Final = {
    0: FlexibleStruct(
        "memberEpoch" / INT32,
        "previousMemberEpoch" / INT32,
        "state" / INT8,  # 0 stable, 1 unrevoked partitions, 2 unreleased partitions
        "assignedPartitions" / compact_array(ASSIGNED_TOPIC_PARTITIONS),
        "partitionsPendingRevocation" / compact_array(ASSIGNED_TOPIC_PARTITIONS),
    )
}

# 4.0: the topics that match a regular expression.
REGULAR_EXPRESSION_VALUES: Final = {
    0: FlexibleStruct(
        "topics" / compact_array(COMPACT_STRING),
        "version" / INT64,
        "timestamp" / INT64,
    )
}

CONSUMER_GROUP_RECORDS: Final = (
    RecordType(3, "ConsumerGroupMetadata", GROUP_KEY, METADATA_VALUES, "consumer"),
    RecordType(4, "ConsumerGroupPartitionMetadata", GROUP_KEY, PARTITION_METADATA_VALUES, "consumer"),
    RecordType(5, "ConsumerGroupMemberMetadata", MEMBER_KEY, MEMBER_METADATA_VALUES, "consumer"),
    RecordType(6, "ConsumerGroupTargetAssignmentMetadata", GROUP_KEY, TARGET_METADATA_VALUES, "consumer"),
    RecordType(7, "ConsumerGroupTargetAssignmentMember", MEMBER_KEY, TARGET_MEMBER_VALUES, "consumer"),
    RecordType(8, "ConsumerGroupCurrentMemberAssignment", MEMBER_KEY, CURRENT_ASSIGNMENT_VALUES, "consumer"),
    RecordType(
        16, "ConsumerGroupRegularExpression", REGULAR_EXPRESSION_KEY, REGULAR_EXPRESSION_VALUES, "consumer"
    ),
)
