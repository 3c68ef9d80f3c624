"""What the board of Grafana shows, row by row: which question each panel answers, and by which query."""

from typing import Final

from board_panels import GREEN, ORANGE, PLAIN, RED, Builder, lines, number, rows

from streaming.lag.rules import STATUSES

STATUS_WORDS: Final = {
    str(number): (status, {"OK": GREEN, "UNKNOWN": PLAIN, "WARNING": ORANGE}.get(status, RED))
    for number, status in enumerate(STATUSES)
}

AGES: Final = {0: GREEN, 60: ORANGE, 180: RED}
ANY: Final = {0: GREEN, 1: ORANGE}
"""Where one is one too many."""

OF_TARGET: Final = 'instance="$instance"'
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
            "How long ago the job said that it is alive. Three minutes later metrics of groups end, for "
            "groups may have gone on without the job.",
            unit="s",
            steps=AGES,
            if_none="not known",
            width=3,
        ),
        number(
            "Commits known up to",
            f"time() - min({of('source_complete_timestamp_seconds')})",
            "How long ago that was, in the offsets partition that is the furthest behind. Everything below "
            "is as of then.",
            unit="s",
            steps={0: GREEN, 60: ORANGE, 300: RED},
            if_none="not known",
            width=3,
        ),
        number(
            "Log ends sampled",
            f"time() - {of('log_ends_timestamp_seconds')}",
            "How long ago the job asked the brokers where logs end. After five minutes lag is not known any "
            "more.",
            unit="s",
            steps={0: GREEN, 120: ORANGE, 300: RED},
            if_none="not known",
            width=3,
        ),
        number(
            "Tables",
            of("tables_readable"),
            "Whether offsetlake serve could read the tables when it last looked.",
            unit="none",
            words={"0": ("unreadable", RED), "1": ("readable", GREEN)},
            if_none="not known",
            width=3,
        ),
        number(
            "Topic read again",
            of("rebuild_in_progress"),
            "During a rebuild the topic is read again from its beginning; until that is done there are no "
            "metrics of groups.",
            unit="none",
            words={"0": ("no", GREEN), "1": ("in progress", ORANGE)},
            if_none="not known",
            width=3,
        ),
        number(
            "Alerts evaluated",
            f"time() - {of('alerts_evaluated_timestamp_seconds')}",
            "How long ago the job evaluated the rules of its own alerts.",
            unit="s",
            steps={0: GREEN, 120: ORANGE, 300: RED},
            if_none="not known",
            width=3,
        ),
        number(
            "Undelivered alerts",
            f"sum({of('alerts_undelivered')})",
            "Alerts of offsetlake itself that have not reached a receiver: `offsetlake status` says why.",
            unit="none",
            steps=ANY,
            if_none="not known",
            width=3,
        ),
        number(
            "Open alerts",
            f"sum by (severity) ({of('alerts_open')})",
            "Alerts of offsetlake itself, by severity: `offsetlake alerts` lists them.",
            unit="none",
            steps=ANY,
            legend="{{severity}}",
            if_none="not known",
            width=3,
        ),
        lines(
            "Groups by status",
            {status: f"count({of('group_status')} == {code})" for code, status in enumerate(STATUSES)},
            "As `offsetlake health` judges them, by their worst partition: STOPPED commits nothing while "
            "records wait, STALLED commits one offset again and again, REWOUND went back, WARNING falls "
            "further behind.",
            unit="none",
            is_stacked=True,
        ),
        lines(
            "Open alerts by rule",
            {"{{rule}}": f"sum by (rule) ({of('alerts_open')})"},
            "Alerts of offsetlake itself. What each rule means, and what to do, is in docs/alerts.md.",
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
            "When the broker will drop the first committed offset of any group, unless the group commits "
            "again. Consumers then continue at auto.offset.reset.",
            unit="s",
            steps={0: RED, 7_200: ORANGE, 86_400: GREEN},
            if_none="none known",
        ),
        number(
            "Groups that lose offsets within a day",
            f"count({first} < 86400)",
            "Groups of which the broker will drop committed offsets within 24 hours.",
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
            "Committed offsets whose next records data retention has deleted: the groups have lost them.",
            unit="none",
            steps=ANY,
            width=3,
        ),
        number(
            "Offsets beyond the log end",
            f"sum({of('group_offsets_beyond_log_end')})",
            "Committed offsets that are not in their log yet: consumers continue at auto.offset.reset.",
            unit="none",
            steps=ANY,
            width=3,
        ),
        number(
            "Offsets of former topics",
            f"sum({of('group_topic_offsets_of_former_topic')})",
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
            "Groups in the order in which the broker will drop their first offset. Start their consumers, "
            "or commit the same offsets again; delete groups that are not needed.",
            unit="s",
            value="Expires in",
            steps={0: RED, 7_200: ORANGE, 86_400: GREEN},
        ),
        lines(
            "Offsets that went, by cause",
            {"{{cause}}": f"sum by (cause) (increase({of('retired_offsets_total')}[$__rate_interval]))"},
            "`expired (probable)` is what the broker dropped; `offsetlake retired` lists them with their "
            "last values, and can put them back.",
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
            "The topic was made anew, has lost records, or the offsets were set by hand. Choose where the "
            "consumers are to continue, and reset the offsets before they start.",
            unit="none",
            value="Offsets",
            labels=("group",),
            width=8,
        ),
        rows(
            "Groups with offsets of former topics",
            of("group_topic_offsets_of_former_topic"),
            "The topic was deleted and made anew after the commit. Reset these offsets, most often to the "
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
            "Groups that are the longest behind",
            {"{{group}}": f"topk(10, {of('group_lag_seconds')})"},
            "How long ago the log went past what the group has committed, in its worst partition.",
            unit="s",
        ),
        lines(
            "Groups with the most records to read",
            {"{{group}}": f"topk(10, {of('group_lag')})"},
            "Log end offset - committed offset, over all partitions of a group.",
            unit="short",
        ),
        rows(
            "Furthest behind now",
            f"topk(50, {of('group_lag_seconds')})",
            "`offsetlake lag` shows the same, with the topic that is the furthest behind.",
            unit="s",
            value="Behind",
            steps={0: GREEN, 300: ORANGE, 3_600: RED},
        ),
        lines(
            "Topics with the most records to read",
            {"{{topic}}": f"topk(10, sum by (topic) ({of('group_topic_lag')}))"},
            "The lag of all groups that read a topic, together.",
            unit="short",
        ),
    ]


def _progress() -> list[Builder]:
    return [
        lines(
            "Commits",
            {"of all groups": rate("commits_total")},
            "Commits of offsets, as offsetlake has read them.",
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
            "By how much committed offsets rise.",
            unit="recps",
        ),
        lines(
            "Rewinds",
            {"{{group}}": f"topk(10, increase({of('group_rewinds_total')}[$__rate_interval]))"},
            "Commits below the offset before. `offsetlake history --event rewind` says who can have done it.",
            unit="none",
        ),
        rows(
            "Groups that are not well",
            f"{of('group_status')} >= 3",
            "In a partition at least: STOPPED commits nothing while records wait, STALLED commits one offset "
            "again and again, REWOUND went back. `offsetlake health` says in which, and since when.",
            unit="none",
            value="Status",
            words=STATUS_WORDS,
        ),
        rows(
            "Silent for the longest time",
            f"topk(20, time() - {of('group_last_commit_timestamp_seconds')})",
            "How long ago the group has last committed. Groups that are idle for longer than [metrics] "
            "idle_after are left out.",
            unit="s",
            value="Silent for",
        ),
    ]


def _one_group() -> list[Builder]:
    return [
        number(
            "Status",
            of("group_status", OF_GROUP),
            "Whether the group is well, as `offsetlake health` says.",
            unit="none",
            words=STATUS_WORDS,
            if_none="not known",
        ),
        number(
            "Type and state",
            of("group_info", OF_GROUP),
            "Of which type the group is, and its state as the coordinator wrote it.",
            unit="none",
            legend="{{type}} {{state}}",
            is_name=True,
            if_none="not known",
        ),
        number(
            "Members",
            of("group_members", OF_GROUP),
            "Members of the group. Consumers that assign partitions themselves are none.",
            unit="none",
            if_none="not known",
        ),
        number(
            "How far behind",
            of("group_lag_seconds", OF_GROUP),
            "How long ago the log went past what the group has committed, in its worst partition.",
            unit="s",
            if_none="not known",
        ),
        number(
            "Last commit",
            f"time() - {of('group_last_commit_timestamp_seconds', OF_GROUP)}",
            "How long ago the group has last committed.",
            unit="s",
            if_none="not known",
        ),
        number(
            "Its first offset expires in",
            f"min({of('group_expiry_timestamp_seconds', OF_GROUP)}) - time()",
            "When the broker will drop the first committed offset of the group, if the group stays as it is.",
            unit="s",
            steps={0: RED, 7_200: ORANGE, 86_400: GREEN},
            if_none="none known",
        ),
        lines(
            "Behind, by topic",
            {"{{topic}}": of("group_topic_lag_seconds", OF_GROUP, OF_TOPIC)},
            "How long ago the log of a partition went past what the group has committed: the longest of "
            "each topic.",
            unit="s",
        ),
        lines(
            "Records to read, by topic",
            {"{{topic}}": of("group_topic_lag", OF_GROUP, OF_TOPIC)},
            "Log end offset - committed offset, over the partitions of a topic.",
            unit="short",
        ),
        lines(
            "Records read, by topic",
            {
                "{{topic}}": "clamp_min(deriv("
                f"{of('group_topic_position', OF_GROUP, OF_TOPIC)}[$__rate_interval]), 0)"
            },
            "By how much committed offsets rise.",
            unit="recps",
        ),
        lines(
            "Commits and rewinds",
            {
                "commits": rate("group_commits_total", OF_GROUP),
                "rewinds": rate("group_rewinds_total", OF_GROUP),
            },
            "Commits of offsets, and those of them that went back.",
            unit="cps",
        ),
        lines(
            "Partition that waits for a commit the longest, by topic",
            {"{{topic}}": f"time() - {of(OLDEST_COMMIT, OF_GROUP, OF_TOPIC)}"},
            "A partition that is stuck while others go on shows here first.",
            unit="s",
        ),
        rows(
            "Topics",
            of("group_topic_subscribed", OF_GROUP),
            "Whether the group still subscribes to the topics of which it has committed offsets. Offsets of "
            "topics that it has left expire.",
            unit="none",
            value="Subscribed",
            labels=("topic",),
            words={"0": ("no", ORANGE), "1": ("yes", GREEN)},
        ),
    ]


def _offsetlake_itself() -> list[Builder]:
    kinds = ("decoded", "tombstones", "malformed", "misplaced", "clamped", "unknown")
    return [
        number("Groups", of("groups"), "Groups that are known.", unit="short", if_none="not known"),
        number(
            "Committed offsets",
            of("committed_offsets"),
            "Committed offsets that are known, of all groups.",
            unit="short",
            if_none="not known",
        ),
        number(
            "Offsets partitions not loaded",
            f"count({of('source_loaded')} == 0)",
            "Offsets partitions that were never read to their end: their groups have no metrics.",
            unit="none",
            steps=ANY,
        ),
        number(
            "Lag and status worked out",
            f"time() - {of('standing_timestamp_seconds')}",
            "How long ago offsetlake serve worked out lag, the status of groups and expiry.",
            unit="s",
            steps={0: GREEN, 120: ORANGE, 600: RED},
            if_none="not known",
        ),
        number(
            "Series left out",
            of("series_withheld"),
            "By reason: `idle` and `granularity` are as [metrics] says, `incomplete` are groups that cannot "
            "be judged now, and `max_series` are all of the groups that there is no room for.",
            unit="short",
            legend="{{reason}}",
        ),
        number(
            "Connections at the Kafka door",
            of("kafka_connections"),
            "Clients that are connected to offsetlake serve by Kafka's protocol.",
            unit="none",
            if_none="not open",
        ),
        lines(
            "Records of the offsets topic",
            {kind: rate(f"records_{kind}_total") for kind in kinds},
            "Malformed ones are in the quarantine, misplaced ones are ignored as brokers do, unknown ones "
            "need a newer release of offsetlake.",
            unit="recps",
        ),
        lines(
            "Records to be read, by offsets partition",
            {"{{source_partition}}": f"topk(10, {of('source_lag')})"},
            "How far the job is behind the offsets topic.",
            unit="short",
        ),
        lines(
            "Offsets partitions that are held back",
            {
                "{{source_partition}}: transaction": f"time() - {of('source_held_back_timestamp_seconds')}",
                "{{source_partition}}: no answer": f"time() - {of('source_unanswered_timestamp_seconds')}",
            },
            "For how long an open transaction has hidden commits from everyone who reads committed data, or "
            "the leader has not answered.",
            unit="s",
        ),
        lines(
            "What an answer costs",
            {"{{step}}": of("build_duration_seconds")},
            "How long offsetlake serve worked for the answer to a scrape, by step.",
            unit="s",
        ),
        lines(
            "Requests at the Kafka door",
            {"{{api}}": f"sum by (api) ({rate('kafka_requests_total')})"},
            "By Kafka's name of the request.",
            unit="reqps",
            is_stacked=True,
            width=6,
        ),
        lines(
            "Connections closed by the Kafka door",
            {"{{reason}}": f"sum by (reason) ({rate('kafka_connections_closed_total')})"},
            "By the reason: see offsetlake_kafka_connections_closed_total in docs/metrics.md. `idle` is as "
            "usual, the others are worth a look at the log.",
            unit="cps",
            is_stacked=True,
            width=6,
        ),
        lines(
            "How long batches take",
            {"batch": of("batch_duration_seconds")},
            "Of the newest batch, from its trigger to after its commit. Batches begin as often as [job] "
            "trigger says; one that takes longer than that delays the next, and so all that is shown here.",
            unit="s",
            width=6,
        ),
        lines(
            "Age of the newest batch",
            {"batch": f"time() - {of('batch_timestamp_seconds')}"},
            "How long ago anything changed in the tables. Where nobody commits, nothing changes.",
            unit="s",
            width=6,
        ),
    ]


ROWS: Final = {
    "Is it right now": _is_it_right,
    "What will be lost": _what_will_be_lost,
    "Lag": _lag,
    "Progress": _progress,
    "One group: $group": _one_group,
    "offsetlake itself": _offsetlake_itself,
}
