"""What brokers answer about retention, ranges and topics, and what is made of it."""

import math
import time

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, ConfigEntry, ResourceType
from conftest import BrokerFactory
from kafka_clients import alter_offsets, create_topics, delete_topics, deny, produce_raw, read_raw, wait_until
from kafka_versions import Feature

from decoders import decode_document
from streaming.brokers import broker
from streaming.brokers.broker import Broker, settings_of_broker
from streaming.brokers.facts import BrokerError, BrokerSettings, LogRange, agreed_retention, first_assignor
from streaming.brokers.retention import RetentionReader
from streaming.demo.local_broker import LocalBroker
from streaming.model.progress import Retention
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings

NOW = 1_700_000_000_000
DAY, MINUTE = 86_400_000, 60_000


def settings(bootstrap: str, **options: str) -> Settings:
    named = {f"expiry.{name}": value for name, value in options.items()}
    return read_settings(options={"source.bootstrap_servers": bootstrap, **named})


def broker_at(bootstrap: str) -> Broker:
    return Broker(settings(bootstrap).source)


def retention(
    retention_ms: int, check_interval_ms: int, source: str, default_assignor: str | None = None
) -> Retention:
    return Retention(
        retention_ms=retention_ms,
        check_interval_ms=check_interval_ms,
        source=source,
        read_at=NOW,
        known_since=NOW,
        default_assignor=default_assignor,
    )


# --- several brokers -------------------------------------------------------------------------------------


def test_brokers_that_agree_are_not_spoken_of() -> None:
    told = agreed_retention(dict.fromkeys((1, 2), BrokerSettings(7 * DAY, 600_000)), {})
    assert (told.retention_ms, told.check_interval_ms, told.warning) == (7 * DAY, 600_000, None)


def test_of_brokers_that_disagree_the_shortest_retention_counts_and_the_longest_interval() -> None:
    told = agreed_retention({1: BrokerSettings(7 * DAY, 300_000), 2: BrokerSettings(DAY, 5_000)}, {})
    assert (told.retention_ms, told.check_interval_ms) == (DAY, 300_000)
    assert told.warning is not None
    assert "broker 1: 10080 min and 300000 ms, broker 2: 1440 min and 5000 ms" in told.warning


def test_brokers_that_do_not_answer_are_named() -> None:
    told = agreed_retention({1: BrokerSettings(DAY, 5_000)}, {2: "timed out", 3: "timed out"})
    assert told.warning == "not all brokers report how long they retain offsets (broker 2, 3: timed out)"


def test_a_broker_of_another_maker_may_report_no_retention() -> None:
    minutes = ConfigEntry("offsets.retention.minutes", "1440")
    interval = ConfigEntry("offsets.retention.check.interval.ms", "5000")
    assert settings_of_broker({one.name: one for one in (minutes, interval)}) == BrokerSettings(DAY, 5_000)
    for lacking in ({}, {minutes.name: minutes}, {interval.name: interval}):
        assert settings_of_broker(lacking) is None


def test_without_any_answer_the_error_says_what_to_do() -> None:
    with pytest.raises(BrokerError, match=r"found: denied\. Grant DescribeConfigs .* or set \[expiry\]"):
        agreed_retention({}, {1: "denied"})


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("uniform,range", "uniform"),
        (" range , uniform", "range"),
        ("org.apache.kafka.coordinator.group.assignor.RangeAssignor,x.Y", "range"),  # before 4.0
        ("com.example.MyAssignor,uniform", None),  # what it calls itself is not known
        ("", None),
        (None, None),
    ],
)
def test_the_first_assignor_of_the_setting(setting: str | None, name: str | None) -> None:
    assert first_assignor(setting) == name


def test_of_brokers_that_disagree_no_assignor_is_known() -> None:
    for others, agreed in (("uniform", "uniform"), ("range", None), (None, None)):
        told = {1: BrokerSettings(DAY, 5_000, "uniform"), 2: BrokerSettings(DAY, 5_000, others)}
        found = agreed_retention(told, {})
        assert (found.default_assignor, found.warning) == (agreed, None)


# --- the settings ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("silent")
def test_retention_of_the_settings_is_taken_without_asking() -> None:
    """Nobody listens there."""
    for interval, expected in (("auto", 600_000), ("5s", 5_000)):
        given = settings("127.0.0.1:1", retention="1m", check_interval=interval)
        reader = RetentionReader(Broker(given.source), given)
        assert reader.read(NOW) == retention(MINUTE, expected, "setting")


def test_a_copy_of_the_topic_is_not_judged_by_the_brokers_that_hold_it(said: list[str]) -> None:
    given = read_settings(options={"source.topic": "copy"})
    reader = RetentionReader(Broker(given.source), given)
    assert [reader.read(NOW), reader.read(NOW)] == [None, None]
    [sentence] = said
    assert "set [expiry] retention" in sentence


# --- a real broker ---------------------------------------------------------------------------------------


@pytest.mark.broker
@pytest.mark.usefixtures("silent")
def test_retention_is_read_from_the_broker(broker: LocalBroker) -> None:
    bootstrap = broker.bootstrap_servers
    for interval, expected in (("auto", 600_000), ("5s", 5_000)):
        given = settings(bootstrap, check_interval=interval)
        reader = RetentionReader(Broker(given.source), given)
        assert reader.read(NOW) == retention(7 * DAY, expected, "broker", "uniform")


@pytest.mark.broker
def test_ranges_of_partitions(broker: LocalBroker) -> None:
    bootstrap = broker.bootstrap_servers
    create_topics(bootstrap, {"ranges": 2})
    produce_raw(bootstrap, "ranges", [(b"k", b"v")] * 3, partition=1)
    asked = [("ranges", 0), ("ranges", 1), ("ranges", 2), ("no-such-topic", 0)]
    assert broker_at(bootstrap).log_ranges(asked) == {
        ("ranges", 0): LogRange(0, 0),
        ("ranges", 1): LogRange(0, 3),
    }
    assert broker_at(bootstrap).log_ranges([]) == {}


@pytest.mark.broker
@pytest.mark.needs(Feature.TOPIC_IDS)
def test_topic_ids_are_those_of_the_offsets_topic(broker: LocalBroker) -> None:
    bootstrap = broker.bootstrap_servers
    create_topics(bootstrap, {"with-id": 1, "soon-gone": 1})
    alter_offsets(bootstrap, "with-id-group", {("with-id", 0): 1})
    delete_topics(bootstrap, "soon-gone")
    documents = [decode_document(r.key, r.value) for r in read_raw(bootstrap) if r.key and r.value]
    written = [d["value"]["data"]["topicId"] for d in documents if "with-id-group" in str(d["key"])]
    asking = broker_at(bootstrap)
    wait_until(lambda: (asking.topic_ids(["soon-gone"]) or {}).get("soon-gone") is None, "the deletion")
    assert asking.topic_ids(["with-id", "soon-gone", "never-was"]) == {
        "with-id": written[-1],
        "soon-gone": None,
        "never-was": None,
    }
    assert asking.topic_ids([]) == {}


def test_topic_ids_are_none_where_nobody_answers() -> None:
    assert broker_at("127.0.0.1:1").topic_ids(["t"]) is None


@pytest.mark.broker
def test_topics_that_brokers_refuse_are_left_out_even_if_there_are_no_others(broker: LocalBroker) -> None:
    create_topics(broker.bootstrap_servers, {"allowed": 2})
    asking = broker_at(broker.bootstrap_servers)
    assert asking.topics([".", ".."]) == {}  # such names keep the rules for characters and length
    states = asking.topics([".", "allowed", "no-such"])
    assert {name: (state.partitions, state.error) for name, state in states.items()} == {
        "allowed": ({0, 1}, None),
        "no-such": (frozenset(), "UNKNOWN_TOPIC_OR_PARTITION"),
    }


def test_topics_where_nobody_answers_are_an_error() -> None:
    asking = broker_at("127.0.0.1:1")
    with pytest.raises(BrokerError, match=r"expected an answer within 0\.5 s, found: "):
        asking.topics(["t", "."], timeout_s=0.5)
    assert asking.topics(["x y"]) == {}


@pytest.mark.broker
def test_what_this_user_may_not_see_is_left_out_and_said_once(
    make_broker: BrokerFactory, said: list[str]
) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    overrides = {"authorizer.class.name": authorizer, "allow.everyone.if.no.acl.found": "true"}
    # without this the broker would make a topic of every name that it is asked about
    running = make_broker(overrides=overrides | {"auto.create.topics.enable": "true"})
    bootstrap = running.bootstrap_servers
    create_topics(bootstrap, {"open": 1, "secret": 1})
    deny(bootstrap, ResourceType.TOPIC, "secret", AclOperation.DESCRIBE)
    deny(bootstrap, ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS)
    given = settings(bootstrap)
    asking = Broker(given.source)
    wait_until(lambda: "secret" not in (asking.topic_ids(["open", "secret"]) or {}), "the right to go")

    reader = RetentionReader(asking, given)
    wait_until(lambda: reader.read(NOW) is None, "the other right to go")
    assert reader.read(NOW) is None
    [sentence] = said
    assert "Cluster authorization failed" in sentence

    assert asking.log_ranges([("open", 0), ("secret", 0), ("absent", 0)]) == {("open", 0): LogRange(0, 0)}
    assert (asking.topic_ids(["open", "secret", "absent"]) or {}).get("absent", "?") is None
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assert "absent" not in admin.list_topics(timeout=10).topics
    running.kill()  # it has denied itself the right to stop in good order


@pytest.mark.more
def test_a_client_that_librdkafka_leaves_without_brokers_is_replaced(
    make_broker: BrokerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its only broker is fenced, a cluster says that it has no brokers: see `_SILENT_FOR_S`."""
    fenced = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "2500"}
    bootstrap = make_broker(overrides=fenced).bootstrap_servers
    create_topics(bootstrap, {"t": 1})
    source = read_settings(options={"source.bootstrap_servers": bootstrap, "source.topic": "t"}).source
    client = Broker(source)
    first = client._admin
    monkeypatch.setattr(broker, "_SILENT_FOR_S", math.inf)

    def is_answered(client: Broker) -> bool:
        try:
            return len(client.ends(1, timeout_s=0.5)) == 1
        except BrokerError:
            return False

    def is_left() -> bool:
        """Whether, while the broker is fenced twice, only a new client is answered."""
        limit, is_other_answered = time.monotonic() + 6, False
        while time.monotonic() < limit:
            if is_answered(client):
                return False
            is_other_answered = is_other_answered or is_answered(Broker(source))
        return is_other_answered

    wait_until(lambda: is_answered(client), "the first answer", timeout_s=60)
    wait_until(is_left, "a client without brokers", timeout_s=200)
    assert client._admin is first
    monkeypatch.setattr(broker, "_SILENT_FOR_S", 1.0)
    wait_until(lambda: is_answered(client), "an answer", timeout_s=30)
    assert client._admin is not first
