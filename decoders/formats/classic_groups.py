"""Classic groups (type 2): one record holds the whole group."""

from typing import Final

from construct import Default, Struct

from decoders.formats.record_type import NONE, RecordType
from decoders.formats.wire import (
    BYTES,
    COMPACT_BYTES,
    COMPACT_NULLABLE_STRING,
    COMPACT_STRING,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    FlexibleStruct,
    array,
    compact_array,
)

CLASSIC_GROUP_KEY: Final = Struct("group" / STRING)

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
    # 2.1, KIP-211: the time since which the group is in its state; the expiry of offsets counts from it.
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
    # 2.3, KIP-345: static membership. Brokers up to 4.4 write this version.
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

CLASSIC_GROUP_RECORDS: Final = (
    RecordType(2, "GroupMetadata", CLASSIC_GROUP_KEY, GROUP_METADATA_VALUES, "classic"),
)
