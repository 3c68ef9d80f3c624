"""The command `offsetlake serve`: endpoints that may be opened, a clean end, tables that come and go."""

import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from cable import Cable
from kafka_clients import wait_until
from listening import Client, listening
from table_batches import Batch, append, group, offset

from streaming.common.times import now_ms
from streaming.demo.local_broker import free_ports
from streaming.model.progress import PartitionProgress
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.view import Address
from streaming.serve.process.handles import connections_within
from streaming.tables.tables import Tables

BATCH: Batch = {("g", "t", 0): offset(source_partition=0), "g": group(source_partition=0)}

Serve = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def port() -> int:
    [found] = free_ports(1)
    return int(found)


@pytest.fixture
def serve(tmp_path: Path, port: int) -> Iterator[Serve]:
    """A function that starts the command and waits until it answers."""
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str, run: Sequence[str] = ("-m", "streaming.cli")) -> subprocess.Popen[str]:
        command = [sys.executable, *run, "serve", "--no-http", "--kafka", f"127.0.0.1:{port}"]
        command += ["--table-root", str(tmp_path / "tables"), *arguments]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stderr is not None
        while "answering Kafka's clients on" not in (line := process.stderr.readline()):
            assert line, process.wait()
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def fill(tables: Tables) -> None:
    append(tables, BATCH, partitions={0: PartitionProgress(loaded=True)}, now=now_ms())


def offset_of(client: Client) -> tuple[int, int]:
    asked = [{"groupId": "g", "topics": [{"name": "t", "partitionIndexes": [0]}]}]
    [answered] = client.ask(9, 9, {"groups": asked})["groups"]
    if answered["errorCode"]:
        return answered["errorCode"], -1
    return 0, answered["topics"][0]["partitions"][0]["committedOffset"]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.more)])
def test_a_signal_ends_it_cleanly(tables: Tables, serve: Serve, port: int, number: signal.Signals) -> None:
    fill(tables)
    process = serve()
    with closing(Client(f"127.0.0.1:{port}")) as client:
        assert offset_of(client) == (0, 7)
        process.send_signal(number)
        assert process.wait(10) == 0
        assert client.frame() == b""
    assert process.stderr is not None
    assert "stopped" in process.stderr.read()


LONG = """
import sys
import time
from streaming.cli.main import main
from streaming.serve.kafka import apis, connection

def answer(request, view):
    print("it is being made", file=sys.stderr, flush=True)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        pass

connection.MANY = -1
connection.answer = answer
main()
"""


@pytest.mark.more
def test_a_signal_ends_it_though_an_answer_is_being_made(tables: Tables, serve: Serve, port: int) -> None:
    fill(tables)
    process = serve(run=["-c", LONG])
    with closing(Client(f"127.0.0.1:{port}")) as client:
        client.send(18, 0, {})
        assert process.stderr is not None
        while "it is being made" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


SLOW = """
import os
import time
from streaming.cli.main import main
from streaming.serve.memory.tailer import Tailer

poll = Tailer.poll

def slowly(self, **how):
    while not os.path.exists(os.environ["TABLES_THERE"]):
        time.sleep(0.01)
    return poll(self, **how)

Tailer.poll = slowly
main()
"""
"""A serve that needs long to read the tables for the first time: until a file is there."""


@pytest.fixture
def slow(tmp_path: Path, port: int) -> Iterator[tuple[subprocess.Popen[str], str, Path]]:
    """Such a process, where it answers HTTP, and that file."""
    [http], there = free_ports(1), tmp_path / "there"
    command = [sys.executable, "-c", SLOW, "serve", "--table-root", str(tmp_path / "tables")]
    command += ["--http", f"127.0.0.1:{http}", "--kafka", f"127.0.0.1:{port}"]
    there_at = {**os.environ, "TABLES_THERE": str(there)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=there_at) as process:
        yield process, f"http://127.0.0.1:{http}", there
        process.kill()


def answers_at(port: int) -> bool:
    with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), 5)):
        return True
    return False


def status_at(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_while_the_tables_are_read_for_the_first_time_endpoints_say_so(
    tables: Tables, slow: tuple[subprocess.Popen[str], str, Path], port: int
) -> None:
    fill(tables)
    process, http, there = slow
    wait_until(lambda: answers_at(port), "the Kafka endpoint", timeout_s=20)
    with closing(Client(f"127.0.0.1:{port}")) as client:
        assert offset_of(client) == (Error.COORDINATOR_LOAD_IN_PROGRESS, -1)
        assert [status_at(f"{http}{path}") for path in ("/healthz", "/readyz")] == [200, 503]
        there.touch()
        wait_until(lambda: offset_of(client) == (0, 7), "the tables to be read")
    assert process.stderr is not None
    assert ["answering HTTP" in process.stderr.readline(), "Kafka" in process.stderr.readline()] == [True] * 2
    assert status_at(f"{http}/readyz") == 200


@pytest.mark.more
def test_a_signal_ends_it_before_the_tables_are_read(
    slow: tuple[subprocess.Popen[str], str, Path], port: int
) -> None:
    process, _, there = slow
    wait_until(lambda: answers_at(port), "the Kafka endpoint", timeout_s=20)
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: not answers_at(port), "the Kafka endpoint to be closed")
    there.touch()
    assert process.wait(10) == 0
    assert process.stderr is not None
    said = process.stderr.read()
    assert ("stopped" in said, "answering" in said) == (True, False), said


def test_a_port_that_is_taken_is_reported_before_the_tables_are_looked_at(
    offsetlake: Any, tmp_path: Path
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = offsetlake("serve", "--no-http", "--kafka", at, "--table-root", str(tmp_path / "nothing"))
    assert (ended.code, f"listening on {at}" in ended.err) == (1, True), ended.err
    assert "cannot be refreshed" not in ended.err


def test_tables_may_come_change_vanish_and_come_again(tables: Tables, serve: Serve, port: int) -> None:
    root = Path(tables.root)
    shutil.rmtree(root)
    serve()
    with closing(Client(f"127.0.0.1:{port}")) as client:
        assert offset_of(client) == (Error.COORDINATOR_LOAD_IN_PROGRESS, -1)
        tables.create()
        fill(tables)
        wait_until(lambda: offset_of(client) == (0, 7), "the tables to be seen")
        append(
            tables,
            {("g", "t", 0): offset(source_partition=0, committed_offset=8)},
            live=BATCH,
            now=now_ms(),
        )
        wait_until(lambda: offset_of(client) == (0, 8), "the commit to be seen", timeout_s=2)
        root.rename(root.with_name("elsewhere"))
        assert offset_of(client) == (0, 8)
        root.with_name("elsewhere").rename(root)
        append(
            tables,
            {("g", "t", 0): offset(source_partition=0, committed_offset=9)},
            live=BATCH,
            now=now_ms(),
        )
        wait_until(lambda: offset_of(client) == (0, 9), "the tables to be seen again", timeout_s=20)


FEW_HANDLES = """
import resource
from streaming.cli.main import main

resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
main()
"""


@pytest.mark.more
def test_clients_take_no_handles_that_the_tables_need(tables: Tables, serve: Serve, port: int) -> None:
    fill(tables)
    process = serve(run=["-c", FEW_HANDLES])
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(Client(f"127.0.0.1:{port}"))) for _ in range(450)]
        answered = []
        for client in clients:
            with suppress(OSError):
                client.send(18, 0, {})
                answered += [client] if client.frame() else []
        assert len(answered) == 100
        newer: Batch = {("g", "t", 0): offset(source_partition=0, committed_offset=8)}
        append(tables, newer, live=BATCH, now=now_ms())
        wait_until(lambda: offset_of(answered[0]) == (0, 8), "the commit to be seen", timeout_s=5)
    process.terminate()
    assert process.stderr is not None
    said = process.stderr.read()
    assert "more connections than are allowed" in said
    assert ("Too many open files" in said, "cannot be refreshed" in said) == (False, False), said


RAISED = """
import resource
from streaming.serve.process.handles import KEPT, ensure

resource.setrlimit(resource.RLIMIT_NOFILE, (100, 1_000))
print(ensure(300), ensure(400 + KEPT), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_as_many_handles_are_taken_as_connections_need_and_are_allowed() -> None:
    ran = subprocess.run([sys.executable, "-c", RAISED], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["300", "488", "1000", "1000"]


@pytest.mark.parametrize(
    ("handles", "wanted", "connections"), [(10_000, 1_500, 1_500), (1_024, 1_500, 512), (256, 1_500, 64)]
)
def test_some_handles_are_kept_for_the_tables(handles: int, wanted: int, connections: int) -> None:
    assert connections_within(handles, wanted) == connections


def test_a_host_of_several_addresses_is_listened_to_at_one_port(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tables)
    looked_up, addresses = socket.getaddrinfo, ("127.0.0.1", "127.0.0.2")

    def found(host: str, *arguments: Any, **more: Any) -> list[Any]:
        hosts = addresses if host == "two.test" else (host,)
        return [one for host in hosts for one in looked_up(host, *arguments, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    with listening(tables, address=Address("two.test", 0)) as endpoint:
        for host in addresses:
            with Client(f"{host}:{endpoint.address.port}") as client:
                assert client.ask(18, 0, {})["errorCode"] == 0


def told_through_a_tunnel(near: int, port: int) -> tuple[str, int]:
    """Return what a client is told to connect to that comes through a tunnel with another port at its end."""
    with Cable(near, port), closing(Client(f"127.0.0.1:{near}")) as client:
        [broker] = client.ask(3, 12, {"topics": []})["brokers"]
        found = client.ask(10, 1, {"key": "g", "keyType": 0})
        assert (found["host"], found["port"]) == (broker["host"], broker["port"])
        return broker["host"], broker["port"]


@pytest.mark.parametrize("is_advertised", [pytest.param(False, marks=pytest.mark.more), True])
def test_through_a_tunnel_with_another_port_clients_need_to_be_told_their_end(
    tables: Tables, serve: Serve, port: int, is_advertised: bool
) -> None:
    [near] = free_ports(1)
    serve(*(["--advertise", f"127.0.0.1:{near}"] if is_advertised else []))
    assert told_through_a_tunnel(near, port) == ("127.0.0.1", near if is_advertised else port)


def test_clients_are_told_what_is_advertised(tables: Tables, serve: Serve, port: int) -> None:
    serve("--advertise", "kafka.example:9192")
    with closing(Client(f"127.0.0.1:{port}")) as client:
        [broker] = client.ask(3, 12, {"topics": []})["brokers"]
        assert (broker["host"], broker["port"]) == ("kafka.example", 9192)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--no-http"], 2, "serving: expected a listener, found none"),
        (["--kafka", "0.0.0.0:9192"], 2, "expected a loopback address, such as 127.0.0.1"),
        (["--kafka", "[::]:9192"], 2, "expected a loopback address"),
        (["--kafka", "192.0.2.1:9192"], 2, "found 192.0.2.1"),
        (["--kafka", "[::ffff:192.0.2.1]:9192"], 2, "found ::ffff:192.0.2.1"),
        (["--kafka", "[::ffff:127.0.0.1]:0", "--advertise", "0:9192"], 2, "found a wildcard"),
        (["--kafka", "9192"], 2, "--kafka: expected host:port"),
        (["--kafka", "127.0.0.1:99999"], 2, "--kafka: expected host:port"),
        (["--advertise", "a:1"], 2, "--advertise: expected --kafka beside it"),
        (["--kafka", "127.0.0.1:0", "--advertise", "0.0.0.0:1"], 2, "found a wildcard"),
        (["--kafka", "127.0.0.1:0", "--advertise", "0:9192"], 2, "found a wildcard"),
        (["--kafka", "127.0.0.1:0", "--advertise", "[::0]:9192"], 2, "found a wildcard"),
        (["--kafka", "127.0.0.1:0", "--advertise", "[::ffff:0.0.0.0]:9192"], 2, "found a wildcard"),
        (["--kafka", "a..b:9192"], 2, "listening on a..b:9192: expected a host name"),
        (["--kafka", f"{'a' * 70}:9192"], 2, "Use one of this machine"),
        (["--kafka", "nowhere.invalid:9192"], 1, "its host is unknown"),
        (["--kafka", "nowhere.invalid:9192"], 1, "Use an address of this machine"),
    ],
)
def test_endpoints_that_may_not_be_opened(
    offsetlake: Any, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    ended = offsetlake("serve", "--table-root", str(tmp_path), *arguments)
    assert (ended.code, message in ended.err) == (code, True), ended.err


def test_endpoints_stand_in_settings_and_a_taken_port_is_named(
    offsetlake: Any, tmp_path: Path, tables: Tables, serve: Serve, port: int
) -> None:
    serve()
    frozen = gc.get_freeze_count()
    settings = tmp_path / "settings.toml"
    settings.write_text(f'[[serve.kafka]]\nlisten = "127.0.0.1:{port}"\n')
    ended = offsetlake("serve", "--no-http", "--config", str(settings), "--table-root", tables.root)
    assert (ended.code, f"listening on 127.0.0.1:{port}" in ended.err) == (1, True)
    assert (gc.isenabled(), gc.get_freeze_count() <= frozen) == (True, True)


@pytest.mark.parametrize("value", ['listen = "kafka"', 'listen = "127.0.0.1:1"\nadvertise = "x"', ""])
def test_mistakes_in_endpoints_are_named(offsetlake: Any, tmp_path: Path, value: str) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(f"[[serve.kafka]]\n{value}\n")
    ended = offsetlake("serve", "--config", str(settings))
    assert ended.code == 2
    assert "serve.kafka[1]" in ended.err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('as_of = "soon"', "serve.kafka at 127.0.0.1:1: as_of: expected a time, found 'soon'"),
        ('as_of = "9999-01-01"', "which is in the future"),
        ("as_of = 2026-11-20T14:03:00Z", "serve.kafka[1].as_of' expects text in quotes"),
        ('[serve]\nas_of_clients = "on"', "'serve.as_of_clients' expects true or false, found 'on'"),
    ],
)
def test_mistakes_in_moments_are_named(offsetlake: Any, tmp_path: Path, line: str, message: str) -> None:
    settings = tmp_path / "settings.toml"
    kafka = '[[serve.kafka]]\nlisten = "127.0.0.1:1"\n'
    settings.write_text(f"{line}\n{kafka}" if line.startswith("[") else f"{kafka}{line}\n")
    ended = offsetlake("serve", "--no-http", "--config", str(settings), "--table-root", str(tmp_path))
    assert (ended.code, message in ended.err) == (2, True), ended.err
