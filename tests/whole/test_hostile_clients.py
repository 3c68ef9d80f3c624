"""Clients that mean harm to `offsetlake serve`: an honest one is answered, and memory is bounded."""

import os
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from certificates import CertificateAuthority
from hostile_clients import GROUPS, KINDS, TLS_KINDS, hostile_clients
from listening import Client
from new_tables import new_tables
from table_batches import append, groups_of_offsets

from streaming.common.times import now_ms
from streaming.demo.local_broker import free_ports
from streaming.model.progress import PartitionProgress

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("HOSTILE" not in os.environ, reason="`make test-hostile` runs it"),
]

SECONDS: Final = float(os.environ.get("HOSTILE_SECONDS", "10"))
PARTITIONS: Final = 20
MOST_MEMORY_MB: Final = 500
"""What `serve` may take with these tables (docs/clients.md)."""
HONEST: Final = "127.0.0.2"
SETTINGS: Final = """
[tables]
complete_within = "36500d"
[[serve.kafka]]
listen = "127.0.0.1:{}"
[[serve.kafka]]
listen = "127.0.0.1:{}"
security_protocol = "SASL_SSL"
certificate_file = "{}"
[[serve.principals]]
name = "honest"
mechanism = "PLAIN"
credential = "honest"
groups = ["*"]
"""


class Served:
    """The command at work; `ports` are where it answers, without TLS and with it, which `tls` trusts."""

    def __init__(self, process: subprocess.Popen[bytes], ports: list[int], tls: ssl.SSLContext) -> None:
        self.process = process
        self.ports = ports
        self._tls = tls

    def memory_mb(self, of: str) -> int:
        """Return its memory (VmRSS), or the most of it until now (VmHWM)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith(of)]
        return int(line.split()[1]) // 1024

    def honest(self, *, over_tls: bool = False) -> Client:
        """Connect; over TLS, also sign in."""
        bootstrap = f"127.0.0.1:{self.ports[over_tls]}"
        client = Client(bootstrap, 60, source=HONEST, tls=self._tls if over_tls else None)
        if over_tls:
            assert client.ask(17, 1, {"mechanism": "PLAIN"})["errorCode"] == 0
            assert client.ask(36, 2, {"authBytes": b"\0honest\0honest"})["errorCode"] == 0
        return client


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("hostile")
    tables = new_tables(folder / "tables")
    batch = groups_of_offsets(GROUPS, PARTITIONS, "m" * 20)
    append(tables, batch, partitions={0: PartitionProgress(loaded=True)}, now=now_ms())
    ports, ca = free_ports(2), CertificateAuthority()
    tls = ssl.create_default_context(cafile=ca.write_trusted(folder / "ca.pem"))
    (folder / "settings.toml").write_text(SETTINGS.format(*ports, ca.write_pem(folder / "server.pem", "s")))
    command = [sys.executable, "-m", "streaming.cli", "serve", "--no-http"]
    command += ["--table-root", str(folder / "tables"), "--config", str(folder / "settings.toml")]
    log = (folder / "log").open("wb")
    with log, subprocess.Popen(command, stderr=log) as process:
        while (folder / "log").read_bytes().count(b"answering Kafka's clients on") < len(ports):
            assert process.poll() is None
            time.sleep(0.1)
        yield Served(process, ports, tls)
        process.terminate()
        assert process.wait(30) == 0
    print(f"\n{(folder / 'log').read_text()}")


def asked_for(client: Client, seconds: float) -> list[float]:
    """Ask about one group after the other; return how long each answer took (ms)."""
    took = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        name = f"g{len(took) % GROUPS}"
        began = time.monotonic()
        [found] = client.ask(9, 8, {"groups": [{"groupId": name, "topics": None}]})["groups"]
        took.append((time.monotonic() - began) * 1_000)
        assert len(found["topics"][0]["partitions"]) == PARTITIONS
        time.sleep(0.01)
    return took


def shown(what: str, took: list[float], memory_mb: int) -> None:
    ordered = sorted(took)
    late = ordered[int(len(ordered) * 0.99)]
    print(
        f"| {what} | {len(took)} | {statistics.median(took):.1f} | {late:.1f} | {ordered[-1]:.1f} "
        f"| {memory_mb} |",
        flush=True,
    )


@pytest.mark.parametrize("kind", ["nothing", *KINDS])
def test_an_honest_client_is_answered_and_memory_is_bounded(served: Served, kind: str) -> None:
    over_tls = kind in TLS_KINDS
    with served.honest(over_tls=over_tls) as client:
        before = asked_for(client, 1.0)
        if kind == "nothing":
            shown(kind, before, served.memory_mb("VmRSS"))
            return
        with hostile_clients(kind, served.ports[over_tls]):
            took = asked_for(client, SECONDS)
            began = time.monotonic()
            with served.honest(over_tls=over_tls) as another:  # there is room for it, too
                print(f"another was connected after {(time.monotonic() - began) * 1_000:.0f} ms")
                took += asked_for(another, 1.0)
        shown(kind, took, served.memory_mb("VmHWM"))
    assert served.memory_mb("VmHWM") < MOST_MEMORY_MB
    alone = max(statistics.median(before), 1.0)
    assert statistics.median(took) < 50 * alone


def test_afterwards_all_is_as_before(served: Served) -> None:
    with served.honest() as client:
        everything = {"groups": [{"groupId": f"g{number}", "topics": None} for number in range(GROUPS)]}
        assert len(client.ask(9, 8, everything)["groups"]) == GROUPS
