"""The commands `offsetlake serve` with the HTTP endpoint, and `offsetlake metrics`."""

import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from listening import Client
from metrics_read import by, read
from table_batches import append, group, offset

from streaming.common.times import now_ms
from streaming.demo.local_broker import free_ports
from streaming.model.progress import PartitionProgress, Reached
from streaming.tables.tables import Tables

TOKEN = "0123456789abcdef"


def fill(tables: Tables) -> None:
    now = now_ms()
    partition = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    batch = {("g", "t", 0): offset(source_partition=0), "g": group(source_partition=0)}
    append(tables, batch, now=now, partitions={0: partition})


def test_metrics_are_printed_once_without_what_is_counted(offsetlake: Any, tables: Tables) -> None:
    fill(tables)
    ended = offsetlake("metrics", "--table-root", tables.root)
    told = read(ended.out.encode())
    assert ended.code == 0
    assert told["offsetlake_group_topic_position"] == {(("group", "g"), ("topic", "t")): 7}
    assert not [name for name in told if name.endswith("_total")]
    ended = offsetlake("metrics", "--openmetrics", "--table-root", tables.root)
    assert set(read(ended.out.encode(), "openmetrics")) == set(told)


@pytest.mark.parametrize("has_tables", [False, True])
def test_metrics_before_anything_was_read_are_none(offsetlake: Any, tmp_path: Path, has_tables: bool) -> None:
    tables = Tables(str(tmp_path / "tables"))
    if has_tables:
        tables.create()
    ended = offsetlake("metrics", "--table-root", tables.root)
    assert (ended.code, ended.out) == (1, "")
    assert f"expected tables at {tables.root} into which a topic was read" in ended.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--no-http"], 2, "expected a listener, found none"),
        (["--no-http", "--http", "127.0.0.1:1"], 2, "--no-http: expected no other option about HTTP"),
        (["--no-http", "--behind-proxy"], 2, "--no-http: expected no other option about HTTP"),
        (["--http", "8720"], 2, "--http: expected host:port"),
        (
            ["--http", "0.0.0.0:0"],
            2,
            "Add --token-file with a token that clients must send, or --behind-proxy",
        ),
        (["--http", "[::]:0"], 2, "which other machines can reach"),
        (["--http", "nowhere.invalid:1"], 1, "its host is unknown"),
        (["--token-file", "/nowhere/token"], 2, "token file /nowhere/token: expected a file with one line"),
        (["--http", "192.0.2.1:0", "--behind-proxy"], 1, "expected an address of this machine"),
    ],
)
def test_endpoints_that_may_not_be_opened(
    offsetlake: Any, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    ended = offsetlake("serve", "--table-root", str(tmp_path), *arguments)
    assert (ended.code, message in ended.err) == (code, True), ended.err


def test_a_port_that_is_taken_is_reported_before_the_tables_are_looked_at(
    offsetlake: Any, tmp_path: Path
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = offsetlake("serve", "--table-root", str(tmp_path / "nothing"), "--http", at)
    assert (ended.code, "a port that is free" in ended.err) == (1, True), ended.err
    assert "cannot be refreshed" not in ended.err


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "found 0 characters"),
        ("short\n", "found 5 characters"),
        ("two words of a token\n", "found a blank or a control character"),
        (f"{TOKEN}\t{TOKEN}\n", "found a blank or a control character"),
        (f"{TOKEN}\n{TOKEN}\n", "found 2 lines"),
        ("línea-que-no-es-ascii\n", "found: other characters than those of ASCII"),
    ],
)
def test_tokens_that_are_none(offsetlake: Any, tmp_path: Path, text: str, found: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    ended = offsetlake("serve", "--table-root", str(tmp_path), "--token-file", str(file))
    assert (ended.code, f"token file {file}: expected" in ended.err) == (2, True), ended.err
    assert found in ended.err
    assert not text.strip() or text.strip() not in ended.err


@pytest.mark.parametrize("name", ["group", "a-b"])
def test_labels_that_cannot_be(offsetlake: Any, tmp_path: Path, name: str) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(f'[metrics.labels]\n"{name}" = "x"\n')
    ended = offsetlake("serve", "--table-root", str(tmp_path), "--config", str(settings))
    assert (ended.code, "metrics.labels: expected names" in ended.err) == (2, True), ended.err


def test_it_serves_until_it_is_told_to_stop(tables: Tables, tmp_path: Path) -> None:
    fill(tables)
    http, kafka = free_ports(2)
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    command = [sys.executable, "-m", "streaming.cli", "serve", "--table-root", tables.root]
    command += ["--http", f"127.0.0.1:{http}", "--token-file", str(token), "--kafka", f"127.0.0.1:{kafka}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = [process.stderr.readline(), process.stderr.readline()]
        assert f"answering HTTP on http://127.0.0.1:{http}/" in said[0]
        with closing(Client(f"127.0.0.1:{kafka}")) as client:
            client.ask(16, 0, {})
        asked = urllib.request.Request(
            f"http://127.0.0.1:{http}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        with urllib.request.urlopen(asked, timeout=30) as answer:
            told = read(answer.read())
        requests = by(told["offsetlake_kafka_requests_total"], "api", "version")
        assert {of: count for of, count in requests.items() if count} == {("ListGroups", "0"): 1}
        assert told["offsetlake_kafka_connections"][()] <= 1
        assert "offsetlake_group_commits_total" in told
        taken = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (taken.returncode, "Choose another with --http, or --no-http" in taken.stderr) == (1, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
        assert "stopped" in process.stderr.read()
