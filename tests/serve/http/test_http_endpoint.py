"""The HTTP endpoint: what it answers at every stage of the tables, to whom, and how much it lets clients
take."""

import gzip
import hmac
import logging
import shutil
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hmac import compare_digest
from pathlib import Path
from typing import Any

import pytest
from http_endpoint import Opened, opened, quick
from kafka_clients import wait_until
from metrics_read import by, read
from table_batches import Batch, append, group, heartbeat, offset

from streaming.common.times import MINUTE_MS, now_ms
from streaming.model.progress import PartitionProgress, Progress, Reached, Rebuild
from streaming.serve.http.app import _cut
from streaming.serve.http.hosts import is_own_name
from streaming.serve.metrics.publisher import Body
from streaming.tables.tables import Tables

BATCH: Batch = {("g", "t", 0): offset(source_partition=0), "g": group(source_partition=0)}
TOKEN = "a-token-of-some-length"


def fill(tables: Tables, *, committed: int = 7, at: int | None = None, **changed: object) -> Progress:
    now = now_ms() if at is None else at
    batch = {**BATCH, ("g", "t", 0): offset(source_partition=0, committed_offset=committed)}
    partition = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    return append(tables, batch, now=now, **{"partitions": {0: partition}, **changed})


@pytest.fixture
def endpoint(tables: Tables) -> Iterator[Opened]:
    fill(tables)
    with opened(tables) as endpoint:
        yield endpoint


def position(endpoint: Opened) -> float | None:
    told = read(endpoint.ask("/metrics").body)
    return by(told.get("offsetlake_group_topic_position", {}), "group").get("g")


# --- every stage of the tables ---------------------------------------------------------------------------


def test_tables_come_load_change_are_rebuilt_vanish_and_come_again(tables: Tables) -> None:
    root = Path(tables.root)
    shutil.rmtree(root)
    with opened(tables) as endpoint:
        told = read(endpoint.ask("/metrics").body)
        assert told["offsetlake_tables_readable"][()] == 0
        assert "offsetlake_heartbeat_timestamp_seconds" not in told
        assert (endpoint.ask("/healthz").status, endpoint.ask("/readyz").status) == (200, 503)
        tables.create()
        fill(tables, partitions={0: PartitionProgress(loaded=False)})
        wait_until(
            lambda: read(endpoint.ask("/metrics").body)["offsetlake_tables_readable"][()] == 1, "tables"
        )
        assert position(endpoint) is None
        fill(tables)
        wait_until(lambda: position(endpoint) == 7, "the group")
        assert endpoint.ask("/readyz").status == 200
        fill(tables, committed=8, rebuild=Rebuild(since=now_ms(), reason="it was recreated"))
        wait_until(lambda: position(endpoint) is None, "the rebuild")
        fill(tables, committed=9, rebuild=None)
        wait_until(lambda: position(endpoint) == 9, "the end of the rebuild")
        shutil.rmtree(root)
        wait_until(
            lambda: read(endpoint.ask("/metrics").body)["offsetlake_tables_readable"][()] == 0, "the end"
        )
        assert position(endpoint) == 9
        assert endpoint.ask("/readyz").status == 503
        tables.create()
        fill(tables, committed=11)
        wait_until(lambda: position(endpoint) == 11, "the tables again", timeout_s=30)


def test_a_group_that_is_gone_has_no_series_during_a_rebuild(endpoint: Opened, tables: Tables) -> None:
    def series() -> set[str]:
        told = read(endpoint.ask("/metrics").body)
        return {name for name, values in told.items() if any(("group", "g") in labels for labels in values)}

    wait_until(lambda: "offsetlake_group_commits_total" in series(), "the group")
    append(tables, dict.fromkeys(BATCH), live=BATCH, now=now_ms())
    heartbeat(tables, now_ms())
    wait_until(lambda: "offsetlake_group_topic_position" not in series(), "its end")
    assert "offsetlake_group_commits_total" in series()
    rebuild = Rebuild(since=now_ms(), reason="it was recreated")
    append(tables, {}, now=now_ms(), rebuild=rebuild)
    wait_until(lambda: not series(), "the rebuild")


@pytest.mark.parametrize("ahead_s", [-181, 240])
def test_a_dead_job_or_a_wrong_clock_has_no_groups_and_the_heartbeat_stays(
    tables: Tables, ahead_s: int
) -> None:
    at = now_ms() + ahead_s * 1_000
    fill(tables, at=at)
    with opened(tables) as endpoint:
        told = read(endpoint.ask("/metrics").body)
        assert not [name for name in told if name.startswith("offsetlake_group_")]
        assert told["offsetlake_heartbeat_timestamp_seconds"][()] == at / 1_000
        assert endpoint.ask("/readyz").status == 503


def test_a_counter_rises_while_it_is_scraped(endpoint: Opened, tables: Tables) -> None:
    def rewinds() -> float:
        told = read(endpoint.ask("/metrics").body)
        return by(told.get("offsetlake_group_rewinds_total", {}), "group").get("g", -1)

    wait_until(lambda: rewinds() == 0, "the group")
    back = offset(source_partition=0, committed_offset=3)
    now = now_ms()
    append(tables, {("g", "t", 0): back}, live=BATCH, now=now - 2 * MINUTE_MS)  # so it is known that it lasts
    heartbeat(tables, now)
    wait_until(lambda: rewinds() == 1, "the rewind")


# --- answers ---------------------------------------------------------------------------------------------


def test_formats_and_compression_are_those_that_were_asked_for(endpoint: Opened) -> None:
    plain = endpoint.ask("/metrics")
    assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "content-encoding" not in plain.headers
    prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
    packed = endpoint.ask("/metrics", accept=prometheus, accept_encoding="gzip")
    assert packed.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert packed.headers["content-encoding"] == "gzip"
    assert set(read(gzip.decompress(packed.body), "openmetrics")) == set(read(plain.body))
    assert "content-encoding" not in endpoint.ask("/metrics", accept_encoding="gzip;q=0, br").headers


PREFERENCES = {
    "": "text",
    "*/*": "text",
    "text/html, */*;q=0.8": "text",
    "application/openmetrics-text": "openmetrics",
    "application/openmetrics-text, */*": "openmetrics",
    "application/openmetrics-text;version=1.0.0;q=0.5, text/plain;version=0.0.4;q=0.9": "text",
    "application/openmetrics-text;q=0.5, */*;q=0.9": "text",
    "application/openmetrics-text;q=0.5, text/plain;q=0.1, */*;q=0.9": "openmetrics",
    "text/plain, application/openmetrics-text; v=0; q=0, Application/OpenMetrics-Text": "openmetrics",
    "application/openmetrics-text;q=0": "text",
    "application/openmetrics-text;q=nan, text/plain": "text",
}
CODINGS = {
    "": False,
    "gzip": True,
    "br, GZIP": True,
    "*": True,
    "gzip, identity": True,
    "gzip;q=0.1, identity;q=1": False,
    "gzip;q=0.1, *;q=0.5": False,
    "gzip;q=0.5, *;q=0": True,
    "*;q=1, gzip;q=0": False,
    "gzip;q=0, br": False,
    "gzip;q=inf": False,
}


def test_what_a_client_prefers_is_sent(endpoint: Opened) -> None:
    for accepted, style in PREFERENCES.items():
        sent = endpoint.ask("/metrics", accept=accepted).headers["content-type"]
        assert ("openmetrics" in sent) == (style == "openmetrics"), accepted
    for accepted, is_zipped in CODINGS.items():
        assert (
            "content-encoding" in endpoint.ask("/metrics", accept_encoding=accepted).headers
        ) == is_zipped, accepted


def test_what_a_client_has_is_not_sent_again(tables: Tables) -> None:
    fill(tables)
    with opened(tables, every_s=60) as endpoint:
        first = endpoint.ask("/metrics")
        again = endpoint.ask("/metrics", if_none_match=f'"x", {first.headers["etag"]}')
        assert (again.status, again.body) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
        assert endpoint.ask("/metrics", if_none_match="*").status == 304
        assert endpoint.ask("/metrics", if_none_match='"x"').status == 200
        assert endpoint.ask("/metrics", if_none_match='"*"').status == 200
        assert endpoint.ask("/metrics", accept_encoding="gzip").headers["etag"] != first.headers["etag"]


def test_bytes_are_made_once_for_all_scrapers(tables: Tables) -> None:
    fill(tables)
    with opened(tables, every_s=60) as endpoint:
        endpoint.ask("/metrics")
        with ThreadPoolExecutor(50) as pool:
            answers = list(pool.map(lambda _: endpoint.ask("/metrics"), range(100)))
        assert {answer.status for answer in answers} == {200}
        assert len({answer.body for answer in answers}) == 1
        assert endpoint.telling.publisher._count == 1


def test_get_and_head_only(endpoint: Opened) -> None:
    endpoint.ask("/metrics")
    head = endpoint.ask("/metrics", "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["content-length"]) > 1_000
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        answer = endpoint.ask("/metrics", method)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    for path in ("/nowhere", "/metrics/", "/healthz/", "//metrics"):
        answer = endpoint.ask(path, host="127.0.0.2:1")
        assert (answer.status, "location" in answer.headers) == (404, False)
    assert b"/metrics" in endpoint.ask("/").body


def test_a_token_is_asked_for(tables: Tables) -> None:
    fill(tables)
    with opened(tables, token=TOKEN) as endpoint:
        for path in ("/metrics", "/", "/nowhere"):
            for sent in (
                "",
                "Bearer",
                f"Basic {TOKEN}",
                f"Bearer {TOKEN}x",
                f"Bearer {TOKEN[:-1]}",
                f"Bearer{TOKEN}",
                TOKEN,
            ):
                answer = endpoint.ask(path, authorization=sent)
                assert (answer.status, b"offsetlake_" in answer.body) == (401, False), (path, sent)
        assert endpoint.ask("/metrics").headers["www-authenticate"].startswith("Bearer")
        for scheme in ("Bearer", "bearer", "BEARER "):
            assert endpoint.ask("/metrics", authorization=f"{scheme} {TOKEN}").status == 200
        assert endpoint.ask("/healthz").body == b"ok\n"
        assert endpoint.ask("/readyz").status == 200


def test_tokens_are_compared_in_constant_time(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a refusal takes says nothing of the token: `==` would end at the first other character."""
    compared = []

    def compare(sent: bytes, expected: bytes) -> bool:
        compared.append((sent, expected))
        return compare_digest(sent, expected)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    with opened(tables, token=TOKEN) as endpoint:
        for sent in (TOKEN, f"{TOKEN[:-1]}x", "x"):
            endpoint.ask("/", authorization=f"Bearer {sent}")
            assert compared.pop() == (sent.encode(), TOKEN.encode())


# --- what clients may take -------------------------------------------------------------------------------


def ends(client: socket.socket) -> bytes:
    """What comes until the other side closes the connection."""
    received = b""
    try:
        while data := client.recv(65_536):
            received += data
    except ConnectionError:
        pass
    return received


@pytest.mark.parametrize(
    "begun", [pytest.param(b"", marks=pytest.mark.more), b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nx-"]
)
def test_who_does_not_finish_a_request_loses_the_connection(tables: Tables, begun: bytes) -> None:
    with opened(tables, limits=quick(head_s=0.5)) as endpoint, endpoint.connect() as client:
        client.sendall(begun)
        began = time.monotonic()
        assert ends(client) == b""
        assert time.monotonic() - began < 5


def test_a_request_that_drips_is_not_waited_for(tables: Tables) -> None:
    with opened(tables, limits=quick(head_s=0.5)) as endpoint, endpoint.connect() as client:
        began = time.monotonic()
        with suppress(OSError):
            while time.monotonic() - began < 10:
                client.sendall(b"x")
                time.sleep(0.1)
        assert time.monotonic() - began < 5


def test_a_long_request_is_refused(tables: Tables) -> None:
    with opened(tables) as endpoint, endpoint.connect() as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 100_000)
        assert b"HTTP/1.1 200" not in ends(client)
        assert endpoint.ask("/healthz").status == 200


def of_length(length: int, filled: bytes = b"x") -> bytes:
    """A request of so many bytes."""
    begun = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: y"
    return begun + filled * (length - len(begun) - 4) + b"\r\n\r\n"


@pytest.mark.parametrize("filled", [b"x", b" "])
def test_a_request_may_have_16_kib_also_when_it_comes_at_once(endpoint: Opened, filled: bytes) -> None:
    limit = 16 * 1024
    with endpoint.connect() as client:
        client.sendall(of_length(limit, filled) + of_length(100) + of_length(limit, filled))
        client.shutdown(socket.SHUT_WR)
        assert ends(client).count(b"HTTP/1.1 200") == 3
    with endpoint.connect() as client:
        client.sendall(of_length(100) + of_length(limit + 1, filled) + of_length(100))
        assert [line for line in ends(client).splitlines() if line.startswith(b"HTTP")] in (
            [b"HTTP/1.1 200 OK", b"HTTP/1.1 400 Bad Request"],
            [b"HTTP/1.1 200 OK"],  # what came in time before the connection was closed
        )


INNER = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n"
BODIES = [
    (b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"0\r\n\r\n" + INNER),
    (b"Transfer-Encoding: chunked\r\nContent-Length: %d" % len(INNER), b"0\r\n\r\n" + INNER),
    (b"Content-Length: 0\r\nTransfer-Encoding: chunked", b"0\r\n\r\n" + INNER),
    (b"Transfer-Encoding: chunked", b"0\r\n\r\n" + INNER),
    (b"Transfer-Encoding: identity", INNER),
    (b"Transfer-Encoding: xchunked", INNER),
    (b"Content-Length: 5", b"hello" + INNER),
    (b"Content-Length: 5\r\nExpect: 100-continue", b""),
    (b"Content-Length: 99999999", b""),
    (b"Content-Length: 0\r\nContent-Length: 5", b"hello" + INNER),
    (b"Content-Length: -1", INNER),
    (b"Content-Length: 0, 5", b"hello" + INNER),
    (b"Content-Length:\r\n 5", b"hello" + INNER),
    (b"x: y\r\n Transfer-Encoding: chunked", b"0\r\n\r\n" + INNER),  # a header of its own to some
    (b"x: y\r\n\tContent-Length: %d" % len(INNER), INNER),
    (b"x: y\nTransfer-Encoding: chunked", b"0\r\n\r\n" + INNER),
    (b"Transfer-Encoding : chunked", b"0\r\n\r\n" + INNER),
]


def test_a_request_with_a_body_gets_one_answer_and_no_other_is_read(endpoint: Opened) -> None:
    """A proxy may read it as one request, with the other as its body: nobody may answer two."""
    lines = (b"GET /healthz", b"GET http://localhost/healthz", b"POST /metrics")
    for line in (b"HEAD / HTTP/1.0", *(line + b" HTTP/1.1" for line in lines)):
        for header, body in BODIES:
            with endpoint.connect() as client:
                client.sendall(line + b"\r\nhost: localhost\r\n" + header + b"\r\n\r\n" + body)
                answer = ends(client)
            assert answer.startswith(b"HTTP/1.1 400 "), (line, header)
            assert answer.count(b"HTTP/1.1") == 1, (line, header)
            assert b"connection: close" in answer.lower(), (line, header)
            assert b"HEAD" in line or b"expected a request without a body" in answer, (line, header)
    assert endpoint.said == []


def test_a_client_that_still_sends_its_body_reads_the_rejection(endpoint: Opened) -> None:
    with endpoint.connect() as client:
        client.sendall(b"POST /metrics HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2000000\r\n\r\n")
        time.sleep(0.2)  # until it is rejected
        for _ in range(20):
            client.sendall(b"x" * 100_000)
        assert b"expected a request without a body" in ends(client)
    assert endpoint.said == []


def test_who_never_ends_a_rejected_request_loses_the_connection(tables: Tables) -> None:
    with opened(tables, limits=quick(head_s=0.5)) as endpoint, endpoint.connect() as client:
        began = time.monotonic()
        client.sendall(
            b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\nPOST / HTTP/1.1\r\ncontent-length: 9\r\n\r\n"
        )
        with suppress(OSError):
            while time.monotonic() - began < 10:
                client.sendall(b"x")
                time.sleep(0.1)
        assert time.monotonic() - began < 5


def test_no_body_may_be_said_to_have_no_bytes(endpoint: Opened) -> None:
    assert endpoint.ask("/healthz", Content_Length="0").status == 200
    assert endpoint.ask("/healthz", "POST", Content_Length="0").status == 405


def test_an_idle_connection_is_kept_and_then_closed(tables: Tables) -> None:
    with (
        opened(tables, limits=quick(head_s=0.3, idle_s=2, answer_s=1)) as endpoint,
        endpoint.connect() as client,
    ):
        for _ in range(2):
            client.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            received = b""
            while not received.endswith(b"ok\n"):
                received += client.recv(65_536)
            time.sleep(1.2)
        began = time.monotonic()
        assert ends(client) == b""
        assert time.monotonic() - began < 5


def fill_much(tables: Tables) -> None:
    many: Batch = {
        (f"group-{'x' * 150}-{number}", "t", 0): offset(source_partition=0) for number in range(4_000)
    }
    now = now_ms()
    partition = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    append(tables, many, now=now, partitions={0: partition})


def test_a_client_that_takes_nothing_loses_the_connection(tables: Tables) -> None:
    fill_much(tables)
    with opened(tables, limits=quick(unread_s=0.5)) as endpoint:
        assert len(endpoint.ask("/metrics").body) > 5_000_000
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.connect(("127.0.0.1", endpoint.endpoint.port))
            client.sendall(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
            wait_until(lambda: len(endpoint.endpoint._connections) == 1, "the connection")
            wait_until(lambda: not endpoint.endpoint._connections, "its end")
        assert endpoint.ask("/metrics").status == 200
        assert endpoint.said == []


@pytest.mark.more
def test_a_client_that_takes_an_answer_bit_by_bit_loses_the_connection(tables: Tables) -> None:
    fill_much(tables)
    with opened(tables, limits=quick(answer_s=2)) as endpoint, socket.socket() as client:
        endpoint.ask("/metrics")
        wait_until(lambda: not endpoint.endpoint._connections, "the end of the first")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect(("127.0.0.1", endpoint.endpoint.port))
        client.sendall(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
        began = time.monotonic()
        assert client.recv(4_096)
        while endpoint.endpoint._connections and time.monotonic() - began < 10:
            client.recv(4_096)
            time.sleep(0.05)
        assert 1 < time.monotonic() - began < 6


def test_nothing_is_sent_to_a_client_that_has_gone(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fill_much(tables)
    cut = []

    def counted(body: Body) -> Iterator[bytes]:
        for piece in _cut(body):
            cut.append(len(piece))
            yield piece

    with opened(tables) as endpoint:
        total = len(endpoint.ask("/metrics").body)
        monkeypatch.setattr("streaming.serve.http.app._cut", counted)
        for _ in range(5):
            cut.clear()
            with endpoint.connect() as client:
                client.sendall(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
                client.recv(1_000)
            wait_until(lambda: not endpoint.endpoint._connections, "its end")
            assert 0 < sum(cut) < total
        assert endpoint.said == []
    assert "socket.send" not in capfd.readouterr().err


def test_what_is_logged_is_said_now_and_then_and_written_nowhere_else(endpoint: Opened) -> None:
    logging.getLogger("uvicorn.error").warning("that a request was nonsense is not said")
    for name in ("asyncio", "uvicorn.error"):
        for number in range(3):
            logging.getLogger(name).error("line %d\nof it", number)
        assert not logging.getLogger(name).propagate
    assert endpoint.said == [
        "an event loop reports: line 0 of it",
        "building an HTTP response failed: line 0 of it",
    ]


def test_what_the_event_loop_complains_of_is_said_and_written_nowhere_else(
    endpoint: Opened, capfd: pytest.CaptureFixture[str]
) -> None:
    endpoint.ask("/healthz")
    loop = endpoint.endpoint._server.servers[0].get_loop()
    loop.call_soon_threadsafe(int, "no number")
    wait_until(lambda: endpoint.said, "it to be said")
    [said] = endpoint.said
    assert said.startswith("an event loop reports: Exception in callback int('no number')")
    assert said.endswith("ValueError: invalid literal for int() with base 10: 'no number'")
    assert endpoint.ask("/healthz").status == 200
    assert capfd.readouterr().err == ""


def test_warnings_of_the_event_loop_are_said(endpoint: Opened) -> None:
    logging.getLogger("asyncio").warning("socket.send() raised exception.")
    assert endpoint.said == ["an event loop reports: socket.send() raised exception."]


def asks_forever(client: socket.socket, port: int) -> None:
    """Ask for metrics, and take nothing of them."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.connect(("127.0.0.1", port))
    client.sendall(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")


@pytest.mark.parametrize("is_made", [True, pytest.param(False, marks=pytest.mark.more)])
def test_answers_that_are_given_up_at_the_end_are_not_spoken_of(
    tables: Tables, is_made: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """One that its client does not take, and one that is not made yet."""
    fill_much(tables)
    with socket.socket() as client:
        with opened(tables) as endpoint:
            if is_made:
                endpoint.ask("/metrics")
            else:
                endpoint.telling.publisher.__exit__(None, None, None)
            asks_forever(client, endpoint.endpoint.port)
            wait_until(
                lambda: len(endpoint.endpoint._server.server_state.tasks) == 1, "the answer to be begun"
            )
            began = time.monotonic()
        assert time.monotonic() - began < 4
        assert not endpoint.endpoint._thread.is_alive()
    assert endpoint.said == []
    assert capfd.readouterr().err == ""


def test_there_are_only_so_many_connections(tables: Tables) -> None:
    with opened(tables, limits=quick(connections=3)) as endpoint:
        clients = [endpoint.connect() for _ in range(5)]
        wait_until(lambda: "more HTTP connections than are allowed" in "".join(endpoint.said), "what is said")
        assert len(endpoint.said) == 1
        for client in clients:
            client.close()
        wait_until(lambda: not endpoint.endpoint._connections, "their end")
        assert endpoint.ask("/healthz").status == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"\0" * 100,
        pytest.param(b"GET / HTTP/9.9\r\n\r\n", marks=pytest.mark.more),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", marks=pytest.mark.more),
        b"GET /%ff%00 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
)
def test_nonsense_harms_nobody(tables: Tables, sent: bytes) -> None:
    with opened(tables, limits=quick(head_s=0.5, idle_s=1)) as endpoint, endpoint.connect() as client:
        client.sendall(sent)
        ends(client)
        assert endpoint.ask("/healthz").status == 200


# --- names under which it is asked (DNS rebinding) --------------------------------------------------------


def status(endpoint: Opened, host: str, path: str = "/metrics", **headers: str) -> int:
    return endpoint.ask(path, Host=host, **headers).status


OWN = [
    *("127.0.0.1", "127.0.0.1:8720", "127.9.9.9:1", "localhost", "LocalHost:8720", "[::1]", "[::1]:8720"),
    *("localhost.", "localhost.:8720", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]:8720"),
]
OTHERS = [
    *("evil.example", "evil.example:8720", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1"),
    *("0.0.0.0:8720", "[fe80::1]:8720", "localhost@evil.example", "localhost:8720.evil.example", "", "[::1"),
    *("::1", "2130706433", "localhost..", ".", "localhost.evil.example.", "[::ffff:10.0.0.1]", "[localhost]"),
]


def test_without_a_token_only_names_of_this_machine_are_answered(endpoint: Opened) -> None:
    assert [status(endpoint, host) for host in OWN] == [200] * len(OWN)
    for path in ("/", "/metrics", "/healthz", "/readyz", "/none"):
        assert status(endpoint, "evil.example", path) == 421
    assert {host: status(endpoint, host) for host in OTHERS} == dict.fromkeys(OTHERS, 421)
    assert b"--behind-proxy" in endpoint.ask("/metrics", Host="evil.example").body


def of_target(endpoint: Opened, target: str, head: str) -> bytes:
    """The answer to a request of a target, with some headers."""
    with endpoint.connect() as client:
        client.sendall(f"GET {target} HTTP/1.1\r\n{head}\r\nconnection: close\r\n\r\n".encode())
        return ends(client)


def test_a_target_may_be_an_address_whose_host_counts(endpoint: Opened) -> None:
    """The header Host is ignored then (RFC 9112, 3.2.2)."""
    wait_until(lambda: endpoint.ask("/groups").status == 200, "the first assessment")
    for target, text in (
        ("http://localhost:8720/healthz", b"ok\n"),
        ("HTTPS://127.0.0.1/healthz", b"ok\n"),
        ("http://localhost/groups?q=of-no-group", b"of-no-group"),
        ("http://localhost", b"<h1>Overview</h1>"),
        ("http://localhost?q=x", b"<h1>Overview</h1>"),
    ):
        answer = of_target(endpoint, target, "Host: evil.example")
        assert (answer.startswith(b"HTTP/1.1 200 "), text in answer) == (True, True), target
    for target in ("http://evil.example/healthz", "http://localhost@evil.example/healthz"):
        assert of_target(endpoint, target, "Host: localhost").startswith(b"HTTP/1.1 421 "), target
    for target in ("http:///healthz", "ftp://localhost/healthz", "http://localhost/none"):
        assert of_target(endpoint, target, "Host: localhost").startswith(b"HTTP/1.1 404 "), target


@pytest.mark.parametrize("open_to", [{"token": TOKEN}, {"behind_proxy": True}], ids=["token", "proxy"])
def test_with_a_token_or_a_proxy_the_name_does_not_matter(tables: Tables, open_to: dict[str, Any]) -> None:
    fill(tables)
    with opened(tables, **open_to) as endpoint:
        assert status(endpoint, "lake.example:8720", Authorization=f"Bearer {TOKEN}") == 200


def test_the_name_that_is_listened_on_is_answered() -> None:
    assert is_own_name("Lake.internal:8720", "lake.internal")
    assert is_own_name("lake.internal.:8720", "lake.internal")
    assert not is_own_name("lake.internal.evil.example", "lake.internal")
