"""The command `serve` with signing in: what may be opened, and SIGHUP, which replaces certificates and
principals."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import CertificateAuthority
from command_process import COMMAND
from kafka_clients import wait_until
from listening import Client
from signing_in import Credentials, some_tables

from streaming.demo.local_broker import free_ports
from streaming.settings.scram_credentials import salted

READ = "certificates and principals were read again"
SETTINGS = """
[[serve.kafka]]
listen = "127.0.0.1:{port}"
security_protocol = "SASL_SSL"
certificate_file = "{server}"

[[serve.principals]]
name = "billing"
mechanism = "PLAIN"
credential = "${{file:{folder}/secrets.properties:billing}}"
groups = ["*"]
"""


class Served:
    """The command in the background, its files and what it has printed."""

    def __init__(self, folder: Path) -> None:
        [self.port] = free_ports(1)
        self.folder = folder
        self.ca = CertificateAuthority()
        self.credentials = Credentials.written(folder, self.ca)
        self.config = folder / "listener.toml"
        self.write()

    def write(self) -> None:
        """Write all files that can be replaced."""
        server = self.ca.write_pem(self.credentials.server, "a listener of a test")
        self.config.write_text(SETTINGS.format(port=self.port, server=server, folder=self.folder))
        self.set_password("first-secret")

    def set_password(self, text: str) -> None:
        (self.folder / "secrets.properties").write_text(f"billing={text}\n")

    def said(self) -> str:
        return (self.folder / "said.txt").read_text()

    def client(self) -> Client:
        return Client(f"127.0.0.1:{self.port}", tls=self.credentials.trusting())

    def error(self, client: Client, password: str) -> int:
        """Sign in; return the error."""
        assert client.ask(17, 1, {"mechanism": "PLAIN"})["errorCode"] == 0
        token = f"\0billing\0{password}".encode()
        return int(client.ask(36, 2, {"authBytes": token})["errorCode"])


@pytest.fixture(scope="module")
def process_and_files(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Served, subprocess.Popen[bytes]]]:
    folder = tmp_path_factory.mktemp("served")
    tables, running = some_tables(folder), Served(folder)
    command = [*COMMAND, "serve", "--no-http", "--config", str(running.config), "--table-root", tables.root]
    with (folder / "said.txt").open("w") as said, subprocess.Popen(command, stderr=said) as process:
        try:
            wait_until(lambda: "answering Kafka's clients on" in running.said(), "the listener", timeout_s=30)
            yield running, process
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            process.kill()
    assert "stopped" in running.said()
    assert "-secret" not in running.said()


@pytest.fixture
def served(
    process_and_files: tuple[Served, subprocess.Popen[bytes]],
) -> tuple[Served, subprocess.Popen[bytes]]:
    """The command and its files, as at the start."""
    running, process = process_and_files
    running.write()
    reload(running, process, READ)
    return running, process


def reload(running: Served, process: subprocess.Popen[bytes], expected: str) -> None:
    before = len(running.said())
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: expected in running.said()[before:], "the reload to be told")


def test_sighup_replaces_certificates_and_principals_for_new_connections(
    served: tuple[Served, subprocess.Popen[bytes]],
) -> None:
    running, process = served
    with running.client() as before:
        first = before.socket.getpeercert(binary_form=True)  # type: ignore[attr-defined]
        assert running.error(before, "first-secret") == 0
        running.set_password("second-secret")
        running.ca.write_pem(running.credentials.server, "another certificate")
        reload(running, process, READ)
        assert before.ask(16, 0, {})["errorCode"] == 0
        with running.client() as after:
            assert after.socket.getpeercert(binary_form=True) != first  # type: ignore[attr-defined]
            assert running.error(after, "first-secret") == 58
        with running.client() as after:
            assert running.error(after, "second-secret") == 0
            assert [one["groupId"] for one in after.ask(16, 0, {})["groups"]] == ["g"]
        assert running.error(before, "second-secret") == 0  # a sign-in on an open connection is a new one
        assert before.ask(16, 0, {})["errorCode"] == 0
        assert running.error(before, "first-secret") == 58


@pytest.mark.parametrize("what", ["certificate", "secret", "settings"])
def test_what_cannot_be_used_changes_nothing(
    served: tuple[Served, subprocess.Popen[bytes]], what: str
) -> None:
    running, process = served
    change: dict[str, Callable[[], Any]] = {
        "certificate": lambda: running.credentials.server.write_text("no PEM"),
        "secret": lambda: (running.folder / "secrets.properties").unlink(),
        "settings": lambda: running.config.write_text("no TOML"),
    }
    if what != "secret":
        running.set_password("second-secret")
    change[what]()
    reload(running, process, "the former ones remain: ")
    with running.client() as client:
        assert running.error(client, "first-secret") == 0
    assert process.poll() is None


def test_a_listener_for_others_without_signing_in_is_refused_with_the_ways_out(
    offsetlake: Any, tmp_path: Path
) -> None:
    ended = offsetlake("serve", "--no-http", "--kafka", "0.0.0.0:0", "--table-root", str(tmp_path))
    assert ended.code == 2
    for part in ("0.0.0.0", 'security_protocol = "SASL_SSL"', "insecure = true", "ssh -L"):
        assert part in ended.err


def test_credentials_are_not_among_the_settings_that_are_shown(offsetlake: Any, tmp_path: Path) -> None:
    running = Served(tmp_path)
    running.set_password(str(salted("x", "SCRAM-SHA-256", salt=b"first-secret", iterations=4096)))
    ended = offsetlake(
        *("run", "--show-settings", "--config", str(running.config)),
        *("--bootstrap-server", "localhost:9092"),
    )
    assert ended.code == 0, ended.err
    assert 'credential = "(hidden)"' in ended.out
    assert "stored_key" not in ended.out + ended.err
