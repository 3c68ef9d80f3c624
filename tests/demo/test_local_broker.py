"""The local broker: it starts, keeps its data, explains its failures, and never outlives its owner."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from conftest import BrokerFactory

from streaming.demo import local_broker
from streaming.demo.local_broker import LocalBroker, LocalBrokerError, free_ports, server_properties

OWNER = """
import sys, time
from pathlib import Path
from streaming.demo.local_broker import LocalBroker
broker = LocalBroker(Path(sys.argv[1]), jars=Path(sys.argv[2]))
broker.start()
print(broker.pid, flush=True)
time.sleep(600)
"""


def topics(broker: LocalBroker) -> set[str]:
    return set(AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=10).topics)


def create_topic(broker: LocalBroker, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(timeout=10)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and that nobody has waited for does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return state.stdout.strip() not in ("", "Z", "Zl")


def wait_until_gone(pid: int, *, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_alive(pid)


class TestSettings:
    def test_ports_are_free_and_differ(self) -> None:
        ports = free_ports(50)
        assert len(set(ports)) == 50
        assert all(20_000 <= port < 32_000 for port in ports)

    def test_a_port_in_use_is_not_offered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            monkeypatch.setattr(local_broker, "_PORTS", range(port, port + 2))
            assert port not in free_ports(1)

    def test_the_data_directory_is_absolute(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert LocalBroker(Path("here")).directory == tmp_path / "here"

    def test_every_replication_factor_is_one(self, tmp_path: Path) -> None:
        settings = server_properties(tmp_path, ports={"PLAINTEXT": 1, "CONTROLLER": 2}, offsets_partitions=3)
        factors = [value for name, value in settings.items() if name.endswith("replication.factor")]
        assert factors == [1] * 4

    def test_a_broker_that_does_not_run_has_no_pid(self, tmp_path: Path) -> None:
        broker = LocalBroker(tmp_path)
        broker.stop()
        assert not broker.is_running
        with pytest.raises(LocalBrokerError, match="is not running"):
            broker.pid  # noqa: B018


@pytest.mark.broker
class TestRunning:
    @pytest.mark.more
    def test_data_and_address_stay_over_restart_and_crash(self, make_broker: BrokerFactory) -> None:
        broker = make_broker()
        address = broker.bootstrap_servers
        create_topic(broker, "kept")
        broker.restart()
        broker.kill()
        assert not broker.is_running
        broker.start()
        assert broker.bootstrap_servers == address
        assert "kept" in topics(broker)

    @pytest.mark.more
    def test_overrides_win_and_the_partitions_are_chosen(self, make_broker: BrokerFactory) -> None:
        broker = make_broker(offsets_partitions=3, overrides={"num.partitions": 7})
        written = (broker.directory / "server.properties").read_text().splitlines()
        assert {"offsets.topic.num.partitions=3", "num.partitions=7"} <= set(written)

    def test_starting_twice_is_starting_once(self, broker: LocalBroker) -> None:
        pid = broker.pid
        broker.start()
        assert broker.pid == pid

    @pytest.mark.more
    def test_stopping_is_a_clean_shutdown_and_leaves_no_process(
        self, broker_jars: Path, tmp_path: Path
    ) -> None:
        with LocalBroker(tmp_path, jars=broker_jars) as broker:
            pid = broker.pid
        assert not is_alive(pid)
        assert "shut down completed" in broker.log.read_text()
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()

    @pytest.mark.parametrize("how", [pytest.param("-TERM", marks=pytest.mark.more), "-KILL"])
    def test_it_does_not_outlive_its_owner(self, how: str, broker_jars: Path, tmp_path: Path) -> None:
        command = [sys.executable, "-c", OWNER, str(tmp_path), str(broker_jars)]
        environment = os.environ | {"PYTHONPATH": str(Path(local_broker.__file__).parents[2])}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as owner:
            assert owner.stdout is not None
            pid = int(owner.stdout.readline())
            assert is_alive(pid)
            subprocess.run(["/bin/kill", how, str(owner.pid)], check=True)
        assert wait_until_gone(pid, timeout=10)


@pytest.mark.broker
class TestFailing:
    @pytest.mark.more
    def test_a_bad_setting_shows_what_the_format_tool_said(self, broker_jars: Path, tmp_path: Path) -> None:
        broker = LocalBroker(tmp_path, jars=broker_jars, overrides={"node.id": "one"})
        with pytest.raises(LocalBrokerError, match=r"(?s)formatting .*exit code 1.*Invalid value one"):
            broker.start()

    @pytest.mark.more
    def test_a_broker_that_ends_shows_its_first_error(self, broker_jars: Path, tmp_path: Path) -> None:
        broker = LocalBroker(tmp_path, jars=broker_jars)
        with socket.socket() as taken:
            host, port = broker.bootstrap_servers.split(":")
            taken.bind((host, int(port)))
            taken.listen()
            with pytest.raises(
                LocalBrokerError, match=r"(?s)found that its process ended.*Address already in use"
            ):
                broker.start()
        assert not broker.is_running

    @pytest.mark.more
    def test_a_broker_that_is_never_ready_is_killed(
        self, broker_jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(local_broker, "_START_LIMIT", 0.2)
        broker = LocalBroker(tmp_path, jars=broker_jars)
        with pytest.raises(LocalBrokerError, match="nothing of the kind"):
            broker.start()
        assert not broker.is_running
