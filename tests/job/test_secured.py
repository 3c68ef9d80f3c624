"""The job on a broker with TLS, SASL and an authorizer: it works, needs little, and gives no secret away."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import kafka_clients as kafka
import pytest
from command_process import COMMAND, output, running
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]
from documented_rights import listed_rights, without
from kafka_versions import KafkaVersion
from pyspark.sql import SparkSession
from running_job import RunningJob
from secured_broker import PLAIN_USER, STORE_PASSWORD, Right, SecuredBroker, secured_broker

from streaming.brokers.broker import Broker
from streaming.brokers.facts import BrokerError
from streaming.cli.main import cli, main
from streaming.demo.local_broker import free_ports
from streaming.job.failures import JobFailedError
from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.settings.reading import read_settings

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[2]
USER, PASSWORD = "job", "battery-staple-7431"
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(scope="module")
def secured(kafka_version: KafkaVersion, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured"), kafka_version) as broker:
        broker.add_user(USER, PASSWORD)
        kafka.create_topics(broker.for_tests, {"orders": 2})
        kafka.commit_offsets(broker.for_tests, "billing", {("orders", 0): 5, ("orders", 1): 7})
        yield broker


@pytest.fixture
def rights(secured: SecuredBroker) -> Callable[[list[Right]], None]:
    """A function that gives the user of the job these rights and no others."""

    return lambda wanted: secured.allow_only(USER, *wanted)


def broker_at(bootstrap: str, client: dict[str, str], timeout: str = "10s") -> Broker:
    options = {
        "source.bootstrap_servers": bootstrap,
        "source.client": client,
        "source.connect_timeout": timeout,
    }
    return Broker(read_settings(options=options).source)


def write_properties(file: Path, client: dict[str, str]) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in client.items()))
    return file


# --- it works ---


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_every_mechanism_logs_in(secured: SecuredBroker, mechanism: str) -> None:
    user = PLAIN_USER if mechanism == "PLAIN" else (USER, PASSWORD)
    client = secured.client(*user, mechanism=mechanism)
    assert broker_at(secured.bootstrap_servers, client)._metadata(10).cluster_id is not None


@pytest.mark.spark
def test_the_rights_that_are_documented_are_enough_for_everything(
    secured: SecuredBroker,
    rights: Callable[[list[Right]], None],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rights(listed_rights())
    client = secured.client(USER, PASSWORD, store="PKCS12")
    job = RunningJob(spark, secured.bootstrap_servers, tmp_path, options={"source.client": client})
    tables = job.run_once()
    rows = tables.read().offsets.to_pylist()
    assert {(row["group"], row["topic"], row["partition"]): row["committed_offset"] for row in rows} == {
        key: committed.offset for key, committed in kafka.broker_offsets(secured.for_tests).items()
    }
    assert job.said == []
    retention = tables.progress().retention
    assert retention is not None
    assert retention.source == "broker"

    def asked(*command: str) -> list[dict[str, Any]]:
        file = write_properties(tmp_path / "client.properties", client)
        connection = ("--bootstrap-server", secured.bootstrap_servers, "--command-config", str(file))
        tables_and_form = ("--table-root", tables.root, "--output", "json")
        monkeypatch.setattr(sys, "argv", ["offsetlake", *command, *connection, *tables_and_form])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        answer: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return answer

    assert [row["log_end_offset"] for row in asked("offsets")] == [0, 0]
    assert [(row["log_start_offset"], row["log_end_offset"]) for row in asked("expiring")] == [(0, 0), (0, 0)]


# --- what is missing without a right ---


NEEDED = {
    "the topic": (
        ResourceType.TOPIC,
        AclOperation.READ,
        r"TopicAuthorizationException: Not authorized to access topics: \[__consumer_offsets\]\. Grant",
    ),
    "groups": (
        ResourceType.GROUP,
        AclOperation.DESCRIBE,
        r"GroupAuthorizationException: Not authorized to access group: offsetlake-\S+\. Grant",
    ),
}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("kind", "operation", "message"),
    [
        pytest.param(*needed, id=name, marks=[pytest.mark.more] if name == "groups" else [])
        for name, needed in NEEDED.items()
    ],
)
def test_without_a_needed_right_the_job_says_which_one(
    secured: SecuredBroker,
    rights: Callable[[list[Right]], None],
    spark: SparkSession,
    tmp_path: Path,
    kind: ResourceType,
    operation: AclOperation,
    message: str,
) -> None:
    rights(without(kind, operation))
    client = secured.client(USER, PASSWORD)
    job = RunningJob(spark, secured.bootstrap_servers, tmp_path, options={"source.client": client})
    with pytest.raises(JobFailedError, match=message):
        job.run_once()


def test_what_optional_rights_give_is_lost_without_them(
    secured: SecuredBroker, rights: Callable[[list[Right]], None]
) -> None:
    [needed, *_] = listed_rights()
    assert needed[:2] == (ResourceType.TOPIC, "__consumer_offsets")
    rights([needed])
    broker = broker_at(secured.bootstrap_servers, secured.client(USER, PASSWORD))
    facts = broker.topic_facts()
    assert facts is not None
    assert len(broker.ends(facts.partition_count)) == facts.partition_count == 2
    with pytest.raises(BrokerError, match=r"Cluster authorization failed\. Grant DescribeConfigs on the cl"):
        broker.retention()
    assert broker.delete_retention_ms() == 86_400_000
    assert broker.log_ranges([("orders", 0)]) == {}
    assert broker.topic_ids(["orders"]) is None


def test_without_any_right_the_topic_is_waited_for_with_the_reason(
    secured: SecuredBroker, rights: Callable[[list[Right]], None], said: list[str]
) -> None:
    rights([])
    broker = broker_at(secured.bootstrap_servers, secured.client(USER, PASSWORD))
    given_up = iter([False])  # once it has asked
    assert broker.wait_for_topic(lambda: next(given_up, True)) is None
    assert "or this user may not see it (Describe permission)" in said[0]


# --- mistakes ---


@pytest.mark.more
def test_what_cannot_connect_says_why_and_not_the_password(secured: SecuredBroker) -> None:
    client = secured.client(USER, PASSWORD)
    wrong = secured.client(USER, "not-" + PASSWORD)
    no_trust = {name: value for name, value in client.items() if "truststore" not in name}
    secure, plain = secured.bootstrap_servers, secured.for_tests
    mistakes = {
        "Authentication failed": (secure, wrong),
        "certificate could not be verified": (secure, no_trust),
        "in state SSL_HANDSHAKE": (plain, client),  # TLS to a plaintext port
        "closed by peer: receive 0 after POLLIN": (secure, {}),  # plaintext to a TLS port
        "Connection refused": (f"127.0.0.1:{free_ports(1)[0]}", client),
    }

    def failure(mistake: tuple[str, dict[str, str]]) -> str:
        try:
            broker_at(*mistake, timeout="15s").topic_facts(8)
        except OffsetlakeError as error:
            return f"exit code {error.exit_code}: {error}"
        return "none"

    with ThreadPoolExecutor(len(mistakes)) as pool:
        found = dict(zip(mistakes, pool.map(failure, mistakes.values()), strict=True))
    for reason, message in found.items():
        assert reason in message, message
        assert message.startswith("exit code 1: ")
        assert "--command-config" in message
        assert PASSWORD not in message
        assert STORE_PASSWORD not in message


REFUSED = {
    "missing trust store": ({"ssl.truststore.location": "/none.p12"}, "/none.p12"),
    "wrong password of the trust store": ({"ssl.truststore.password": "not-it-81"}, "password was incorrect"),
    "missing PEM file": (
        {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/none"},
        "ssl.ca.location",
    ),
    "unknown protocol": ({"security.protocol": "SASL_TLS"}, "SASL_TLS"),
    "unknown mechanism": (
        {"sasl.mechanism": "SCRAM-SHA-1"},
        "expected PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM",
    ),
    "no semicolon": ({"sasl.jaas.config": f'{JAAS} username="u" password="not-it-81"'}, "semicolon"),
}


@pytest.mark.parametrize(("changed", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_settings_that_cannot_work_are_refused(
    secured: SecuredBroker, changed: dict[str, str], message: str
) -> None:
    with pytest.raises(MisuseError) as raised:
        broker_at(secured.bootstrap_servers, secured.client(USER, PASSWORD, store="PKCS12") | changed)
    assert message in str(raised.value)
    for secret in (PASSWORD, STORE_PASSWORD, "not-it-81"):
        assert secret not in str(raised.value)


@pytest.mark.more
@pytest.mark.spark
def test_a_login_module_that_only_java_does_not_know_is_explained(
    secured: SecuredBroker, rights: Callable[[list[Right]], None], spark: SparkSession, tmp_path: Path
) -> None:
    rights(listed_rights())
    client = secured.client(USER, PASSWORD)
    client["sasl.jaas.config"] = client["sasl.jaas.config"].replace("org.apache.kafka", "org.apache.kavka")
    job = RunningJob(spark, secured.bootstrap_servers, tmp_path, options={"source.client": client})
    with pytest.raises(
        JobFailedError, match=r"LoginException: No LoginModule found.*sasl\.jaas\.config"
    ) as raised:
        job.run_once()
    assert PASSWORD not in str(raised.value)


# --- secrets ---

UI = """
[spark.conf]
"spark.ui.enabled" = "true"
"spark.ui.port" = "{port}"
"spark.eventLog.enabled" = "true"
"spark.eventLog.compress" = "false"
"spark.eventLog.dir" = "{folder}"
"""
UI_PAGES = (
    "/jobs/",
    "/stages/",
    "/environment/",
    "/SQL/",
    "/SQL/execution/?id=0",
    "/StreamingQuery/",
    "/api/v1/applications/{id}/environment",
    "/api/v1/applications/{id}/sql?details=true",
)


@pytest.mark.more
@pytest.mark.spark
@pytest.mark.slow
def test_secrets_are_taken_from_environment_and_file_and_appear_nowhere(
    secured: SecuredBroker,
    rights: Callable[[list[Right]], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rights(listed_rights())
    secrets = tmp_path / "secrets"
    secrets.write_text(f"truststore={STORE_PASSWORD}\n")
    client = secured.client(USER, "${env:KAFKA_PASSWORD}", store="PKCS12")
    client["ssl.truststore.password"] = f"${{file:{secrets}:truststore}}"
    write_properties(tmp_path / "client.properties", client)
    (tmp_path / "log").mkdir()
    [port] = free_ports(1)
    (tmp_path / "job.toml").write_text(UI.format(port=port, folder=(tmp_path / "log").as_uri()))
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    files = ("--config", "job.toml", "--command-config", "client.properties")
    with running("run", "--bootstrap-server", secured.bootstrap_servers, *files, cwd=tmp_path) as process:
        kafka.wait_until(lambda: "batch 1:" in output(tmp_path), "the first batch", timeout_s=240)
        pages = ui_pages(port)
        commands = [
            file.read_text(errors="replace")
            for file in Path("/proc").glob("[0-9]*/cmdline")
            if os.getpgid(int(file.parent.name)) == process.pid
        ]
        addresses = listening_addresses(port)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(60) == 0, output(tmp_path)
    shown = subprocess.run(
        [*COMMAND, "run", *files, "--show-settings"], cwd=tmp_path, capture_output=True, check=True
    )
    assert b'source.client."sasl.jaas.config" = "(hidden)"' in shown.stdout
    assert b'source.client."ssl.truststore.password" = "(hidden)"' in shown.stdout
    assert any("org.apache.spark" in command for command in commands)
    assert all("offsetlake" in page for page in pages)
    assert {address[-8:] for address in addresses} == {"0100007F"}, "127.0.0.1, in the kernel's spelling"
    assert len(list((tmp_path / "log").rglob("events_*"))) == 1
    written = {str(file): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    del written[str(secrets)]
    for secret in (PASSWORD, STORE_PASSWORD):
        assert [name for name, content in written.items() if secret.encode() in content] == []
        assert [text for text in [*pages, *commands] if secret in text] == []


def ui_pages(port: int) -> list[str]:
    def page(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            text: str = answer.read().decode()
            return text

    [application] = json.loads(page("/api/v1/applications"))
    return [page(path.format(id=application["id"])) for path in UI_PAGES]


def listening_addresses(port: int) -> list[str]:
    """Return the addresses on which somebody listens at a port, in hex as the kernel spells them."""
    lines = [
        line for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()
    ]
    listening = [line.split()[1] for line in lines if line.split()[3] == "0A"]
    return [address.split(":")[0] for address in listening if int(address.split(":")[1], 16) == port]


def test_a_refused_command_shows_no_secret_nor_does_help(
    secured: SecuredBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "not-it-81")
    client = secured.client(USER, "${env:KAFKA_PASSWORD}", store="PKCS12")
    file = write_properties(tmp_path / "client.properties", client)
    (tmp_path / "quick.toml").write_text('source.connect_timeout = "2s"')
    connection = ["--bootstrap-server", secured.bootstrap_servers, "--command-config", str(file)]
    monkeypatch.chdir(tmp_path)
    for options, code in (([], 1), (["--show-settings"], 0)):
        monkeypatch.setattr(
            sys, "argv", ["offsetlake", "run", *connection, "--config", "quick.toml", *options]
        )
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == code
    for name, command in cli.commands.items():
        print(command.get_help(click.Context(command, info_name=name)))
    printed = "".join(capfd.readouterr())
    assert 'source.client."sasl.jaas.config" = "(hidden)"' in printed
    assert "Authentication failed" in printed
    assert not [secret for secret in ("not-it-81", STORE_PASSWORD) if secret in printed]
