"""What answers mean: every finding, both ways."""

import pytest

from streaming.brokers.facts import BrokerSettings, ClusterFacts, NoAnswer, TopicState
from streaming.check import findings
from streaming.check.checks import committed_topics, newest
from streaming.check.findings import Finding
from streaming.check.java_client import ReadRecord
from streaming.check.kinds import Kind, kind_of
from streaming.common.times import DAY_MS, MINUTE_MS
from streaming.model.progress import PartitionEnds
from streaming.settings.model import OFFSETS_TOPIC

SILENT = NoAnswer("silent", "Timed out")
DENIED = NoAnswer("denied", "Cluster authorization failed")
ADDRESSES = {1: "kafka-1:9092", 2: "kafka-2.internal:9092"}
WEEK = BrokerSettings(7 * DAY_MS, 10 * MINUTE_MS)
HIDDEN = TopicState(error="TOPIC_AUTHORIZATION_FAILED")
HOSTILE = "\x1b[2J\0'\n"


def result(finding: Finding) -> tuple[str, str]:
    return finding.result, f"{finding.found}. {finding.advice}"


def assert_says(finding: Finding, expected: str, *parts: str) -> None:
    assert finding.result == expected, finding
    for part in parts:
        assert part in f"{finding.found}. {finding.advice}"


def ends(*stable: int) -> dict[int, PartitionEnds]:
    return {number: PartitionEnds(offset, offset) for number, offset in enumerate(stable)}


# --- kinds of clusters ---


@pytest.mark.parametrize(
    ("host", "cluster_id", "name", "lacks_topic"),
    [
        ("pkc-4r087.us-west2.gcp.confluent.cloud", "lkc-1", "Confluent Cloud", True),
        ("shop.servicebus.windows.net", None, "Azure Event Hubs", True),
        ("api-11.us-east-1.warpstream.com", None, "WarpStream", True),
        ("boot-ab12.c1.kafka-serverless.us-east-1.amazonaws.com", None, "Amazon MSK Serverless", False),
        ("b-1.shop.ab12.c3.kafka.eu-west-1.amazonaws.com", None, "Amazon MSK", False),
        ("KAFKA-1.shop.AIVENCLOUD.com.", None, "Aiven for Apache Kafka", False),
        ("10.0.0.1", "redpanda.2d339cd9", "Redpanda", False),
        ("seed-1.ab12.fmc.prd.cloud.redpanda.com", None, "Redpanda", False),
    ],
)
def test_the_kind_of_a_cluster_is_told_by_its_hosts_and_its_id(
    host: str, cluster_id: str | None, name: str, lacks_topic: bool
) -> None:
    kind = kind_of(["10.0.0.2", host], cluster_id)
    assert kind is not None
    assert (kind.name, kind.lacks_topic is not None) == (name, lacks_topic)


@pytest.mark.parametrize("host", ["kafka", "confluent.cloud.example.org", "notconfluent.cloud", ""])
def test_other_hosts_tell_nothing(host: str) -> None:
    assert kind_of([host], "MkU3OEVBNTcwNTJENDM2Qk") is None


# --- sign-in ---


def test_a_sign_in_names_the_cluster_and_its_probable_kind() -> None:
    facts = ClusterFacts("abc", ADDRESSES)
    finding = findings.sign_in(facts, "kafka:9092", Kind("Amazon MSK"), 10)
    assert result(finding) == ("ok", "cluster abc, 2 brokers; probably Amazon MSK. ")
    assert_says(findings.sign_in(ClusterFacts(None, {}), "kafka:9092", None, 10), "ok", "without an id")
    assert_says(
        findings.sign_in(SILENT, "kafka:9092", None, 10), "failed", "no answer within 10 s from kafka:9092"
    )


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("SASL authentication error: Authentication failed: Invalid username or password", "user, password"),
        ("SaslAuthenticationException: Authentication failed", "user, password"),
        ("SunCertPathBuilderException: unable to find valid certification path", "ssl.truststore.location"),
        ("SSL handshake failed: certificate verify failed", "ssl.truststore.location"),
        ("SslAuthenticationException: SSL handshake failed", "ssl.truststore.location"),
        ("SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?", "may not use TLS"),
        ("Disconnected (after 1ms in state APIVERSION_QUERY)", "may use TLS"),
        ("Failed to resolve 'kafka:9092': Name or service not known", "Check the host name"),
        ("Connect to ipv4#127.0.0.1:1 failed: Connection refused", "that the broker is running"),
        ("Timed out", "--bootstrap-server, the network"),
    ],
)
def test_each_failure_of_a_connection_has_its_own_advice(reason: str, advice: str) -> None:
    assert advice in findings.advice_of(NoAnswer("silent", reason))


def test_java_signs_in_with_a_release_or_not_at_all() -> None:
    assert_says(findings.java_sign_in("3.9.2", "k:1", 10), "ok", "3.9.2")
    refused = NoAnswer("refused", "SaslAuthenticationException: Authentication failed")
    assert_says(findings.java_sign_in(refused, "k:1", 10), "failed", "refused by k:1", "user, password")


# --- the topic ---

CONFLUENT = Kind("Confluent Cloud", "it hides this topic from its users")
GONE, NO_RIGHT = "UNKNOWN_TOPIC_OR_PARTITION", "TOPIC_AUTHORIZATION_FAILED"


@pytest.mark.parametrize(
    ("name", "error", "kind", "expected", "says"),
    [
        (OFFSETS_TOPIC, "", CONFLUENT, "ok", "has 2 partitions"),
        (OFFSETS_TOPIC, GONE, None, "warning", "Brokers create the topic at the first request"),
        (OFFSETS_TOPIC, GONE, Kind("Redpanda"), "warning", "probably Redpanda"),
        (OFFSETS_TOPIC, GONE, CONFLUENT, "failed", "probably Confluent Cloud: it hides this topic"),
        (OFFSETS_TOPIC, NO_RIGHT, CONFLUENT, "failed", "The job cannot run with this cluster"),
        (OFFSETS_TOPIC, NO_RIGHT, Kind("Amazon MSK"), "failed", "Grant Read on topic __consumer_offsets"),
        ("copy", GONE, None, "failed", "Check --topic"),
        ("copy", GONE, CONFLUENT, "failed", "Check --topic"),
        ("grüße", "INVALID_TOPIC_EXCEPTION", None, "failed", "no topic grüße (INVALID_TOPIC_EXCEPTION)"),
    ],
)
def test_a_topic_that_is_not_there_says_why(
    name: str, error: str, kind: Kind | None, expected: str, says: str
) -> None:
    assert_says(findings.topic(name, 0 if error else 2, error, kind), expected, says)


def test_a_topic_that_nobody_tells_of_is_a_failure() -> None:
    assert_says(findings.topic(OFFSETS_TOPIC, 0, SILENT, CONFLUENT), "failed", "Timed out")


# --- brokers and partitions ---


def test_a_broker_without_an_answer_is_named_with_its_address() -> None:
    settings = {1: WEEK, 2: NoAnswer("silent", "Failed to resolve")}
    finding = findings.brokers(ADDRESSES, settings, leading={1, 2})
    assert_says(
        finding, "failed", "broker 2 at kafka-2.internal:9092 (Failed to resolve)", "advertised.listeners"
    )
    assert_says(findings.brokers(ADDRESSES, settings, leading={1}), "warning", "kafka-2.internal:9092")


def test_a_broker_that_denies_its_settings_has_been_reached() -> None:
    settings = {1: DENIED, 2: NoAnswer("unknown", "no offsets.retention.minutes in the answer")}
    assert_says(findings.brokers(ADDRESSES, settings, leading={1, 2}), "ok", "2 of 2")


def test_partitions_need_a_leader_that_answers() -> None:
    assert_says(findings.partitions(ADDRESSES, {0: 1, 1: 2}, {0, 1}), "ok")
    lost = findings.partitions(ADDRESSES, {0: 1, **dict.fromkeys(range(3, 8))}, {0})
    assert_says(lost, "failed", "no leader for 5 partitions: 3, 4, 5 and 2 more", "Start the brokers")
    silent = findings.partitions(ADDRESSES, {0: 1, 1: 2}, {0})
    assert_says(
        silent, "failed", "broker 2 at kafka-2.internal:9092 did not report the end of 1 partition: 1"
    )


def test_records_are_counted_from_start_to_committed_end() -> None:
    stable = {0: PartitionEnds(1_000_000, 2_000_000), 1: PartitionEnds(500, 500)}
    finding = findings.records({0: 120_000, 1: 500}, stable, 2)
    assert result(finding) == ("ok", "at most 880,000 records to read, about 5 s on two cores. ")
    assert_says(findings.records({0: 0}, stable, 2), "unknown", "unknown start or end of 1 partition")
    assert_says(findings.records({0: 7, 1: 0}, ends(3, 0), 2), "ok", "none to read")


# --- settings ---


def test_the_retention_of_offsets_is_shown_or_what_gives_it() -> None:
    both = {1: WEEK, 2: WEEK}
    assert_says(
        findings.cluster_settings(OFFSETS_TOPIC, both, None), "ok", "offsets.retention.minutes is 10080 (7 d)"
    )
    assert_says(findings.cluster_settings(OFFSETS_TOPIC, {1: DENIED}, DAY_MS), "ok", "1 d ([expiry])")
    denied = findings.cluster_settings(OFFSETS_TOPIC, {1: DENIED, 2: SILENT}, None)
    assert_says(
        denied, "warning", "Cluster authorization failed", "Grant DescribeConfigs on the cluster, or set"
    )
    silent = findings.cluster_settings(OFFSETS_TOPIC, {1: SILENT}, None)
    assert_says(silent, "unknown", "Set [expiry] retention")
    assert "Grant" not in silent.advice
    assert_says(findings.cluster_settings("copy", both, None), "warning", "may be a copy")
    other = BrokerSettings(DAY_MS, 10 * MINUTE_MS)
    assert_says(findings.cluster_settings(OFFSETS_TOPIC, {1: WEEK, 2: other}, None), "warning", "disagree")


def test_the_retention_of_tombstones_is_shown_or_assumed() -> None:
    assert_says(findings.topic_settings(OFFSETS_TOPIC, DAY_MS), "ok", "delete.retention.ms is 86400000 (1 d)")
    denied = findings.topic_settings(OFFSETS_TOPIC, DENIED)
    assert_says(denied, "warning", "1 d is assumed", "Grant DescribeConfigs on topic __consumer_offsets")
    assert_says(findings.topic_settings(OFFSETS_TOPIC, SILENT), "unknown", "Timed out; 1 d is assumed")


# --- release and clocks ---


@pytest.mark.parametrize(
    ("level", "expected", "says"),
    [
        (21, "ok", "Kafka 3.9"),
        (30, "ok", "Kafka 4.3"),
        (26, "ok", "Kafka 4.1"),
        (20, "warning", "Kafka 3.8 or older"),
        (1, "warning", "Kafka 3.3 or older"),
        (99, "ok", "newer than Kafka 4.4 (metadata.version 99)"),
        (None, "unknown", "reports no metadata.version"),
        (SILENT, "unknown", "Timed out"),
    ],
)
def test_the_release_follows_from_the_metadata_version(
    level: int | NoAnswer | None, expected: str, says: str
) -> None:
    assert_says(findings.release(level), expected, says)


@pytest.mark.parametrize(
    ("controller", "newest", "expected", "says"),
    [
        (10_500, None, "ok", "agree"),
        (12_900, None, "ok", "agree"),  # 1.9 s after the answer
        (8_001, 99_000, "ok", "agree"),
        (75_000, None, "warning", "the clock of the active controller is 1 min 4 s ahead of the clock of"),
        (1_000, None, "warning", "9 s behind"),
        (DENIED, 75_000, "warning", "the clock of a broker is at least 1 min 4 s (a record of"),
        (DENIED, 12_000, "unknown", "no record has a time in the future"),
        (DENIED, None, "unknown", "grant Describe on the cluster"),
        (SILENT, None, "unknown", "Timed out"),
        (None, None, "unknown", "does not report its time"),
    ],
)
def test_clocks_agree_differ_or_are_not_known(
    controller: int | NoAnswer | None, newest: int | None, expected: str, says: str
) -> None:
    finding = findings.clocks(controller, asked_at=10_000, answered_at=11_000, newest_record=newest)
    assert_says(finding, expected, says)


# --- records and permissions ---


def test_what_the_java_client_is_denied_has_the_right_to_grant() -> None:
    denied = NoAnswer("denied", "GroupAuthorizationException: Not authorized")
    assert_says(findings.own_group(None, "offsetlake"), "ok", "offsetlake*")
    assert_says(findings.own_group(denied, "offsetlake"), "failed", "Grant Describe on groups offsetlake*")
    assert_says(findings.own_group(SILENT, "offsetlake"), "failed", "Check --bootstrap-server")
    assert_says(findings.read(OFFSETS_TOPIC, 5), "ok", "5 records of __consumer_offsets read")
    assert_says(findings.read(OFFSETS_TOPIC, 0), "ok", "no record")
    assert_says(findings.read(OFFSETS_TOPIC, denied), "failed", "Grant Read on topic __consumer_offsets")
    assert_says(findings.read(OFFSETS_TOPIC, SILENT), "failed", "Timed out")


def test_topics_of_groups_are_hidden_described_or_not_known() -> None:
    seen = TopicState(partitions=frozenset({0}))
    gone = TopicState(error="UNKNOWN_TOPIC_OR_PARTITION")
    assert_says(findings.topics_of_groups({"a": seen, "b": gone}), "ok", "2 topics")
    hidden = findings.topics_of_groups({"a": seen, HOSTILE: HIDDEN})
    assert_says(hidden, "warning", "1 of 2", "Grant Describe on the topics")
    assert HOSTILE not in hidden.found
    assert_says(findings.topics_of_groups({}), "unknown", "no commit")


def test_topics_are_read_from_keys_of_commits_and_other_keys_are_passed_over() -> None:
    def commit(topic: bytes) -> bytes:
        return b"\0\1" + b"".join(len(text).to_bytes(2) + text for text in (b"", topic)) + bytes(4)

    keys = [commit(b"orders"), commit("grüße\0".encode()), commit(b""), b"\0\2\0\1g", b"", None, b"\xff" * 40]
    records = [ReadRecord(0, 0, key) for key in keys]
    assert committed_topics(records) == {"orders", "grüße\0", ""}


def test_the_newest_records_are_of_the_longest_partitions() -> None:
    assert newest({0: 0, 1: 90, 2: 5}, ends(10, 1_000, 5)) == {1: 975, 0: 0}
    assert newest({0: 4, 1: 7}, ends(4, 7)) == {0: 4}
    assert newest(dict.fromkeys(range(50), 0), ends(*range(1, 51))).keys() == set(range(42, 50))
    assert newest({1: 0}, ends(3, 4)) == {1: 0}
