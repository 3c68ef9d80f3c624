"""The `offsetlake` command as a user runs it: a process, its output, its exit code, its end."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import kafka_clients as kafka
import pytest
from command_process import COMMAND, output, running

from streaming.demo.local_broker import LocalBroker


def offsetlake(*arguments: str, cwd: Path, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=cwd, capture_output=True, text=True, timeout=timeout_s, check=False
    )


def test_a_broker_out_of_reach_is_a_clear_error_after_a_bounded_time(tmp_path: Path) -> None:
    (tmp_path / "quick.toml").write_text('[source]\nconnect_timeout = "2s"\n')
    started = time.monotonic()
    result = offsetlake("run", "--bootstrap-server", "127.0.0.1:1", "--config", "quick.toml", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    reading, *_, connecting, error = untimed(result.stderr)
    places = f"from 127.0.0.1:1 into {tmp_path}/warehouse (checkpoint {tmp_path}/checkpoints/offsetlake)"
    assert reading == f"reading topic __consumer_offsets every 5s {places}"
    assert connecting == "connecting to 127.0.0.1:1 ..."
    assert error.startswith(
        "ERROR: asking 127.0.0.1:1 about topic __consumer_offsets: expected an answer within 2 s"
    )
    assert "--bootstrap-server" in error
    assert time.monotonic() - started < 30


def untimed(text: str) -> list[str]:
    """The lines of a command, each of which begins with its time."""
    found = [re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (.*)", line) for line in text.splitlines()]
    assert None not in found, text
    return [line[1] for line in found if line]


def test_lines_can_be_json(tmp_path: Path) -> None:
    (tmp_path / "quick.toml").write_text('[source]\nconnect_timeout = "1s"\n')
    arguments = ("run", "--bootstrap-server", "127.0.0.1:1", "--config", "quick.toml", "--log-format", "json")
    result = offsetlake(*arguments, "--once", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    reading, *_, error = map(json.loads, result.stderr.splitlines())
    assert (reading["level"], error["level"]) == ("info", "error")
    assert reading["message"].startswith(
        "reading topic __consumer_offsets to its current end from 127.0.0.1:1"
    )
    assert "expected an answer within 1 s" in error["message"]
    misuse = offsetlake(*arguments, "--trigger", "soon", cwd=tmp_path)
    assert misuse.returncode == 2
    assert json.loads(misuse.stderr)["message"].startswith(
        "the command line: job.trigger: expected a duration"
    )


def test_settings_are_shown_and_nothing_is_started(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("ssl.key.password=s3cret\n")
    arguments = ("run", "--command-config", "client.properties", "--trigger", "1m", "--show-settings")
    result = offsetlake(*arguments, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    shown = tomllib.loads(result.stdout)
    assert shown["job"]["trigger"] == "1m"
    assert shown["source"]["client"] == {"ssl.key.password": "(hidden)"}
    assert [file.name for file in tmp_path.iterdir()] == ["client.properties"]


@pytest.mark.more
def test_a_client_setting_that_nobody_knows_is_named(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("my.own=1\n")
    (tmp_path / "quick.toml").write_text('[source]\nconnect_timeout = "1s"\n')
    files = ("--command-config", "client.properties", "--config", "quick.toml")
    result = offsetlake("run", "--bootstrap-server", "127.0.0.1:1", *files, cwd=tmp_path)
    assert "client setting 'my.own' is not one of Kafka's clients" in untimed(result.stderr)[1]


@pytest.mark.parametrize(
    "command",
    [
        ("run", "--bootstrap-server", "127.0.0.1:1"),
        ("alerts", "--evaluate", "--table-root", "none"),
        ("serve", "--no-http"),
    ],
    ids=lambda command: command[0],
)
def test_secrets_that_others_can_have_are_warned_of(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "mine.toml").write_text(
        '[source]\nconnect_timeout = "1s"\n[alerts.webhook]\nurl = "http://user:c4n4ry@hooks.example/"\n'
    )
    result = offsetlake(*command, "--config", "mine.toml", cwd=tmp_path)
    assert "alerts.webhook.url is http: its password or headers cross the network" in result.stderr
    assert "c4n4ry" not in result.stderr


def test_what_libraries_log_is_not_for_users(tmp_path: Path) -> None:
    warns = "lambda **_: warnings.warn('raw')"
    program = f"import warnings; from streaming.cli import main; main.cli = {warns}; main.main()"
    environment = {name: value for name, value in os.environ.items() if name != "RUST_LOG"}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, env=environment)
    assert (ran.returncode, ran.stderr) == (0, b"")
    result = subprocess.run(
        [*COMMAND, "status", "--table-root", "s3://lake/offsets"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment
        | {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://[::1]:1"},
    )
    assert result.returncode == 1
    assert result.stderr.startswith(
        "offsetlake: reading s3://lake/offsets/changes: expected a Delta table, found: "
    )
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "library"),
    [("run", "confluent_kafka"), ("serve --no-http --kafka 127.0.0.1:0", "_asyncio")],
)
def test_a_signal_while_libraries_are_loaded_is_not_lost(tmp_path: Path, command: str, library: str) -> None:
    with running(*command.split(), cwd=tmp_path) as process:
        memory = Path(f"/proc/{process.pid}/maps")
        kafka.wait_until(lambda: library in memory.read_text(), library)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, output(tmp_path)
    assert untimed(output(tmp_path))[-1] == "stopped"


def test_client_settings_that_cannot_work_are_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\n"
        'sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required keyTab="k";\n'
    )
    result = offsetlake("run", "--command-config", "client.properties", cwd=tmp_path)
    assert result.returncode == 2
    assert "GSSAPI" in result.stderr
    assert not (tmp_path / "warehouse" / "changes").exists()


@pytest.mark.broker
def test_a_topic_that_does_not_exist_is_waited_for_until_told_to_stop(
    broker: LocalBroker, tmp_path: Path
) -> None:
    arguments = ("run", "--bootstrap-server", broker.bootstrap_servers, "--topic", "not-there")
    with running(*arguments, cwd=tmp_path) as process:
        kafka.wait_until(lambda: "waiting for it" in output(tmp_path), "the command to wait", timeout_s=60)
        assert "topic not-there does not exist yet" in output(tmp_path)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert not (tmp_path / "warehouse" / "changes").exists()


@pytest.mark.broker
@pytest.mark.parametrize("command", ["run --once", pytest.param("rebuild", marks=pytest.mark.more)])
def test_a_topic_that_does_not_exist_ends_what_is_to_end(
    broker: LocalBroker, tmp_path: Path, command: str
) -> None:
    (tmp_path / "quick.toml").write_text('[source]\nconnect_timeout = "2s"\n')
    place = ("--bootstrap-server", broker.bootstrap_servers, "--topic", "not-there", "--config", "quick.toml")
    result = offsetlake(*command.split(), *place, cwd=tmp_path, timeout_s=60)
    assert result.returncode == 1
    assert untimed(result.stderr)[-1].startswith(
        f"ERROR: looking for topic not-there: expected it on {broker.bootstrap_servers} within 2 s"
    )
    assert not (tmp_path / "warehouse").exists()


@pytest.mark.more
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
def test_the_job_fills_tables_and_alerts_until_ctrl_c_stops_it_cleanly(
    broker: LocalBroker, tmp_path: Path
) -> None:
    """As SIGTERM does, and the end of the topic with `--once`: test_docs_commands.py."""
    bootstrap, topic = broker.bootstrap_servers, "cli-orders"
    kafka.create_topics(bootstrap, {topic: 2})
    kafka.commit_offsets(bootstrap, "cli", {(topic, 0): 7, (topic, 1): 8})
    kafka.commit_offsets(bootstrap, "cli", {(topic, 0): 2})
    (tmp_path / "soon.toml").write_text('[expiry]\nretention = "2s"\n[alerts]\nevaluate_every = "1s"\n')
    arguments = ("run", "--bootstrap-server", bootstrap, "--trigger", "200ms", "--config", "soon.toml")
    with running(*arguments, cwd=tmp_path) as process:
        kafka.wait_until(lambda: '"group": "cli"' in output(tmp_path), "an alert", timeout_s=90)
        os.killpg(process.pid, signal.SIGINT)  # to the whole group, as a terminal does
        assert process.wait(60) == 0, output(tmp_path)
    said = output(tmp_path)
    told = [line for line in said.splitlines() if line.startswith("{")]
    alerts = [json.loads(line)["alert"] for line in told]
    assert ("offset_expiring", "cli") in {(alert["rule"], alert["group"]) for alert in alerts}
    lines = untimed("\n".join(line for line in said.splitlines() if line not in told))
    assert any(re.match(r"batch \d+: ", line) for line in lines)
    assert lines[-1] == "stopped"
    assert "Traceback" not in said

    result = offsetlake("offsets", "--group", "cli", "--output", "json", cwd=tmp_path)
    rows = json.loads(result.stdout)
    assert [(row["topic"], row["partition"], row["committed_offset"]) for row in rows] == [
        (topic, 0, 2),
        (topic, 1, 8),
    ]
    assert result.stderr == ""
    (group,) = json.loads(offsetlake("groups", "--group", "cli", "--output", "json", cwd=tmp_path).stdout)
    assert (group["type"], group["state"], group["protocol_type"]) == ("classic", "Empty", "")
    partitions = json.loads(offsetlake("status", "--output", "json", cwd=tmp_path).stdout)
    assert [row["partition"] for row in partitions] == list(range(8))
    assert all(row["loaded"] for row in partitions)
    # to others the broker may have written on its own since: it ends the groups of earlier tests
    assert partitions[kafka.partition_of("cli", 8)]["state"] == "current"


@pytest.mark.more
@pytest.mark.broker
@pytest.mark.spark
def test_a_signal_while_spark_starts_is_not_lost(broker: LocalBroker, tmp_path: Path) -> None:
    kafka.ensure_offsets_topic(broker.bootstrap_servers)
    with running("run", "--bootstrap-server", broker.bootstrap_servers, cwd=tmp_path) as process:
        log = tmp_path / "checkpoints" / "spark.log"  # begun just before the JVM
        kafka.wait_until(log.exists, "Spark's start", timeout_s=60)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(60) == 0, output(tmp_path)
    assert output(tmp_path).rstrip().endswith("stopped")
    assert not (tmp_path / "warehouse" / "changes").exists()


def test_no_java_is_a_clear_error_even_where_the_jars_are_there(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": ""}
    result = subprocess.run(
        [*COMMAND, "run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert result.returncode == 1
    assert "expected Java 17 or newer, found no java" in result.stderr


@pytest.mark.more
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
def test_the_demo_ends_by_itself_in_agreement_with_its_broker(tmp_path: Path) -> None:
    result = offsetlake("demo", "--for", "12s", cwd=tmp_path, timeout_s=240)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "the tables agree with the broker" in result.stdout
    assert "group billing appeared" in result.stdout  # at the latest in the last snapshot
    assert list(tmp_path.iterdir()) == []


@pytest.mark.more
def test_client_settings_that_librdkafka_refuses_are_misuse(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("security.protocol=CARRIER_PIGEON\n")
    result = offsetlake("run", "--command-config", "client.properties", cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert "CARRIER_PIGEON" in result.stderr
    assert "--command-config" in result.stderr
    assert "Traceback" not in result.stderr
