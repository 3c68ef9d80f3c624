"""The columns of each command for people, and their heads.

A terminal shows the most important columns that fit. A pipe and `--wide` show all columns except those only
for programs. Heads are those of `kafka-consumer-groups`, or column names in the same style; the columns of an
SQL query are shown as they are. docs/commands.md has the list.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from streaming.common.escapes import printable

Names = tuple[str, ...]

_HEADS: Final = {
    "committed_offset": "CURRENT-OFFSET",
    "lag_seconds": "LAG-TIME",
    "partition_count": "#PARTITIONS",
}
"""Columns whose head in Kafka's tools differs from the name."""


def head(name: str) -> str:
    """Return the head of a column in the style of Kafka's tools.

    >>> head("log_end_offset"), head("committed_offset")
    ('LOG-END-OFFSET', 'CURRENT-OFFSET')
    """
    return _HEADS.get(name) or name.upper().replace("_", "-")


class ColumnPlace(NamedTuple):
    """A displayed column: its number in the rows, its head, and its rank.

    A terminal always shows columns of rank 0, then the others by rank while they fit; columns without a rank
    are left out. `is_counted`: lists of which it shows the lengths.
    """

    number: int
    head: str
    rank: int | None
    is_counted: bool = False

    @property
    def brief_head(self) -> str:
        """The head on a terminal: counts begin with #, as in Kafka's tools."""
        return f"#{self.head}" if self.is_counted else self.head


@dataclass(frozen=True, kw_only=True)
class Form:
    """The columns of a command, by name; each displayed column is in one of the first four.

    `always`: at any width. `kept`: also, unless empty throughout. `room`: unless empty throughout, and if
    they fit, the most important first. `wide`: only in pipes and with `--wide`. `unseen`: only for programs.
    `counted`: lists of which a terminal shows the length. `prose`: sentences, which a terminal may wrap.
    `blocks`: the column whose values are separated by blank lines. `is_own`: the user chose the columns, so
    all are displayed, and the leftmost are the most important.
    """

    always: Names = ()
    kept: Names = ()
    room: Names = ()
    wide: Names = ()
    unseen: Names = ()
    counted: Names = ()
    prose: Names = ()
    blocks: str | None = None
    is_own: bool = False

    def places(self, names: Sequence[str], empty: Collection[int] = ()) -> list[ColumnPlace]:
        """Return the displayed columns of rows; `empty` are the numbers of empty columns."""
        if self.is_own:
            return [ColumnPlace(number, printable(name), number) for number, name in enumerate(names)]
        return [
            ColumnPlace(number, head(name), self._rank(name, is_empty=number in empty), name in self.counted)
            for number, name in enumerate(names)
            if name not in self.unseen
        ]

    def _rank(self, name: str, *, is_empty: bool) -> int | None:
        if name in self.always:
            return 0
        if is_empty:
            return None
        if name in self.kept:
            return 0
        return 1 + self.room.index(name) if name in self.room else None


_KEY: Final = ("group", "topic", "partition")
_LAG: Final = ("log_end_offset", "lag", "lag_seconds")
_OF_LAG: Final = ("offset_as_of_ends", "lag_is_at_least", "ends_as_of")

OFFSETS: Final = Form(
    always=(*_KEY, "committed_offset"),
    kept=_LAG,
    room=("commit_timestamp", "client_id", "host", "consumer_id"),
    wide=(
        "leader_epoch",
        "metadata",
        "expire_timestamp",
        "unreadable_source_offset",
        "of_recreated_topic",
        "lag_seconds_reason",
    ),
    unseen=(*_OF_LAG, "topic_id", "source_partition", "source_offset", "source_timestamp"),
    blocks="group",
)
OFFSETS_WITH_ENDS: Final = replace(OFFSETS, always=(*OFFSETS.always, *_LAG[:2]), kept=_LAG[2:])
"""With current log ends from brokers; the columns stay even if no end is known."""
GROUPS: Final = Form(
    always=("group", "type", "state", "members"),
    room=("subscribed_topics", "state_timestamp"),
    wide=("protocol_type", "protocol", "generation_or_epoch", "assignment_epoch"),
    unseen=("source_partition", "source_offset", "source_timestamp"),
    counted=("members",),
)
MEMBERS: Final = Form(
    always=("group", "consumer_id", "partition_count"),
    kept=("group_instance_id",),
    room=("client_id", "host"),
    blocks="group",
)
MEMBERS_VERBOSE: Final = replace(
    MEMBERS,
    kept=(*MEMBERS.kept, "current_assignment"),
    room=(*MEMBERS.room, "current_epoch", "target_epoch", "target_assignment", "upgraded", "rack_id"),
)
HISTORY: Final = Form(
    always=("batch_time", *_KEY, "committed_offset"),
    kept=("step", "event"),
    room=("lag", "lag_seconds", "cause", "commits", "commit_timestamp"),
    wide=("offset_as_of_ends", "log_end_offset", "metadata", "sequence"),
    unseen=_OF_LAG[1:],
)
REWINDS: Final = replace(HISTORY, kept=("step", "by"), room=("event", *HISTORY.room), prose=("by",))
SERIES: Final = Form(
    always=("at", *_KEY, "committed_offset"),
    kept=("lag",),
    room=("lag_seconds", "log_end_offset", "commit_timestamp"),
    unseen=_OF_LAG,
)
LAG: Final = Form(
    always=("group", "lag", "lag_seconds"),
    room=(
        *("since", "worst_topic", "partitions_behind"),
        *("partitions", "worst_partition", "partitions_unknown"),
    ),
    wide=("partitions_beyond_end",),
    unseen=(*_OF_LAG[1:], "since_is_at_least"),
)
LAG_BY_TOPIC: Final = replace(
    LAG,
    always=("topic", *LAG.always[1:]),
    room=("worst_group", LAG.room[0], *LAG.room[2:]),
    wide=(*LAG.wide, "worst_topic"),
)
HEALTH: Final = Form(
    always=("group", "status", "topic", "partition", "lag", "lag_seconds"),
    kept=("reason",),
    room=("since", "partitions_not_ok", "partitions", "committed_offset", "log_end_offset"),
    wide=("commits", "first_offset", "first_at", "last_offset", "last_at", "rewound_from", "rewound_to"),
    unseen=(*_OF_LAG, "pace_is_known"),
)
STATUS_CHANGES: Final = Form(
    always=("at", "group", "status"),
    kept=("status_before", "reason", "topic", "partition", "lag"),
    room=("since", "committed_offset", "log_end_offset"),
    wide=HEALTH.wide,
    unseen=("offset_as_of_ends", "pace_is_known"),
)
EXPIRING: Final = Form(
    always=(*_KEY, "committed_offset", "time_left", "lag"),  # lag: present if brokers were asked
    room=("earliest_replays", "latest_skips", "rule", "expires_at"),
    wide=("of_recreated_topic", "log_start_offset", "log_end_offset"),
)
REMOVED: Final = Form(
    always=(*_KEY, "removed_offset", "removed_at"),
    kept=("committed_offset",),
    room=("cause",),
)
LEFTOVERS: Final = Form(
    always=("group", "topic", "reason"),
    kept=("partitions",),
    room=("idle_since", "last_commit", "expires_at", "rule"),
    wide=("type", "member_count"),
    unseen=("of_deleted_topic", "source_partition"),
    counted=("partitions",),
)
STATUS: Final = Form(
    always=("partition", "state", "position", "behind"),
    room=("open_transaction_since", "last_stable_offset", "high_watermark"),
    wide=("loaded",),
)
TOTALS: Final = Form(
    always=("counter", "count"),
    room=(
        "record_type",
        "value_version",
        "last_partition",
        "last_offset",
        "first_partition",
        "first_offset",
    ),
)
ALERTS: Final = Form(
    always=("severity", "rule", "summary"),
    kept=("group", "pattern"),
    room=("opened_at", "closed_at", "undelivered"),
    wide=("id",),
    prose=("summary",),
)
MAINTAIN: Final = Form(
    always=("table", "files_before", "files_after"),
    room=("rows_dropped", "bytes_after", "unused_files_deleted", "log_files"),
)
SQL: Final = Form(is_own=True)
