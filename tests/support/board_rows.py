"""What the board of Grafana shows, row by row: which question each panel answers, and by which query."""

from typing import Final

from board_panels import GREEN, ORANGE, PLAIN, RED, Builder, lines, number, rows

from streaming.lag.health_rules import STATUSES

STATUS_WORDS: Final = {
    str(number): (status, {"OK": GREEN, "UNKNOWN": PLAIN, "WARNING": ORANGE}.get(status, RED))
    for number, status in enumerate(STATUSES)
}

AGES: Final = {0: GREEN, 60: ORANGE, 180: RED}
ANY: Final = {0: GREEN, 1: ORANGE}
"""Where one is one too many."""

OF_TARGET: Final = 'instance="$instance", cluster="$cluster"'
"""Where `serve` names no clusters, `$cluster` is empty, which selects series without the label."""
OF_GROUP: Final = 'group="$group"'
OF_TOPIC: Final = 'topic=~"$topic"'
OLDEST_COMMIT: Final = "group_topic_oldest_commit_timestamp_seconds"


def of(name: str, *selectors: str) -> str:
    """Return the selector of a metric of the target that is shown."""
    return f"offsetlake_{name}{{{', '.join((OF_TARGET, *selectors))}}}"


def rate(name: str, *selectors: str) -> str:
    """Return how many there are in a second of what a counter counts."""
    return f"rate({of(name, *selectors)}[$__rate_interval])"


def _is_it_right() -> list[Builder]:
    return [
        number(
            "Last heartbeat",
            f"time() - {of('heartbeat_timestamp_seconds')}",
            "Age of the last heartbeat. After three minutes metrics of groups end, because commits since "
            "then are not known.",
            unit="s",
            steps=AGES,
            if_none="not known",
            width=3,
        ),
        number(
            "Commits known up to",
            f"time() - min({of('source_complete_timestamp_seconds')})",
            "How long ago, in the offsets partition furthest behind. All panels below are as of that time.",
            unit="s",
            steps={0: GREEN, 60: ORANGE, 300: RED},
            if_none="not known",
            width=3,
        ),
        number(
            "Log ends sampled",
            f"time() - {of('log_ends_timestamp_seconds')}",
            "How long ago the job last sampled log end offsets. After five minutes lag is unknown.",
            unit="s",
            steps={0: GREEN, 120: ORANGE, 300: RED},
            if_none="not known",
            width=3,
        ),
        number(
            "Tables",
            of("tables_readable"),
            "Whether offsetlake serve could read the tables at its last attempt.",
            unit="none",
            words={"0": ("unreadable", RED), "1": ("readable", GREEN)},
            if_none="not known",
            width=3,
        ),
        number(
            "Rebuild",
            of("rebuild_in_progress"),
            "During a rebuild the topic is read again from its beginning; groups have no metrics until it is "
            "done.",
            unit="none",
            words={"0": ("no", GREEN), "1": ("in progress", ORANGE)},
            if_none="not known",
            width=3,
        ),
        number(
            "Alerts evaluated",
            f"time() - {of('alerts_evaluated_timestamp_seconds')}",
            "How long ago the job evaluated its own alert rules.",
            unit="s",
            steps={0: GREEN, 120: ORANGE, 300: RED},
            if_none="not known",
            width=3,
        ),
        number(
            "Undelivered alerts",
            f"sum({of('alerts_undelivered')})",
            "Alerts of the job that have not reached a receiver; `offsetlake status` shows why.",
            unit="none",
            steps=ANY,
            if_none="not known",
            width=3,
        ),
        number(
            "Open alerts",
            f"sum by (severity) ({of('alerts_open')})",
            "Alerts of the job, by severity; `offsetlake alerts` lists them.",
            unit="none",
            steps=ANY,
            legend="{{severity}}",
            if_none="not known",
            width=3,
        ),
        lines(
            "Groups by status",
            {status: f"count({of('group_status')} == {code})" for code, status in enumerate(STATUSES)},
            "Status of the worst partition, as in `offsetlake health`: STOPPED commits nothing while "
            "records are waiting, STALLED repeats the same offset, REWOUND committed an earlier offset, "
            "WARNING has a growing lag.",
            unit="none",
            is_stacked=True,
        ),
        lines(
            "Open alerts by rule",
            {"{{rule}}": f"sum by (rule) ({of('alerts_open')})"},
            "Alerts of the job. docs/alerts.md explains each rule and what to do.",
            unit="none",
            is_stacked=True,
        ),
    ]


def _what_will_be_lost() -> list[Builder]:
    first = f"min by (group) ({of('group_expiry_timestamp_seconds')}) - time()"
    return [
        number(
            "First offset expires in",
            f"min({of('group_expiry_timestamp_seconds')}) - time()",
            "When the broker will drop the first committed offset of any group, if the groups stay as "
            "they are. Consumers then continue at auto.offset.reset.",
            unit="s",
            steps={0: RED, 7_200: ORANGE, 86_400: GREEN},
            if_none="none known",
        ),
        number(
            "Groups that lose offsets within a day",
            f"count({first} < 86400)",
            "Groups whose committed offsets the broker will drop within 24 hours.",
            unit="none",
            steps=ANY,
        ),
        number(
            "Retention of offsets",
            of("offset_retention_seconds"),
            "How long brokers keep the offsets of a group that does not commit (offsets.retention.minutes).",
            unit="s",
            if_none="not known",
        ),
        number(
            "Offsets below the log start",
            f"sum({of('group_topic_offsets_below_log_start')})",
            "Committed offsets whose next records were deleted by retention before the group read them.",
            unit="none",
            steps=ANY,
            width=3,
        ),
        number(
            "Offsets beyond the log end",
            f"sum({of('group_offsets_beyond_log_end')})",
            "Committed offsets beyond the end of their log; consumers continue at auto.offset.reset.",
            unit="none",
            steps=ANY,
            width=3,
        ),
        number(
            "Offsets of recreated topics",
            f"sum({of('group_topic_offsets_of_recreated_topic')})",
            "Committed offsets of a deleted topic of the same name: they point into another log.",
            unit="none",
            steps=ANY,
            width=3,
        ),
        number(
            "Unreadable offsets",
            f"sum({of('group_unreadable_offsets')})",
            "Committed offsets whose newest value could not be read; the table quarantine has the records.",
            unit="none",
            steps=ANY,
            width=3,
        ),
        rows(
            "Next to expire",
            f"bottomk(20, {first})",
            "Groups in the order in which their first offset expires. Start their consumers, "
            "or commit the same offsets again; delete groups that are not needed.",
            unit="s",
            value="Expires in",
            steps={0: RED, 7_200: ORANGE, 86_400: GREEN},
        ),
        lines(
            "Removed offsets, by cause",
            {"{{cause}}": f"sum by (cause) (increase({of('removed_offsets_total')}[$__rate_interval]))"},
            "`expired (probable)`: dropped by the broker. `offsetlake removed` lists them with their last "
            "values and exports them for restoring.",
            unit="none",
            is_stacked=True,
        ),
        rows(
            "Groups that have lost records",
            of("group_topic_offsets_below_log_start"),
            "Offsets below the start of their log. Find out why the group does not keep up, or increase the "
            "retention of the topic.",
            unit="none",
            value="Offsets",
            labels=("group", "topic"),
            width=8,
        ),
        rows(
            "Groups with offsets beyond the log end",
            of("group_offsets_beyond_log_end"),
            "The topic was recreated or has lost records, or the offsets were set by hand. Reset the offsets "
            "before the consumers start.",
            unit="none",
            value="Offsets",
            labels=("group",),
            width=8,
        ),
        rows(
            "Groups with offsets of recreated topics",
            of("group_topic_offsets_of_recreated_topic"),
            "The topic was deleted and recreated after the commit. Reset these offsets, usually to the "
            "earliest.",
            unit="none",
            value="Offsets",
            labels=("group", "topic"),
            width=8,
        ),
    ]


def _lag() -> list[Builder]:
    return [
        lines(
            "Groups furthest behind, in time",
            {"{{group}}": f"topk(10, {of('group_lag_seconds')})"},
            "Time since the log end passed the committed offset, in the worst partition.",
            unit="s",
        ),
        lines(
            "Groups furthest behind, in records",
            {"{{group}}": f"topk(10, {of('group_lag')})"},
            "Log end offset minus committed offset, summed over all partitions of a group.",
            unit="short",
        ),
        rows(
            "Furthest behind now",
            f"topk(50, {of('group_lag_seconds')})",
            "`offsetlake lag` shows the same, with the topic furthest behind.",
            unit="s",
            value="Behind",
            steps={0: GREEN, 300: ORANGE, 3_600: RED},
        ),
        lines(
            "Topics furthest behind, in records",
            {"{{topic}}": f"topk(10, sum by (topic) ({of('group_topic_lag')}))"},
            "Sum of the lag of all groups that read the topic.",
            unit="short",
        ),
    ]


def _progress() -> list[Builder]:
    return [
        lines(
            "Commits",
            {"of all groups": rate("commits_total")},
            "Offset commits read by the job.",
            unit="cps",
        ),
        lines(
            "Groups that commit the most",
            {"{{group}}": f"topk(10, {rate('group_commits_total')})"},
            "A group that commits for each record costs brokers more than it reads.",
            unit="cps",
        ),
        lines(
            "Groups that read the most",
            {
                "{{group}}": "topk(10, sum by (group) "
                f"(clamp_min(deriv({of('group_topic_position')}[$__rate_interval]), 0)))"
            },
            "Rate at which committed offsets rise.",
            unit="recps",
        ),
        lines(
            "Rewinds",
            {"{{group}}": f"topk(10, increase({of('group_rewinds_total')}[$__rate_interval]))"},
            "Commits of an earlier offset. `offsetlake history --event rewind` shows possible originators.",
            unit="none",
        ),
        rows(
            "Groups with problems",
            f"{of('group_status')} >= 3",
            "In at least one partition: STOPPED commits nothing while records are waiting, STALLED repeats "
            "the same offset, REWOUND committed an earlier offset. `offsetlake health` shows where and "
            "since when.",
            unit="none",
            value="Status",
            words=STATUS_WORDS,
        ),
        rows(
            "Groups without commits for longest",
            f"topk(20, time() - {of('group_last_commit_timestamp_seconds')})",
            "Time since the last commit. Groups that are idle for longer than [metrics] idle_after are left "
            "out.",
            unit="s",
            value="Last commit",
        ),
    ]


def _one_group() -> list[Builder]:
    return [
        number(
            "Status",
            of("group_status", OF_GROUP),
            "Status of the group, as in `offsetlake health`.",
            unit="none",
            words=STATUS_WORDS,
            if_none="not known",
        ),
        number(
            "Type and state",
            of("group_info", OF_GROUP),
            "Type of the group, and its state as logged by the coordinator.",
            unit="none",
            legend="{{type}} {{state}}",
            is_name=True,
            if_none="not known",
        ),
        number(
            "Members",
            of("group_members", OF_GROUP),
            "Members of the group. Consumers that assign partitions themselves are not members.",
            unit="none",
            if_none="not known",
        ),
        number(
            "Lag in time",
            of("group_lag_seconds", OF_GROUP),
            "Time since the log end passed the committed offset, in the worst partition.",
            unit="s",
            if_none="not known",
        ),
        number(
            "Last commit",
            f"time() - {of('group_last_commit_timestamp_seconds', OF_GROUP)}",
            "Time since the last commit of the group.",
            unit="s",
            if_none="not known",
        ),
        number(
            "First offset of the group expires in",
            f"min({of('group_expiry_timestamp_seconds', OF_GROUP)}) - time()",
            "When the broker will drop the first committed offset of the group, if the group stays as it is.",
            unit="s",
            steps={0: RED, 7_200: ORANGE, 86_400: GREEN},
            if_none="none known",
        ),
        lines(
            "Lag in time, by topic",
            {"{{topic}}": of("group_topic_lag_seconds", OF_GROUP, OF_TOPIC)},
            "Time since the log end passed the committed offset, in the worst partition of each topic.",
            unit="s",
        ),
        lines(
            "Lag in records, by topic",
            {"{{topic}}": of("group_topic_lag", OF_GROUP, OF_TOPIC)},
            "Log end offset minus committed offset, summed over the partitions of a topic.",
            unit="short",
        ),
        lines(
            "Records read, by topic",
            {
                "{{topic}}": "clamp_min(deriv("
                f"{of('group_topic_position', OF_GROUP, OF_TOPIC)}[$__rate_interval]), 0)"
            },
            "Rate at which committed offsets rise.",
            unit="recps",
        ),
        lines(
            "Commits and rewinds",
            {
                "commits": rate("group_commits_total", OF_GROUP),
                "rewinds": rate("group_rewinds_total", OF_GROUP),
            },
            "Offset commits, and commits of an earlier offset.",
            unit="cps",
        ),
        lines(
            "Longest time without a commit in a partition, by topic",
            {"{{topic}}": f"time() - {of(OLDEST_COMMIT, OF_GROUP, OF_TOPIC)}"},
            "Shows a stuck partition first, while others continue.",
            unit="s",
        ),
        rows(
            "Topics",
            of("group_topic_subscribed", OF_GROUP),
            "Whether the group still subscribes to the topics for which it has committed offsets. Offsets of "
            "other topics expire.",
            unit="none",
            value="Subscribed",
            labels=("topic",),
            words={"0": ("no", ORANGE), "1": ("yes", GREEN)},
        ),
    ]


def _offsetlake_itself() -> list[Builder]:
    kinds = ("decoded", "tombstones", "malformed", "wrong_partition", "clamped", "unknown")
    return [
        number("Groups", of("groups"), "Number of known groups.", unit="short", if_none="not known"),
        number(
            "Committed offsets",
            of("committed_offsets"),
            "Known committed offsets of all groups.",
            unit="short",
            if_none="not known",
        ),
        number(
            "Offsets partitions not loaded",
            f"count({of('source_loaded')} == 0)",
            "Offsets partitions not read to their end yet: their groups have no metrics.",
            unit="none",
            steps=ANY,
        ),
        number(
            "Lag and status computed",
            f"time() - {of('assessment_timestamp_seconds')}",
            "How long ago offsetlake serve computed lag, status and expiry.",
            unit="s",
            steps={0: GREEN, 120: ORANGE, 600: RED},
            if_none="not known",
        ),
        number(
            "Series left out",
            of("series_withheld"),
            "By reason: `idle` and `granularity` follow from [metrics], `incomplete` are groups whose data "
            "is incomplete, `max_series` are groups beyond that limit.",
            unit="short",
            legend="{{reason}}",
        ),
        number(
            "Connections to the Kafka listener",
            of("kafka_connections"),
            "Kafka clients connected to offsetlake serve.",
            unit="none",
            if_none="not open",
        ),
        lines(
            "Records of the offsets topic",
            {kind: rate(f"records_{kind}_total") for kind in kinds},
            "Malformed: kept in the table quarantine. Misplaced: ignored, as by brokers. Unknown: need a "
            "newer release of offsetlake.",
            unit="recps",
        ),
        lines(
            "Unread records, by offsets partition",
            {"{{source_partition}}": f"topk(10, {of('source_lag')})"},
            "How far the job is behind the offsets topic.",
            unit="short",
        ),
        lines(
            "Offsets partitions with an open transaction or without answer",
            {
                "{{source_partition}}: transaction": (
                    f"time() - {of('source_open_transaction_timestamp_seconds')}"
                ),
                "{{source_partition}}: no answer": f"time() - {of('source_unanswered_timestamp_seconds')}",
            },
            "How long an open transaction has hidden newer commits, or the leader has not answered.",
            unit="s",
        ),
        lines(
            "Time to build a response",
            {"{{step}}": of("build_duration_seconds")},
            "Time that offsetlake serve needed for the response to a scrape, by step.",
            unit="s",
        ),
        lines(
            "Requests to the Kafka listener",
            {"{{api}}": f"sum by (api) ({rate('kafka_requests_total')})"},
            "By Kafka's name of the API.",
            unit="reqps",
            is_stacked=True,
            width=6,
        ),
        lines(
            "Requests to the Kafka listener, by client",
            {
                "{{client_software_name}} {{client_software_version}}": (
                    f"topk(10, {rate('kafka_client_requests_total')})"
                )
            },
            "By the name and version of the client's software, as the client states them.",
            unit="reqps",
            width=6,
        ),
        lines(
            "Errors in responses of the Kafka listener",
            {"{{api}}: {{error}}": f"{rate('kafka_errors_total')} > 0"},
            "By Kafka's names. Each group, topic or partition with an error counts. *_AUTHORIZATION_FAILED: "
            "a client asked for what it may not see, or for a change.",
            unit="cps",
            width=6,
        ),
        lines(
            "Connections closed by the Kafka listener",
            {"{{reason}}": f"sum by (reason) ({rate('kafka_connections_closed_total')})"},
            "By reason: see offsetlake_kafka_connections_closed_total in docs/metrics.md. `idle` is normal; "
            "for other reasons check the log of offsetlake serve.",
            unit="cps",
            is_stacked=True,
            width=6,
        ),
        lines(
            "Snapshots of past moments",
            {
                "held": of("kafka_past_snapshots"),
                "read": f"increase({of('kafka_past_snapshots_built_total')}[$__rate_interval])",
            },
            "For Kafka clients that ask about the past. Each takes as much memory as the present one.",
            unit="short",
            width=8,
        ),
        lines(
            "Duration of batches",
            {"batch": of("batch_duration_seconds")},
            "Newest batch, from its trigger until after its commit. A batch that takes longer than [job] "
            "trigger delays the next one, and everything shown here.",
            unit="s",
            width=8,
        ),
        lines(
            "Age of the newest batch",
            {"batch": f"time() - {of('batch_timestamp_seconds')}"},
            "Time since the last change of the tables. Without commits nothing changes.",
            unit="s",
            width=8,
        ),
    ]


ROWS: Final = {
    "Overview": _is_it_right,
    "Expiry and loss": _what_will_be_lost,
    "Lag": _lag,
    "Progress": _progress,
    "One group: $group": _one_group,
    "offsetlake itself": _offsetlake_itself,
}
