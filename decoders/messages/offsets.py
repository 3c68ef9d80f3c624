"""Requests about offsets: committed offsets, ends of logs, commits and deletions.

Source: Kafka 4.4. Versions that differ only in the meaning of errors are not mentioned.
"""

from typing import Final

from construct import Default, Struct

from decoders.formats.java_values import ZERO_UUID
from decoders.formats.record_type import NONE
from decoders.formats.wire import BOOL, INT8, INT16, INT32, INT64, NULLABLE_STRING, STRING, UUID, array
from decoders.messages.api import Api
from decoders.messages.fields import ERROR_CODE, THROTTLE_TIME_MS
from decoders.messages.versions import versions

_ASKED_TOPICS: Final = array(
    Struct(
        "name" / versions("0-9", STRING),
        "topicId" / versions("10+", UUID, default=ZERO_UUID),
        "partitionIndexes" / array(INT32),
    )
)

_COMMITTED_TOPICS: Final = array(
    Struct(
        "name" / versions("0-9", STRING),
        "topicId" / versions("10+", UUID, default=ZERO_UUID),
        "partitions"
        / array(
            Struct(
                "partitionIndex" / INT32,
                "committedOffset" / INT64,
                "committedLeaderEpoch" / versions("5+", INT32, default=NONE),
                "metadata" / NULLABLE_STRING,
                "errorCode" / ERROR_CODE,
            )
        ),
    )
)

# KIP-88 (v2): null topics mean all; an error of the whole response. KIP-320 (v5): leader epochs. KIP-447
# (v7): whether offsets in open transactions are an error. KIP-709 (v8): many groups. KIP-848: the requesting
# member (v9), topic ids in place of names (v10).
OFFSET_FETCH: Final = Api(
    key=9,
    name="OffsetFetch",
    versions=range(1, 11),
    first_flexible=6,
    request=Struct(
        "groupId" / versions("0-7", STRING),
        "topics" / versions("0-7", _ASKED_TOPICS, nullable="2-7"),
        "groups"
        / versions(
            "8+",
            array(
                Struct(
                    "groupId" / STRING,
                    "memberId" / versions("9+", NULLABLE_STRING, default=None),
                    "memberEpoch" / versions("9+", INT32, default=NONE),
                    "topics" / versions("8+", _ASKED_TOPICS, nullable="8+"),
                )
            ),
        ),
        "requireStable" / versions("7+", BOOL, default=False),
    ),
    response=Struct(
        "throttleTimeMs" / versions("3+", THROTTLE_TIME_MS),
        "topics" / versions("0-7", _COMMITTED_TOPICS),
        "errorCode" / versions("2-7", ERROR_CODE),
        "groups"
        / versions(
            "8+",
            array(Struct("groupId" / STRING, "topics" / _COMMITTED_TOPICS, "errorCode" / ERROR_CODE)),
        ),
    ),
)

# Timestamps: -1 the end, -2 the beginning. KIP-98 (v2): the isolation level. KIP-320 (v4): leader epochs.
# Later versions add more such timestamps; v10 has a timeout for those that take long.
LIST_OFFSETS: Final = Api(
    key=2,
    name="ListOffsets",
    versions=range(1, 12),
    first_flexible=6,
    request=Struct(
        "replicaId" / Default(INT32, NONE),
        "isolationLevel" / versions("2+", INT8, default=0),
        "topics"
        / array(
            Struct(
                "name" / STRING,
                "partitions"
                / array(
                    Struct(
                        "partitionIndex" / INT32,
                        "currentLeaderEpoch" / versions("4+", INT32, default=NONE),
                        "timestamp" / INT64,
                    )
                ),
            )
        ),
        "timeoutMs" / versions("10+", INT32, default=0),
    ),
    response=Struct(
        "throttleTimeMs" / versions("2+", THROTTLE_TIME_MS),
        "topics"
        / array(
            Struct(
                "name" / STRING,
                "partitions"
                / array(
                    Struct(
                        "partitionIndex" / INT32,
                        "errorCode" / ERROR_CODE,
                        "timestamp" / Default(INT64, NONE),
                        "offset" / Default(INT64, NONE),
                        "leaderEpoch" / versions("4+", INT32, default=NONE),
                    )
                ),
            )
        ),
    ),
)

# v5 drops the retention time (KIP-211). KIP-320 (v6): leader epochs. KIP-345 (v7): static members.
# KIP-848 (v10): topic ids in place of names.
OFFSET_COMMIT: Final = Api(
    key=8,
    name="OffsetCommit",
    versions=range(2, 11),
    first_flexible=8,
    request=Struct(
        "groupId" / STRING,
        "generationIdOrMemberEpoch" / Default(INT32, NONE),
        "memberId" / Default(STRING, ""),
        "groupInstanceId" / versions("7+", NULLABLE_STRING, default=None),
        "retentionTimeMs" / versions("2-4", INT64, default=NONE),
        "topics"
        / array(
            Struct(
                "name" / versions("0-9", STRING),
                "topicId" / versions("10+", UUID, default=ZERO_UUID),
                "partitions"
                / array(
                    Struct(
                        "partitionIndex" / INT32,
                        "committedOffset" / INT64,
                        "committedLeaderEpoch" / versions("6+", INT32, default=NONE),
                        "committedMetadata" / NULLABLE_STRING,
                    )
                ),
            )
        ),
    ),
    response=Struct(
        "throttleTimeMs" / versions("3+", THROTTLE_TIME_MS),
        "topics"
        / array(
            Struct(
                "name" / versions("0-9", STRING),
                "topicId" / versions("10+", UUID, default=ZERO_UUID),
                "partitions" / array(Struct("partitionIndex" / INT32, "errorCode" / INT16)),
            )
        ),
    ),
)

# KIP-496.
OFFSET_DELETE: Final = Api(
    key=47,
    name="OffsetDelete",
    versions=range(0, 1),
    first_flexible=None,
    request=Struct(
        "groupId" / STRING,
        "topics" / array(Struct("name" / STRING, "partitions" / array(Struct("partitionIndex" / INT32)))),
    ),
    response=Struct(
        "errorCode" / ERROR_CODE,
        "throttleTimeMs" / THROTTLE_TIME_MS,
        "topics"
        / array(
            Struct(
                "name" / STRING,
                "partitions" / array(Struct("partitionIndex" / INT32, "errorCode" / INT16)),
            )
        ),
    ),
)
