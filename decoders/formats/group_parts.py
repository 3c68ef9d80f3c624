"""Keys, values and parts of values that the records of consumer, share and streams groups have in common.

Keys are never flexible; values are, from their version 0 on.
"""

from typing import Final

from construct import Default, Struct

from decoders.formats.wire import (
    COMPACT_STRING,
    INT32,
    INT64,
    STRING,
    UUID,
    FlexibleStruct,
    compact_array,
)

GROUP_KEY: Final = Struct("groupId" / STRING)
MEMBER_KEY: Final = Struct("groupId" / STRING, "memberId" / STRING)

TOPIC_PARTITIONS: Final = FlexibleStruct("topicId" / UUID, "partitions" / compact_array(INT32))

# 3.7 to 4.0 for consumer groups, 3.9 to 4.0 for share groups; a hash replaces it since 4.1 (KIP-1101).
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

# KIP-848, KIP-932, KIP-1071. 4.3, KIP-1263: the time of the assignment.
TARGET_METADATA_VALUES: Final = {
    0: FlexibleStruct(
        "assignmentEpoch" / INT32,
        tags={0: "assignmentTimestamp" / Default(INT64, 0)},
    )
}

# KIP-848, KIP-932.
TARGET_MEMBER_VALUES: Final = {
    0: FlexibleStruct("topicPartitions" / compact_array(TOPIC_PARTITIONS)),
}
