"""`offsetlake check` on a real broker: each right has its own finding, each fault is named, nothing is left
behind."""

import csv
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kafka_clients as kafka
import pytest
from bombs.sitecustomize import processes_of_session
from cable import Cable
from command_process import output, running
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from documented_rights import listed_rights, without
from kafka_versions import KafkaVersion
from secured_broker import Right, SecuredBroker, secured_broker

from streaming.brokers.inquiry import Inquiry
from streaming.check import findings
from streaming.check.checks import checks
from streaming.check.findings import Finding
from streaming.common.times import now_ms
from streaming.demo.local_broker import free_ports
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings

pytestmark = [pytest.mark.broker, pytest.mark.slow]

USER, PASSWORD = "checker", "battery-staple-7431"
EVERY_CHECK = {findings.LIBRDKAFKA, *findings.OF_SIGN_IN, findings.JAVA, *findings.OF_JAVA}
DESCRIBE_CLUSTER: Right = (
    ResourceType.BROKER,
    "kafka-cluster",
    ResourcePatternType.LITERAL,
    AclOperation.DESCRIBE,
)


@dataclass
class World:
    """A broker that creates topics when asked for them, and advertises the address of a cable for plaintext.

    `when_new` is what was found before the offsets topic existed, `of_empty` the same of an empty topic, and
    `topics_when_new` the topics after that.
    """

    secured: SecuredBroker
    cable: Cable
    when_new: dict[str, Finding] = field(default_factory=dict)
    of_empty: dict[str, Finding] = field(default_factory=dict)
    topics_when_new: set[str] = field(default_factory=set)

    @property
    def plain(self) -> str:
        """The broker's own address, where everything is allowed."""
        return self.secured.for_tests

    def as_user(self, *rights: Right, password: str = PASSWORD) -> Settings:
        """The settings of a user with these rights."""
        self.secured.allow_only(USER, *rights)
        return settings_of(self.secured.bootstrap_servers, self.client(password))

    def client(self, password: str = PASSWORD) -> dict[str, str]:
        """The user's settings."""
        return self.secured.client(USER, password)


def settings_of(bootstrap: str, client: dict[str, str] | None = None, **options: str) -> Settings:
    source = {"bootstrap_servers": bootstrap, "client": client or {}, **options}
    return read_settings(options={f"source.{name}": value for name, value in source.items()})


@pytest.fixture(scope="module")
def world(kafka_version: KafkaVersion, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    [port] = free_ports(1)
    folder = tmp_path_factory.mktemp("checked")
    overrides = {"auto.create.topics.enable": "true"}
    with (
        secured_broker(folder, kafka_version, overrides=overrides, advertised={"PLAINTEXT": port}) as secured,
        Cable(port, int(secured.for_tests.rpartition(":")[2])) as cable,
    ):
        made = World(secured, cable)
        kafka.create_topics(made.plain, {"empty": 2})
        made.when_new = before_java(settings_of(made.plain))
        made.of_empty = all_checks(settings_of(made.plain, topic="empty"))
        made.topics_when_new = topics_of(made.plain)
        secured.add_user(USER, PASSWORD)
        kafka.create_topics(made.plain, {"orders": 1})
        kafka.commit_offsets(made.plain, "billing", {("orders", 0): 5})
        yield made


def all_checks(settings: Settings) -> dict[str, Finding]:
    found = list(checks(settings, now_ms))
    assert len(found) == len(EVERY_CHECK)
    assert {one.check for one in found} == EVERY_CHECK
    return {one.check: one for one in found}


def before_java(settings: Settings) -> dict[str, Finding]:
    """Make the checks up to the first that needs a JVM."""
    found = {}
    for one in checks(settings, now_ms):
        found[one.check] = one
        if len(found) == 1 + len(findings.OF_SIGN_IN):
            break
    return found


def topics_of(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics)


def notable(found: dict[str, Finding]) -> dict[str, str]:
    return {check: one.result for check, one in found.items() if one.result != "ok"}


def said(finding: Finding) -> str:
    return f"{finding.found}. {finding.advice}"


# --- what is there ---


def test_a_new_cluster_has_no_topic_yet(world: World) -> None:
    unknown = dict.fromkeys(findings.OF_TOPIC, "unknown")
    assert notable(world.when_new) == {findings.TOPIC: "warning"} | unknown
    assert "Brokers create the topic at the first request" in world.when_new[findings.TOPIC].advice
    assert not findings.is_fatal(world.when_new.values())


def test_an_ordinary_topic_can_be_checked_and_the_offsets_topic_is_not_created(world: World) -> None:
    assert notable(world.of_empty) == {
        findings.CLUSTER_SETTINGS: "warning",
        findings.GROUPS: "unknown",
        findings.TOPICS_OF_GROUPS: "unknown",
    }
    assert "no record" in world.of_empty[findings.READ].found
    assert world.topics_when_new == {"empty"}


def test_with_the_documented_rights_and_one_for_the_clocks_all_is_well_and_nothing_changes(
    world: World, kafka_version: KafkaVersion
) -> None:
    def content() -> tuple[Any, ...]:
        return kafka.read_raw(world.plain), kafka.broker_offsets(world.plain), topics_of(world.plain)

    before = content()
    found = all_checks(world.as_user(*listed_rights(), DESCRIBE_CLUSTER))
    assert notable(found) == {}
    assert "2 partitions" in found[findings.TOPIC].found
    assert found[findings.RECORDS].found.startswith(f"at most {len(before[0])} record")
    assert kafka_version.name.startswith(found[findings.RELEASE].found.removeprefix("Kafka ") + ".")
    assert "1 topic in the newest commits" in found[findings.TOPICS_OF_GROUPS].found
    assert "agree" in found[findings.CLOCKS].found
    assert content() == before


@pytest.mark.parametrize("name", ["missing", pytest.param("..", marks=pytest.mark.more)])
def test_another_topic_that_is_missing_is_a_failure_and_is_not_created(world: World, name: str) -> None:
    topic = before_java(settings_of(world.plain, topic=name))[findings.TOPIC]
    assert topic.result == "failed"
    assert "Check --topic" in topic.advice
    assert name not in topics_of(world.plain)


# --- what is missing without a right ---

DESCRIBE_TOPICS = (ResourceType.TOPIC, AclOperation.DESCRIBE)
MISSED = {
    findings.CLUSTER_SETTINGS: ("warning", "Grant DescribeConfigs on the cluster"),
    findings.TOPIC_SETTINGS: ("warning", "Grant DescribeConfigs on topic __consumer_offsets"),
    findings.GROUPS: ("failed", "Grant Describe on groups offsetlake*"),
    findings.READ: ("failed", "Grant Read on topic __consumer_offsets"),
    findings.TOPICS_OF_GROUPS: ("unknown", "no record could be read"),
    findings.CLOCKS: ("unknown", "grant Describe on the cluster"),
}


def test_each_right_is_missed_by_its_own_finding(world: World) -> None:
    [describe] = [right for right in listed_rights() if (right[0], right[3]) == DESCRIBE_TOPICS]
    found = all_checks(world.as_user(describe))
    assert notable(found) == {check: result for check, (result, _) in MISSED.items()}
    for check, (_, says) in MISSED.items():
        assert says in said(found[check])


def test_topics_of_groups_that_this_user_may_not_describe_are_named(world: World) -> None:
    source = world.as_user(*without(*DESCRIBE_TOPICS)).source
    finding = findings.topics_of_groups(Inquiry(source).topics(["orders"]))
    assert finding.result == "warning"
    assert "1 of 1 in the newest commits are hidden from this user: orders" in finding.found
    assert "Grant Describe on the topics" in finding.advice


def test_without_any_right_the_topic_is_hidden(world: World) -> None:
    found = before_java(world.as_user())
    assert found[findings.LIBRDKAFKA].result == "ok"
    assert found[findings.TOPIC].result == "failed"
    assert "Grant Read on topic __consumer_offsets" in found[findings.TOPIC].advice
    assert {found[check].result for check in findings.OF_TOPIC} == {"unknown"}


# --- faults ---


def test_a_wrong_password_is_refused_to_both_clients(world: World) -> None:
    found = all_checks(world.as_user(password="not-" + PASSWORD))
    for check in (findings.LIBRDKAFKA, findings.JAVA):
        assert found[check].result == "failed"
        assert "refused by" in found[check].found
        assert "user, password" in found[check].advice
    assert {one.result for check, one in found.items() if "sign-in" not in check} == {"unknown"}
    assert PASSWORD not in str(found)


def test_what_cannot_connect_says_what_to_change(world: World) -> None:
    client = world.client()
    no_trust = {name: value for name, value in client.items() if "truststore" not in name}
    secure, plain = world.secured.bootstrap_servers, world.plain
    mistakes = {
        "Check ssl.truststore.location": (secure, no_trust),
        "valid for this host name": (secure.replace("127.0.0.1", "127.1"), client),  # not in the certificate
        "may not use TLS": (plain, client),
        "may use TLS": (secure, {}),
        "Check user, password and sasl.mechanism": (secure, client | {"sasl.mechanism": "PLAIN"}),
        "Check the host name": ("no.such.host.invalid:9092", {}),
        "that the broker is running": ("127.0.0.1:1", {}),
    }

    def finding(mistake: tuple[str, dict[str, str]]) -> Finding:
        answer = Inquiry(settings_of(*mistake).source).cluster(3)
        return findings.sign_in(answer, mistake[0], None, 3)

    with ThreadPoolExecutor(len(mistakes)) as pool:
        found = dict(zip(mistakes, pool.map(finding, mistakes.values()), strict=True))
    for advice, one in found.items():
        assert one.result == "failed"
        assert advice in one.advice, one
        assert PASSWORD not in str(one)


@pytest.fixture
def cut(world: World) -> Iterator[Callable[[], None]]:
    """A function that cuts the cable until the end of the test."""
    yield world.cable.cut
    world.cable.mend()


@pytest.mark.more
def test_an_advertised_address_that_cannot_be_reached_is_named(world: World, cut: Callable[[], None]) -> None:
    cut()
    found = before_java(settings_of(world.plain, connect_timeout="4s"))
    assert found[findings.LIBRDKAFKA].result == found[findings.TOPIC].result == "ok"
    assert found[findings.BROKERS].result == "failed"
    assert f"broker 1 at 127.0.0.1:{world.cable.port} (" in found[findings.BROKERS].found
    assert "advertised.listeners" in found[findings.BROKERS].advice
    assert {found[check].result for check in findings.OF_TOPIC} == {"unknown"}


@pytest.mark.more
def test_leaders_that_fall_silent_are_named_with_their_partitions(
    world: World, cut: Callable[[], None]
) -> None:
    found = {}
    for one in checks(settings_of(world.plain, connect_timeout="3s"), now_ms):
        found[one.check] = one
        if one.check == findings.CLUSTER_SETTINGS:
            cut()
        if one.check == findings.RECORDS:
            break
    assert found[findings.BROKERS].result == "ok"
    address = f"broker 1 at 127.0.0.1:{world.cable.port}"
    assert (found[findings.PARTITIONS].result, found[findings.RECORDS].result) == ("failed", "unknown")
    expected = f"{address} did not report the end of 2 partitions: 0, 1"
    assert found[findings.PARTITIONS].found == expected


@pytest.mark.more
def test_brokers_that_are_cut_off_and_a_jvm_that_is_killed_fail_the_checks_after_it(
    world: World, cut: Callable[[], None]
) -> None:
    found = {}
    for one in checks(settings_of(world.plain, connect_timeout="3s"), now_ms):
        assert one.check not in found
        found[one.check] = one
        if one.check == findings.JAVA:
            cut()
        if one.check == findings.TOPICS_OF_GROUPS:
            [jvm] = [pid for pid in jvms(os.getsid(0)) if parent_of(pid) == os.getpid()]
            os.kill(jvm, signal.SIGKILL)
    assert found.keys() == EVERY_CHECK
    assert found[findings.JAVA].result == "ok"
    assert found[findings.READ].result == found[findings.GROUPS].result == "failed"
    assert found[findings.TOPICS_OF_GROUPS].result == "unknown"
    assert found[findings.CLOCKS].result == "failed"
    assert "Java client has ended" in found[findings.CLOCKS].found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "")


def test_java_that_is_missing_fails_its_own_checks_alone(world: World, no_java: None) -> None:
    found = all_checks(settings_of(world.plain))
    assert notable(found) == {findings.JAVA: "failed"} | dict.fromkeys(findings.OF_JAVA, "unknown")
    assert "expected Java 17 or newer, found no java" in found[findings.JAVA].found


@pytest.mark.more
def test_a_jvm_that_does_not_start_says_why(world: World) -> None:
    conf = {"spark.driver.extraJavaOptions": "-XX:NoSuchOption"}
    options = {"source.bootstrap_servers": world.plain, "spark.conf": conf}
    java = all_checks(read_settings(options=options))[findings.JAVA]
    assert java.result == "failed"
    assert "JVM did not start" in java.found
    assert "spark.driver.extraJavaOptions" in java.found


def test_jars_that_are_missing_fail_the_checks_of_java_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "jars").write_text("no folder")
    monkeypatch.setenv("OFFSETLAKE_JARS", str(tmp_path / "jars"))
    found = all_checks(settings_of(world.plain))
    assert "jar cache" in found[findings.JAVA].found
    assert notable(found) == {findings.JAVA: "failed"} | dict.fromkeys(findings.OF_JAVA, "unknown")


# --- the command ---


def test_the_command_prints_lines_json_or_csv(world: World, no_java: None, offsetlake: Any) -> None:
    place = ("check", "--bootstrap-server", world.plain, "--topic", "missing")
    lines = offsetlake(*place)
    assert lines.code == 1
    assert lines.err == f"the job cannot run with {world.plain}\n"
    rows = json.loads(offsetlake(*place, "--output", "json").out)
    for row, line in zip(rows, lines.out.splitlines(), strict=True):
        assert line.startswith(f"{row['result']:<7}  {row['check']} ")
        assert line.endswith(f"{row['found']}{'. ' if row['advice'] else ''}{row['advice']}")
    head, *others = csv.reader(offsetlake(*place, "--output", "csv").out.splitlines())
    assert head == ["check", "result", "found", "advice"]
    assert [row[:2] for row in others] == [[row["check"], row["result"]] for row in rows]


def test_settings_that_cannot_work_are_misuse(offsetlake: Any, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("security.protocol=CARRIER_PIGEON\n")
    ended = offsetlake("check", "--command-config", str(tmp_path / "client.properties"))
    assert (ended.code, ended.out) == (2, "")
    assert "CARRIER_PIGEON" in ended.err


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a listener that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_ctrl_c_ends_the_check_at_once(silent: str, tmp_path: Path) -> None:
    with running("check", "--bootstrap-server", silent, cwd=tmp_path) as process:
        kafka.wait_until(lambda: is_connected(silent, "tcp"), "the connection of librdkafka")
        code = None
        for _ in range(3):  # Python drops an interruption that comes while it frees an object
            os.killpg(process.pid, signal.SIGINT)  # to the whole group, as a terminal does
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(3)
                break
        assert code == 130
    assert "Traceback" not in output(tmp_path)


def is_connected(address: str, table: str) -> bool:
    """Whether a client has a connection to an address: in the kernel's table `tcp`, or `tcp6` as Java's."""
    port = f":{int(address.rpartition(':')[2]):04X}"
    lines = [line.split() for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    return any(remote.endswith(port) and state == "01" for _, _, remote, state, *_ in lines)


@pytest.mark.more
@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_silent_broker_is_given_up_and_a_check_that_is_ended_leaves_no_jvm(
    silent: str, tmp_path: Path, how: signal.Signals, code: int
) -> None:
    with running("check", "--bootstrap-server", silent, cwd=tmp_path) as process:
        kafka.wait_until(lambda: len(jvms(process.pid)) == 1, "the JVM", timeout_s=60)
        assert f"no answer within 10 s from {silent}" in output(tmp_path)
        [jvm] = jvms(process.pid)
        kafka.wait_until(lambda: is_connected(silent, "tcp6"), "the connection of Java")
        process.send_signal(how)
        assert process.wait(5) == code
        kafka.wait_until(lambda: not Path(f"/proc/{jvm}").exists(), "the JVM to end")
    assert "Traceback" not in output(tmp_path)


def jvms(session: int) -> list[int]:
    found = []
    for pid in processes_of_session(session):
        with suppress(OSError):
            if b"py4j.GatewayServer" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found
