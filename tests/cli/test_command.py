"""The `offsetlake` command as a user runs it: a process, its output, its exit code, its end."""

import json
import os
import signal
import subprocess
import time
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
    assert result.returncode == 1
    assert "127.0.0.1:1" in result.stderr
    assert "expected an answer within 2 s" in result.stderr
    assert "--bootstrap-server" in result.stderr
    assert "Traceback" not in result.stderr
    assert time.monotonic() - started < 30


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
@pytest.mark.spark
@pytest.mark.slow
def test_run_once_then_offsets_as_json_equals_the_broker(broker: LocalBroker, tmp_path: Path) -> None:
    bootstrap = broker.bootstrap_servers
    kafka.create_topics(bootstrap, {"cli-orders": 2})
    kafka.commit_offsets(bootstrap, "cli", {("cli-orders", 0): 7, ("cli-orders", 1): 8})
    kafka.commit_offsets(bootstrap, "cli", {("cli-orders", 0): 2})
    result = offsetlake("run", "--bootstrap-server", bootstrap, "--once", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""

    result = offsetlake("offsets", "--group", "cli", "--output", "json", cwd=tmp_path)
    rows = json.loads(result.stdout)
    assert [(row["topic"], row["partition"], row["committed_offset"]) for row in rows] == [
        ("cli-orders", 0, 2),
        ("cli-orders", 1, 8),
    ]
    assert result.stderr == ""
    (group,) = json.loads(offsetlake("groups", "--group", "cli", "--output", "json", cwd=tmp_path).stdout)
    assert (group["type"], group["state"], group["protocol_type"]) == ("classic", "Empty", "")
    partitions = json.loads(offsetlake("status", "--output", "json", cwd=tmp_path).stdout)
    assert [row["partition"] for row in partitions] == list(range(8))
    assert all(row["loaded"] for row in partitions)
    # to others the broker may have written on its own since: it ends the groups of earlier tests
    assert partitions[kafka.partition_of("cli", 8)]["state"] == "current"


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
def test_ctrl_c_stops_the_job_cleanly(broker: LocalBroker, tmp_path: Path) -> None:
    """As SIGTERM does: test_docs_commands.py."""
    bootstrap, topic = broker.bootstrap_servers, "stopping"
    kafka.create_topics(bootstrap, {topic: 1})
    kafka.commit_offsets(bootstrap, topic, {(topic, 0): 1})
    arguments = ("run", "--bootstrap-server", bootstrap, "--trigger", "200ms")
    with running(*arguments, cwd=tmp_path) as process:
        kafka.wait_until(lambda: "batch 0:" in output(tmp_path), "the first batch", timeout_s=90)
        os.killpg(process.pid, signal.SIGINT)  # to the whole group, as a terminal does
        assert process.wait(60) == 0, output(tmp_path)
    assert output(tmp_path).rstrip().endswith("stopped")
    assert "Traceback" not in output(tmp_path)
    rows = json.loads(offsetlake("offsets", "--group", topic, "--output", "json", cwd=tmp_path).stdout)
    assert [row["committed_offset"] for row in rows] == [1]


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


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
def test_the_demo_ends_by_itself_in_agreement_with_its_broker(tmp_path: Path) -> None:
    result = offsetlake("demo", "--for", "12s", cwd=tmp_path, timeout_s=240)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "the tables agree with the broker" in result.stdout
    assert "group billing appeared" in result.stdout  # at the latest in the last picture
    assert list(tmp_path.iterdir()) == []


def test_client_settings_that_librdkafka_refuses_are_misuse(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("security.protocol=CARRIER_PIGEON\n")
    result = offsetlake("run", "--command-config", "client.properties", cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert "CARRIER_PIGEON" in result.stderr
    assert "--command-config" in result.stderr
    assert "Traceback" not in result.stderr
