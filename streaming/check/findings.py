"""One finding for each check, from the answers of the brokers (pure).

`failed`: the job cannot run. `warning`: the job can run, but something will be missing. `unknown`: the
brokers did not report the fact, or the check was not made.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from streaming.brokers.facts import (
    DEFAULT_DELETE_RETENTION_MS,
    DELETE_RETENTION,
    RETENTION,
    BrokerSettings,
    ClusterFacts,
    NoAnswer,
    TopicState,
    agreed_retention,
)
from streaming.check.kinds import Kind
from streaming.common.escapes import printable
from streaming.common.times import MINUTE_MS, in_words, iso
from streaming.model.progress import PartitionEnds
from streaming.settings.model import OFFSETS_TOPIC

Result = Literal["ok", "warning", "failed", "unknown"]

LIBRDKAFKA: Final = "sign-in, librdkafka"
JAVA: Final = "sign-in, Java"
TOPIC: Final = "topic"
BROKERS: Final = "brokers"
PARTITIONS: Final = "partitions"
RECORDS: Final = "records"
CLUSTER_SETTINGS: Final = "cluster settings"
TOPIC_SETTINGS: Final = "topic settings"
RELEASE: Final = "release"
CLOCKS: Final = "clocks"
GROUPS: Final = "own group"
READ: Final = "read"
TOPICS_OF_GROUPS: Final = "topics of groups"

OF_TOPIC: Final = (PARTITIONS, RECORDS, TOPIC_SETTINGS)
OF_SIGN_IN: Final = (TOPIC, BROKERS, CLUSTER_SETTINGS, *OF_TOPIC)
OF_RECORDS: Final = (GROUPS, READ, TOPICS_OF_GROUPS)
OF_JAVA: Final = (RELEASE, *OF_RECORDS, CLOCKS)
"""Checks that are not made without the topic, without a sign-in, and so on."""

RECORDS_PER_SECOND: Final = 176_000
"""How fast the job reads a topic with many keys on two cores (docs/performance.md, Catch-up)."""

CLOCKS_APART_MS: Final = 2_000
"""The largest difference of clocks that agree: alerts and queries are precise to the second."""

_NAMED: Final = 3

OLDEST: Final = "3.9"
_RELEASES: Final[Mapping[int, str]] = {
    7: "3.3",
    8: "3.4",
    11: "3.5",
    14: "3.6",
    19: "3.7",
    20: "3.8",
    21: "3.9",
    25: "4.0",
    27: "4.1",
    29: "4.2",
    30: "4.3",
    33: "4.4",
}
"""By the highest `metadata.version` that a release supports (MetadataVersion.LATEST_PRODUCTION)."""


@dataclass(frozen=True)
class Finding:
    """The result of one check: what was found, and what to do (empty: nothing)."""

    check: str
    result: Result
    found: str
    advice: str = ""


def is_fatal(findings: Iterable[Finding]) -> bool:
    """Whether the job cannot run."""
    return any(one.result == "failed" for one in findings)


def not_asked(checks: Iterable[str], why: str) -> list[Finding]:
    """Return a finding for each check that was not made."""
    return [Finding(check, "unknown", f"not checked: {why}") for check in checks]


# --- brokers and the topic -------------------------------------------------------------------------------


def sign_in(answer: ClusterFacts | NoAnswer, servers: str, kind: Kind | None, limit_s: float) -> Finding:
    """Whether librdkafka signed in, and to which cluster."""
    probably = f"; probably {kind.name}" if kind else ""
    if isinstance(answer, NoAnswer):
        return Finding(
            LIBRDKAFKA, "failed", _unanswered(answer, servers, limit_s) + probably, advice_of(answer)
        )
    name = f"cluster {printable(answer.cluster_id)}" if answer.cluster_id else "a cluster without an id"
    return Finding(LIBRDKAFKA, "ok", f"{name}, {_count(len(answer.addresses), 'broker')}{probably}")


def topic(name: str, partition_count: int, error: str | NoAnswer, kind: Kind | None) -> Finding:
    """Whether the topic exists, and this user may see it (Describe); `error` is Kafka's name of the error if
    the topic has no partitions."""
    shown = printable(name)
    if partition_count:
        return Finding(TOPIC, "ok", f"{shown} has {_count(partition_count, 'partition')}")
    if isinstance(error, NoAnswer):
        return Finding(TOPIC, "failed", f"{shown}: {error.reason}", advice_of(error))
    if name == OFFSETS_TOPIC and kind is not None and kind.lacks_topic:
        found = f"no topic {shown} for this user; the cluster is probably {kind.name}: {kind.lacks_topic}"
        return Finding(TOPIC, "failed", found, "The job cannot run with this cluster.")
    if error == "TOPIC_AUTHORIZATION_FAILED":
        found = f"this user may not see topic {shown}"
        return Finding(TOPIC, "failed", found, f"Grant Read on topic {shown} (docs/security.md).")
    if name != OFFSETS_TOPIC:
        return Finding(TOPIC, "failed", f"no topic {shown} ({error})", "Check --topic.")
    probably = f"; the cluster is probably {kind.name}" if kind else ""
    advice = "Brokers create the topic at the first request about a group; the job waits for the topic."
    return Finding(TOPIC, "warning", f"no topic {shown} yet{probably}", advice)


def unreached(settings: Mapping[int, BrokerSettings | NoAnswer]) -> dict[int, str]:
    """Return the brokers that did not answer, with the reason; one that denied its settings has answered."""
    return {
        broker: answer.reason
        for broker, answer in settings.items()
        if isinstance(answer, NoAnswer) and answer.kind in ("silent", "refused")
    }


def brokers(
    addresses: Mapping[int, str],
    settings: Mapping[int, BrokerSettings | NoAnswer],
    leading: Collection[int | None],
) -> Finding:
    """Whether each broker answers at the address that it advertises; `leading` are the leaders of the
    topic's partitions: without them the topic cannot be read."""
    reasons = unreached(settings)
    if not reasons:
        return Finding(
            BROKERS, "ok", f"{len(settings)} of {len(settings)} answer at their advertised addresses"
        )
    silent = [f"broker {broker} at {addresses[broker]} ({reasons[broker]})" for broker in sorted(reasons)]
    lead = sorted(reasons.keys() & set(leading))
    leads = f"; leaders of the topic's partitions: {', '.join(map(str, lead))}" if lead else ""
    return Finding(
        BROKERS,
        "failed" if lead else "warning",
        f"no answer from {_some(silent)}{leads}",
        "These are the addresses that the brokers advertise (advertised.listeners): this machine and the "
        "machines of Spark's executors must reach them.",
    )


def partitions(
    addresses: Mapping[int, str], leaders: Mapping[int, int | None], ends: Collection[int]
) -> Finding:
    """Whether each partition has a leader that reports the end; `ends`: the partitions with a known end."""
    orphans = sorted(number for number, leader in leaders.items() if leader is None)
    if orphans:
        found = f"no leader for {_count(len(orphans), 'partition')}: {_some(orphans)}"
        return Finding(
            PARTITIONS, "failed", found, "Start the brokers that have replicas of these partitions."
        )
    silent = sorted(leaders.keys() - set(ends))
    if silent:
        by = sorted({leaders[number] for number in silent} - {None}, key=str)
        named = [f"broker {leader} at {addresses.get(leader or 0, 'an unknown address')}" for leader in by]
        found = (
            f"{_some(named)} did not report the end of {_count(len(silent), 'partition')}: {_some(silent)}"
        )
        return Finding(PARTITIONS, "failed", found, "The job waits for these brokers.")
    return Finding(PARTITIONS, "ok", "each has a leader that answers")


def records(starts: Mapping[int, int], ends: Mapping[int, PartitionEnds], partition_count: int) -> Finding:
    """The largest possible number of records to read: offsets from the start to the last stable offset."""
    known = starts.keys() & ends.keys()
    if len(known) < partition_count:
        missing = partition_count - len(known)
        return Finding(RECORDS, "unknown", f"unknown start or end of {_count(missing, 'partition')}")
    count = sum(max(ends[number].last_stable_offset - starts[number], 0) for number in known)
    if not count:
        return Finding(RECORDS, "ok", "none to read")
    time = in_words(max(1_000, count * 1_000 // RECORDS_PER_SECOND))
    return Finding(RECORDS, "ok", f"at most {_count(count, 'record')} to read, about {time} on two cores")


def cluster_settings(
    topic_name: str, settings: Mapping[int, BrokerSettings | NoAnswer], own_retention_ms: int | None
) -> Finding:
    """Whether it is known how long brokers retain offsets (DescribeConfigs on the cluster)."""
    if own_retention_ms is not None:
        return Finding(
            CLUSTER_SETTINGS, "ok", f"offsets are retained for {in_words(own_retention_ms)} ([expiry])"
        )
    if topic_name != OFFSETS_TOPIC:
        found = f"topic {printable(topic_name)} may be a copy from another cluster with an unknown retention"
        return Finding(
            CLUSTER_SETTINGS, "warning", found, "Set [expiry] retention: otherwise expiry is not predicted."
        )
    told = {broker: answer for broker, answer in settings.items() if isinstance(answer, BrokerSettings)}
    silent = {broker: answer.reason for broker, answer in settings.items() if isinstance(answer, NoAnswer)}
    if not told:
        return _untold_retention([one for one in settings.values() if isinstance(one, NoAnswer)])
    agreed = agreed_retention(told, silent)
    found = f"{RETENTION} is {agreed.retention_ms // MINUTE_MS} ({in_words(agreed.retention_ms)})"
    if agreed.warning is None:
        return Finding(CLUSTER_SETTINGS, "ok", found)
    return Finding(CLUSTER_SETTINGS, "warning", f"{found}; {agreed.warning}", "Align the brokers' settings.")


def _untold_retention(answers: Collection[NoAnswer]) -> Finding:
    reasons = {answer.kind: answer.reason for answer in answers}
    reason = reasons.get("denied") or next(iter(reasons.values()), "no broker in the cluster")
    grant = "Grant DescribeConfigs on the cluster, or set" if "denied" in reasons else "Set"
    return Finding(
        CLUSTER_SETTINGS,
        "unknown" if reasons.keys() <= {"silent", "refused"} else "warning",
        f"{RETENTION}: {reason}",
        f"{grant} [expiry] retention: without the retention, expiry is not predicted.",
    )


def topic_settings(name: str, answer: int | NoAnswer) -> Finding:
    """Whether it is known how long tombstones are retained (DescribeConfigs on the topic)."""
    if isinstance(answer, int):
        return Finding(TOPIC_SETTINGS, "ok", f"{DELETE_RETENTION} is {answer} ({in_words(answer)})")
    assumed = f"{in_words(DEFAULT_DELETE_RETENTION_MS)} is assumed"
    found = f"{DELETE_RETENTION}: {answer.reason}; {assumed}"
    if answer.kind != "denied":
        return Finding(TOPIC_SETTINGS, "unknown", found)
    return Finding(TOPIC_SETTINGS, "warning", found, f"Grant DescribeConfigs on topic {printable(name)}.")


# --- Kafka's Java client ---------------------------------------------------------------------------------


def java_sign_in(answer: str | NoAnswer, servers: str, limit_s: float) -> Finding:
    """Whether Spark's Kafka client signed in; the answer is its release."""
    if isinstance(answer, NoAnswer):
        return Finding(JAVA, "failed", _unanswered(answer, servers, limit_s), advice_of(answer))
    return Finding(JAVA, "ok", f"Kafka's client {answer} of Spark's connector")


def release(level: int | NoAnswer | None) -> Finding:
    """Which release a broker is of, by the highest `metadata.version` that it supports."""
    if isinstance(level, NoAnswer):
        return Finding(RELEASE, "unknown", level.reason)
    if level is None:
        advice = f"The job is tested with Kafka {OLDEST} and newer."
        return Finding(RELEASE, "unknown", "the broker reports no metadata.version", advice)
    known = [most for most in _RELEASES if most >= level]
    if not known:
        found = f"newer than Kafka {_RELEASES[max(_RELEASES)]} (metadata.version {level})"
        return Finding(RELEASE, "ok", found, "The job was not tested with this release of Kafka.")
    name = _RELEASES[min(known)]
    if level < min(most for most, one in _RELEASES.items() if one == OLDEST):
        advice = f"The job is tested with Kafka {OLDEST} and newer."
        return Finding(RELEASE, "warning", f"Kafka {name} or older", advice)
    return Finding(RELEASE, "ok", f"Kafka {name}")


def clocks(
    controller: int | NoAnswer | None, asked_at: int, answered_at: int, newest_record: int | None
) -> Finding:
    """Whether the clocks of the active controller and of this machine agree.

    `controller` is the controller's time, `asked_at` and `answered_at` are times of this machine before and
    after the request. Without the controller's time, the time of the newest record can only show that a
    broker's clock is ahead. All in ms.
    """
    if isinstance(controller, int):
        ahead = max(controller - answered_at, 0) or min(controller - asked_at, 0)
        if abs(ahead) <= CLOCKS_APART_MS:
            return Finding(CLOCKS, "ok", "the clocks of the active controller and of this machine agree")
        return _clocks_differ("the active controller", in_words(abs(ahead)), is_ahead=ahead > 0)
    if newest_record is not None and newest_record - answered_at > CLOCKS_APART_MS:
        by = f"at least {in_words(newest_record - answered_at)} (a record of {iso(newest_record)})"
        return _clocks_differ("a broker", by, is_ahead=True)
    sign = "" if newest_record is None else "; no record has a time in the future of this machine"
    if isinstance(controller, NoAnswer) and controller.kind == "denied":
        found = f"this user may not request the time of the controller{sign}"
        return Finding(CLOCKS, "unknown", found, "Optional: grant Describe on the cluster.")
    why = "the cluster does not report its time" if controller is None else controller.reason
    return Finding(CLOCKS, "unknown", f"{why}{sign}")


def _clocks_differ(whose: str, by: str, *, is_ahead: bool) -> Finding:
    found = f"the clock of {whose} is {by} {'ahead of' if is_ahead else 'behind'} the clock of this machine"
    advice = "Correct the wrong clock: expiry and lag time are computed from the times of both machines."
    return Finding(CLOCKS, "warning", found, advice)


def own_group(answer: NoAnswer | None, prefix: str) -> Finding:
    """Whether Spark's connector may request the offsets of its own group (Describe on the group)."""
    if answer is None:
        return Finding(GROUPS, "ok", f"this user may describe groups {prefix}*")
    if answer.kind == "denied":
        advice = f"Grant Describe on groups {prefix}*: Spark's connector requests offsets of its own group."
        return Finding(GROUPS, "failed", answer.reason, advice)
    return Finding(GROUPS, "failed", answer.reason, advice_of(answer))


def read(name: str, answer: int | NoAnswer) -> Finding:
    """Whether records can be read (Read on the topic); the answer is the number of records that were read."""
    if isinstance(answer, int):
        found = (
            f"{_count(answer, 'record')} of {printable(name)} read"
            if answer
            else "allowed; there was no record to read"
        )
        return Finding(READ, "ok", found)
    advice = f"Grant Read on topic {printable(name)}." if answer.kind == "denied" else advice_of(answer)
    return Finding(READ, "failed", answer.reason, advice)


def topics_of_groups(states: Mapping[str, TopicState]) -> Finding:
    """Whether the topics in the commits that were read can be described (Describe on each)."""
    denied = sorted(name for name, state in states.items() if state.error == "TOPIC_AUTHORIZATION_FAILED")
    if denied:
        how_many = f"{len(denied)} of {len(states)} in the newest commits"
        found = f"{how_many} are hidden from this user: {_named(denied)}"
        advice = "Grant Describe on the topics that groups consume: hidden topics have no lag."
        return Finding(TOPICS_OF_GROUPS, "warning", found, advice)
    if not states:
        return Finding(TOPICS_OF_GROUPS, "unknown", "no commit among the records that were read")
    found = f"{_count(len(states), 'topic')} in the newest commits, none hidden from this user"
    return Finding(TOPICS_OF_GROUPS, "ok", found)


# --- words -----------------------------------------------------------------------------------------------

_CREDENTIALS: Final = "Check user, password and sasl.mechanism (--command-config)."
_ADVICE: Final = (
    (
        r"certificat|CertPath|SslAuthentication|No subject alternative",
        (
            "Check ssl.truststore.location (--command-config), and that the brokers' certificates are valid "
            "for this host name."
        ),
    ),
    (r"SASL authentication|Authentication failed|SaslAuthentication|invalid credentials", _CREDENTIALS),
    (r"LoginException|No LoginModule", "Check sasl.jaas.config (--command-config)."),
    (r"SSL_HANDSHAKE|SSL handshake", "The port may not use TLS: check security.protocol and the port."),
    (r"APIVERSION_QUERY|after POLLIN", "The port may use TLS: check security.protocol and the port."),
    (r"resolve|UnknownHost|No resolvable", "Check the host name."),
    (r"refused", "Check host and port, and that the broker is running."),
)
"""Advice about failed connections, by patterns of the error text, the most specific first."""


def advice_of(answer: NoAnswer) -> str:
    """Return what to do if brokers do not answer."""
    found = (advice for pattern, advice in _ADVICE if re.search(pattern, answer.reason))
    return next(found, "Check --bootstrap-server, the network, and the security settings (--command-config).")


def _unanswered(answer: NoAnswer, servers: str, limit_s: float) -> str:
    match answer.kind:
        case "silent":
            return f"no answer within {limit_s:g} s from {servers}: {answer.reason}"
        case "refused":
            return f"refused by {servers}: {answer.reason}"
        case _:
            return answer.reason


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _named(names: Iterable[str]) -> str:
    return _some([printable(name) for name in names])


def _some(items: Collection[object]) -> str:
    """List the first few."""
    first = ", ".join(map(str, list(items)[:_NAMED]))
    return first if len(items) <= _NAMED else f"{first} and {len(items) - _NAMED} more"
