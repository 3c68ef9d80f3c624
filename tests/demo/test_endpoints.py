"""The endpoints of the demo: what is to be pasted works, and the process that answers ends with the demo."""

import shlex
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_clients import wait_until
from table_batches import Batch, append, group, offset

from streaming.common.times import now_ms
from streaming.demo.endpoints import Endpoints, EndpointsError
from streaming.demo.local_broker import free_port
from streaming.model.progress import PartitionProgress
from streaming.tables.tables import Tables

BILLING: Batch = {
    "billing": group(state="Empty", source_partition=0),
    ("billing", "orders", 0): offset(committed_offset=431, source_partition=0),
}


@pytest.fixture
def endpoints(tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoints]:
    monkeypatch.setattr("sys.argv", ["pytest"])  # `python -m streaming.cli`, as no command was started
    with Endpoints(tables.root, tmp_path) as endpoints:
        yield endpoints


def is_open(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as client:
        return client.connect_ex((host, int(port))) == 0


def test_the_command_for_kafkas_endpoint_works_when_it_is_pasted(
    tables: Tables, endpoints: Endpoints
) -> None:
    append(tables, BILLING, partitions={0: PartitionProgress(loaded=True)}, now=now_ms())
    wait_until(lambda: is_open(endpoints.kafka), "the endpoint")
    command, _ = endpoints.commands
    ran = subprocess.run(["sh", "-c", shlex.join(command)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    head, line = (row.split() for row in ran.stdout.splitlines() if row)
    assert head[:4] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET"]
    assert line[:4] == ["billing", "orders", "0", "431"]
    endpoints.check()


def test_the_command_for_the_http_endpoint_names_what_prometheus_scrapes(
    tables: Tables, endpoints: Endpoints
) -> None:
    append(tables, BILLING, partitions={0: PartitionProgress(loaded=True)}, now=now_ms())
    wait_until(lambda: is_open(endpoints.http), "the endpoint")
    _, [*_, url] = endpoints.commands
    with urllib.request.urlopen(url, timeout=30) as answer:
        assert "\noffsetlake_groups 1\n" in answer.read().decode()


@pytest.mark.more
def test_the_endpoints_are_shut_at_the_end(tables: Tables, tmp_path: Path) -> None:
    with Endpoints(tables.root, tmp_path) as endpoints:
        wait_until(lambda: is_open(endpoints.kafka), "the endpoint")
    assert not is_open(endpoints.kafka)
    assert not is_open(endpoints.http)
    assert "stopped" in (tmp_path / "serve.log").read_text()  # in good order


@pytest.mark.more
def test_a_process_that_has_ended_is_reported_with_what_it_said(endpoints: Endpoints) -> None:
    wait_until(lambda: is_open(endpoints.kafka), "the endpoint")
    assert endpoints._child is not None
    endpoints._child.end(signal.SIGTERM)
    with pytest.raises(EndpointsError, match=rf"on {endpoints.http}: the process has ended") as raised:
        endpoints.check()
    assert str(raised.value).endswith("stopped")


def test_another_port_is_found_where_the_usual_one_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert free_port(port) != port
    assert free_port(port) == port
