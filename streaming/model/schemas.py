"""The columns of state and tables, each declared once.

Inside the job, timestamps are int64 milliseconds; in the tables they are UTC timestamps (`table_schema`).
"""

from typing import Final

import pyarrow as pa

from decoders import RECORD_SCHEMA

TABLES_FORMAT: Final = 7
"""Version of the tables: incremented with every column or meaning that another release does not know."""

KEY: Final = [
    pa.field("group", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
]
"""The key of a committed offset. The empty group id is a group like any other."""

SOURCE: Final = [
    pa.field("source_offset", pa.int64()),
    pa.field("source_timestamp", pa.int64()),
]
"""The position of a record in its partition of the offsets topic."""

SOURCE_PARTITION: Final = pa.field("source_partition", pa.int32())
"""The partition of the offsets topic: source offsets of two partitions cannot be compared."""

OFFSET_VALUE: Final = [
    pa.field("committed_offset", pa.int64()),  # null = no value of this key was ever readable
    pa.field("leader_epoch", pa.int32()),  # null = none
    pa.field("metadata", pa.string()),
    pa.field("commit_timestamp", pa.int64()),
    pa.field("expire_timestamp", pa.int64()),  # null = none
    pa.field("topic_id", pa.string()),  # null = none
    pa.field(
        "unreadable_source_offset", pa.int64()
    ),  # source offset of a newer commit that could not be read
]

MEMBER_IDENTITY: Final = pa.struct(
    [
        pa.field("member_id", pa.string()),
        pa.field("group_instance_id", pa.string()),  # null = not a static member
        pa.field("client_id", pa.string()),
        pa.field("client_host", pa.string()),
    ]
)
"""The identity of a member of a group."""

ASSIGNED: Final = pa.struct(
    [
        pa.field("topic", pa.string()),  # null = not in the log, which has its id
        pa.field("topic_id", pa.string()),  # null = not in the log, which has its name
        pa.field("subtopology", pa.string()),  # of tasks of streams groups, in place of a topic
        pa.field("task_type", pa.string()),  # of these: active, standby, warmup
        pa.field("partitions", pa.list_(pa.int32())),
    ]
)
"""Assigned partitions of one topic, or tasks of one subtopology: current or target."""

MEMBER: Final = pa.struct(
    [
        *MEMBER_IDENTITY,
        pa.field("rack_id", pa.string()),  # null = none, or unknown
        pa.field("member_epoch", pa.int32()),  # null = a classic group, or unknown
        pa.field("is_classic", pa.bool_()),  # of consumer groups: the member uses the classic protocol
        pa.field("subscribed_topics", pa.list_(pa.string())),  # null = unknown
        pa.field("subscribed_regex", pa.string()),  # null = none, or unknown
        pa.field("assignment", pa.list_(ASSIGNED)),  # null = unknown
        pa.field("target_assignment", pa.list_(ASSIGNED)),  # null = a classic group, or unknown
        pa.field("subscription_bytes", pa.binary()),  # of classic groups, as the member sent them
        pa.field("assignment_bytes", pa.binary()),  # of classic groups, as the leader sent them
    ]
)
"""A member of a group; null means unknown, or too much to keep."""

GROUP_VALUE: Final = [
    pa.field("type", pa.string()),  # classic, consumer, share, streams
    pa.field("protocol_type", pa.string()),
    pa.field("protocol", pa.string()),  # null = none, or unknown
    pa.field("state", pa.string()),
    pa.field("generation_or_epoch", pa.int32()),  # null = none (simple groups)
    pa.field("state_timestamp", pa.int64()),  # null = unknown
    pa.field("members", pa.list_(MEMBER)),
    pa.field("subscribed_topics", pa.list_(pa.string())),  # null = unknown
    pa.field("assignment_epoch", pa.int32()),  # of the target assignment; null = a classic group, or unknown
]

ENTRIES: Final = pa.schema([SOURCE_PARTITION, *KEY, *OFFSET_VALUE, *SOURCE, pa.field("hidden", pa.bool_())])
"""The committed offsets that a shard holds.

`hidden`: their group has been removed, so no reader sees them.
"""

OFFSET: Final = pa.struct([*OFFSET_VALUE, *SOURCE])
"""A committed offset before or after a change."""

GROUP: Final = pa.struct([*GROUP_VALUE, *SOURCE])
"""A group before or after a change."""

COMMITS: Final = pa.field("commits", pa.int32())
"""The number of commits of its key that a change includes, also those whose value was unreadable.

0: only a tombstone or records of the group caused it. Null: it is not about an offset, or commits were not
counted (a rebuild).
"""

CHANGES_IN_BATCH: Final = pa.schema(
    [
        pa.field("kind", pa.string()),  # offset or group
        pa.field("op", pa.string()),  # set or remove
        *KEY,  # topic and partition are null for groups
        # of offsets; null for groups, and where there is none
        pa.field("before", OFFSET),
        pa.field("after", OFFSET),
        # of groups, in columns of their own: a reader of one field reads the whole struct
        pa.field("group_before", GROUP),
        pa.field("group_after", GROUP),
        pa.field("cause", pa.string()),  # why removed
        COMMITS,
        *SOURCE,
        SOURCE_PARTITION,
    ]
)
"""The changes of one shard in one micro-batch: at most one row per offsets partition and key."""

_FAILED_BYTES: Final = [
    # their first bytes, if all would be too many (`streaming.packing.quarantine`)
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("key_length", pa.int32()),  # bytes of the whole; null as key and value are
    pa.field("value_length", pa.int32()),
]

PACKED_RECORDS: Final = pa.schema(
    [
        *RECORD_SCHEMA,
        *_FAILED_BYTES,  # only where the record could not be decoded and is kept
        *SOURCE,
        SOURCE_PARTITION,
        # number of commits, or tombstones, of its key: itself and those that it supersedes; null = 1
        pa.field("stands_for", pa.int32()),
    ]
)
"""Decoded records of one shard on their way to the stateful operator."""

QUARANTINE_IN_BATCH: Final = pa.schema(
    [
        *_FAILED_BYTES,
        *SOURCE,
        pa.field("error_kind", pa.string()),
        pa.field("record_type", pa.int16()),
        pa.field("value_version", pa.int16()),
        pa.field("reason", pa.string()),
        pa.field("field", pa.string()),
        pa.field("at_byte", pa.int32()),
        SOURCE_PARTITION,
    ]
)
"""Records that could not be decoded, with their bytes and the reason."""

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TIMESTAMPS: Final = frozenset(
    {
        "commit_timestamp",
        "expire_timestamp",
        "state_timestamp",
        "source_timestamp",
        "batch_time",
        "opened_at",
        "updated_at",
        "closed_at",
        "delivered_at",
        "failing_since",
        "sampled_at",
    }
)
"""Names of the columns with milliseconds since 1970 inside the job and timestamps in the tables."""

_IN_COMMIT: Final = [pa.field("sequence", pa.int64()), pa.field("batch_time", pa.int64())]
_DAY: Final = pa.field("day", pa.date32())


def table_schema(fields: list[pa.Field]) -> pa.Schema:
    """Return the schema of a table: the same columns, with milliseconds as UTC timestamps."""
    return pa.schema([_table_field(field) for field in fields])


def _table_field(field: pa.Field) -> pa.Field:
    if field.name in TIMESTAMPS:
        return field.with_type(TIMESTAMP)
    if pa.types.is_struct(field.type):
        return field.with_type(pa.struct([_table_field(child) for child in field.type]))
    if pa.types.is_list(field.type):
        return field.with_type(pa.list_(_table_field(field.type.value_field)))
    return field


PROGRESS: Final = pa.field(
    "progress",
    pa.struct(
        [
            pa.field("batch_id", pa.int64()),
            pa.field("batch_time", TIMESTAMP),  # null = no batch has changed anything so far
            pa.field(
                "partitions",
                pa.list_(
                    pa.struct(
                        [
                            pa.field("partition", pa.int32()),
                            pa.field("position", pa.int64()),
                            pa.field("last_stable_offset", pa.int64()),
                            pa.field("high_watermark", pa.int64()),
                            pa.field("loaded", pa.bool_()),
                            pa.field("open_transaction_since", TIMESTAMP),
                            pa.field("read_until", TIMESTAMP),  # everything up to it; null = loading
                        ]
                    )
                ),
            ),
        ]
    ),
)
"""The job's progress, in rows of `changes` without other content (kind progress)."""

CHANGES: Final = table_schema(
    [
        *_IN_COMMIT,  # the columns that files are pruned by come first: Delta keeps statistics of 32
        *[pa.field(name, pa.string()) for name in ("kind", "op")],
        *KEY,
        SOURCE_PARTITION,
        *SOURCE,
        *[CHANGES_IN_BATCH.field(name) for name in ("cause", COMMITS.name)],
        *[CHANGES_IN_BATCH.field(name) for name in ("before", "after", "group_before", "group_after")],
        PROGRESS,
        _DAY,
    ]
)
PAUSES: Final = pa.schema(
    [
        *KEY,
        ("committed_at", TIMESTAMP),  # the end of a pause
        ("before_at", TIMESTAMP),  # the commit before; null: this is the first one
        ("offset_before", pa.int64()),
    ]
)
"""Commits after pauses, and first commits."""

OFFSETS: Final = table_schema([*KEY, *OFFSET_VALUE, SOURCE_PARTITION, *SOURCE])
GROUPS: Final = table_schema([KEY[0], *GROUP_VALUE, SOURCE_PARTITION, *SOURCE])
QUARANTINE: Final = table_schema([*QUARANTINE_IN_BATCH, *_IN_COMMIT, _DAY])

DELIVERY: Final = pa.struct(
    [
        pa.field("receiver", pa.string()),
        pa.field("revision", pa.int32()),  # the last delivered one; 0 = none so far
        pa.field("severity", pa.string()),  # the delivered one; null = none so far
        pa.field("delivered_at", pa.int64()),  # null = never
        pa.field("failing_since", pa.int64()),  # null = the last attempt succeeded, or there was none
        pa.field("error", pa.string()),  # of the last attempt
    ]
)
"""The delivery of an alert episode to one receiver."""

ALERTS: Final = table_schema(
    [
        pa.field("id", pa.string()),
        pa.field("rule", pa.string()),
        pa.field("severity", pa.string()),  # critical, warning, info
        pa.field("subject", pa.string()),  # in words
        pa.field("group", pa.string()),  # null = not about one group
        pa.field("pattern", pa.string()),  # null = not about groups of a pattern
        pa.field("topic", pa.string()),  # with partition: the worst one
        pa.field("partition", pa.int32()),
        pa.field("source_partition", pa.int32()),  # null = about several offsets partitions
        pa.field("facts", pa.string()),  # JSON
        pa.field("opened_at", pa.int64()),
        pa.field("updated_at", pa.int64()),
        pa.field("closed_at", pa.int64()),  # null = open
        pa.field("revision", pa.int32()),
        pa.field("deliveries", pa.list_(DELIVERY)),
    ]
)

LOG_ENDS: Final = table_schema(
    [
        pa.field("sampled_at", pa.int64()),  # just before the brokers were asked
        pa.field("topic", pa.string()),
        pa.field("topic_id", pa.string()),  # null = unknown, or the brokers have no ids
        pa.field("partition", pa.int32()),  # null = about the topic as a whole: its id, or an error
        pa.field("log_start", pa.int64()),  # null = unknown
        pa.field("log_end", pa.int64()),  # null = unknown
        pa.field("error", pa.string()),  # null = answered; else Kafka's name of the error
        _DAY,
    ]
)
"""Starts and ends of the logs of topic partitions at times (`streaming.tables.log_ends`)."""

IDS_AT_ONCE: Final = 100
"""Up to this many topics, each round of samples requests the ids of all. With more, the id in a sample of a
partition may be a former one; rows about whole topics have the requested ids."""

TOPIC_GONE: Final = "UNKNOWN_TOPIC_OR_PARTITION"
"""The error in `log_ends` of a topic that the brokers do not have."""

TOPIC_DENIED: Final = "TOPIC_AUTHORIZATION_FAILED"
"""The error in `log_ends` of a topic that the job's user may not describe."""

UNKNOWN_RECORD_VERSION: Final = "unknown_record_version"
"""The rule of `alerts` whose closed rows keep the number of reported records: they are never dropped."""
