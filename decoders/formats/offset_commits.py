"""Offset commits (types 0 and 1): their common key, and the value in every version."""

from typing import Final

from construct import Default, Struct

from decoders.formats.java_values import ZERO_UUID
from decoders.formats.record_type import NONE, RecordType
from decoders.formats.wire import COMPACT_STRING, INT32, INT64, STRING, UUID, FlexibleStruct

OFFSET_COMMIT_KEY: Final = Struct("group" / STRING, "topic" / STRING, "partition" / INT32)

OFFSET_COMMIT_VALUES: Final = {
    # 0.8.2, which wrote it under key type 0.
    0: Struct(
        "offset" / INT64,
        "metadata" / STRING,
        "commitTimestamp" / INT64,
    ),
    # 0.9: every commit has its own expiry. Since 2.1 only if the client requests a retention (OffsetCommit
    # v2-v4).
    1: Struct(
        "offset" / INT64,
        "metadata" / STRING,
        "commitTimestamp" / INT64,
        "expireTimestamp" / Default(INT64, NONE),
    ),
    # 2.1, KIP-211: offsets expire after the group has become empty, so no expireTimestamp.
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

# Since 4.1, type 0 has only value version 0; older coordinators read all versions of type 1 under it.
OFFSET_COMMITS: Final = (
    RecordType(0, "LegacyOffsetCommit", OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUES, tabular=True),
    RecordType(1, "OffsetCommit", OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUES, tabular=True),
)
