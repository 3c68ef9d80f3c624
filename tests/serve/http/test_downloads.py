"""Files of pages that clients take slowly, and clients that ask for much: others are answered."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from http_endpoint import Opened, opened, quick
from kafka_clients import wait_until
from new_tables import new_tables
from served_clusters import filled
from starlette.requests import Request
from table_batches import Batch, append, group, offset

from streaming.common.times import now_ms
from streaming.model.progress import PartitionProgress, Reached
from streaming.serve.http.places import Places
from streaming.serve.http.requests import peer_of
from streaming.serve.page.asked import Asked
from streaming.serve.page.pages import Pages, Response
from streaming.tables.tables import Tables

FILE = "/group.json?group=g"
TOKEN = "a-token-of-some-length"


@pytest.fixture
def large(tables: Tables) -> Tables:
    """A group whose file no socket holds as a whole."""
    many: Batch = {("g", "t", n): offset(source_partition=0, metadata="m" * 2_000) for n in range(4_000)}
    now = now_ms()
    partition = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    append(tables, {**many, "g": group(source_partition=0)}, now=now, partitions={0: partition})
    return tables


@contextmanager
def begun(endpoint: Opened, path: str = FILE, headers: str = "") -> Iterator[socket.socket]:
    """A client that has read the first bytes of an answer, and reads no more."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.settimeout(30)
        client.connect(("127.0.0.1", endpoint.endpoint.port))
        client.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n".encode())
        assert client.recv(12) == b"HTTP/1.1 200"
        yield client


def check_refused(endpoint: Opened, path: str, expected: str, **headers: str) -> None:
    answer = endpoint.ask(path, **headers)
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.body.decode() == f"expected {expected}, found more; ask again in 5 seconds\n"


def test_clients_that_stop_reading_a_file_block_no_others(large: Tables) -> None:
    with opened(large, limits=quick(downloads=3, downloads_of_address=3)) as endpoint:
        assert endpoint.ask(FILE).status == 200
        with ExitStack() as stack:
            clients = [stack.enter_context(begun(endpoint)) for _ in range(3)]
            for path in (FILE, "/groups.csv", "/removed.reset-csv"):
                check_refused(endpoint, path, "at most 3 files at the same time, and 3 to one address")
            for path in ("/groups", "/group?group=g", "/group/history?group=g", "/removed", "/metrics"):
                assert endpoint.ask(path).status == 200, path
            clients[0].close()
            wait_until(lambda: endpoint.ask("/groups.csv").status == 200, "the place of one that has gone")
        wait_until(lambda: len(endpoint.endpoint._connections) == 0, "the end of all")
        with ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(begun(endpoint))
        assert endpoint.said == []


def test_a_client_that_stops_reading_loses_its_place(large: Tables) -> None:
    limits = quick(downloads=1, downloads_of_address=1, unread_s=0.5)
    with opened(large, limits=limits) as endpoint, begun(endpoint):
        assert endpoint.ask("/groups.csv").status == 503
        wait_until(lambda: endpoint.ask("/groups.csv").status == 200, "its place")


def test_files_that_are_not_sent_hold_no_place(large: Tables) -> None:
    """Errors, what the client has already, and HEAD."""
    with opened(large, limits=quick(downloads=1, downloads_of_address=1), every_s=600) as endpoint:
        tag = endpoint.ask("/status.json").headers["etag"]
        for _ in range(3):
            for path, method, known, expected in (
                ("/status.json", "GET", tag, (200, 304)),
                (FILE, "HEAD", "", (200,)),
                (f"{FILE}x", "GET", "", (404,)),
                ("/groups.json?state=x", "GET", "", (400,)),
            ):
                wait_until(
                    lambda p=path, m=method, k=known, e=expected: (
                        endpoint.ask(p, m, if_none_match=k).status in e
                    ),
                    path,
                )


@pytest.mark.more
def test_one_address_does_not_take_all_files_and_a_proxy_says_whose_they_are(large: Tables) -> None:
    limits = quick(downloads=3, downloads_of_address=2)
    mine, other = "x-forwarded-for: 10.0.0.1\r\n", "10.0.0.2"
    expected = "at most 3 files at the same time, and 2 to one address"
    with opened(large, limits=limits, behind_proxy=True) as endpoint, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(begun(endpoint, headers=mine))
        check_refused(endpoint, FILE, expected, x_forwarded_for="10.0.0.1")
        assert endpoint.ask(FILE, x_forwarded_for=other).status == 200
        stack.enter_context(begun(endpoint, headers=f"x-forwarded-for: {other}\r\n"))
        check_refused(endpoint, FILE, expected, x_forwarded_for="10.0.0.3")
    with opened(large, limits=limits) as endpoint, ExitStack() as stack:  # others may state what they like
        stack.enter_context(begun(endpoint, headers=mine))
        stack.enter_context(begun(endpoint))
        check_refused(endpoint, FILE, expected, x_forwarded_for=other)


def test_one_address_does_not_fill_the_queue(large: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """While answers from the tables take long, one address waits for so many; another is answered."""
    may_go_on, respond = threading.Event(), Pages.respond

    def slow(own: Pages, path: str, parameters: dict[str, str], now: int) -> Response:
        if path == "/removed":
            assert may_go_on.wait(30)
        return respond(own, path, parameters, now)

    monkeypatch.setattr(Pages, "respond", slow)
    limits = quick(pages_of_address=4)
    with opened(large, limits=limits, behind_proxy=True) as endpoint, ExitStack() as stack:
        waiting = []
        for _ in range(4):
            client = stack.enter_context(endpoint.connect())
            client.sendall(b"GET /removed HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: 10.0.0.1\r\n\r\n")
            waiting.append(client)
        wait_until(lambda: endpoint.ask("/groups", x_forwarded_for="10.0.0.1").status == 503, "the queue")
        expected = "at most 4 pages at the same time"
        check_refused(endpoint, "/removed", expected, x_forwarded_for="10.0.0.1")
        assert endpoint.ask("/groups", x_forwarded_for="10.0.0.2").status == 200
        assert endpoint.ask("/metrics", x_forwarded_for="10.0.0.1").status == 200
        waiting.pop().close()  # who leaves while waiting has no place any more
        wait_until(lambda: endpoint.ask("/groups", x_forwarded_for="10.0.0.1").status == 200, "a place")
        may_go_on.set()
        for client in waiting:
            assert client.recv(12) == b"HTTP/1.1 200"


class Removed:
    """Answers of `/removed` that take until `may_go_on`, for requests with a parameter `slow`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_go_on, self.running, self._respond = threading.Event(), 0, Pages.respond
        monkeypatch.setattr(Pages, "respond", lambda *asked: self._slow(*asked))

    def _slow(self, own: Pages, path: str, parameters: dict[str, str], now: int) -> Response:
        if "slow" in parameters:
            self.running += 1
            assert self.may_go_on.wait(60)
            self.running -= 1
        return self._respond(own, path, parameters, now)

    def ask(self, endpoint: Opened, cluster: str = "") -> socket.socket:
        client = endpoint.connect()
        client.sendall(f"GET /removed?slow&cluster={cluster} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        return client


def test_threads_of_clients_that_have_left_keep_their_places(
    large: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = Removed(monkeypatch)
    with opened(large) as endpoint:
        for _ in range(8):
            client = removed.ask(endpoint)
            time.sleep(0.1)  # it begins, or waits
            client.close()
        wait_until(lambda: len(endpoint.endpoint._connections) == 0, "the end of all")
        assert removed.running == 2
        removed.may_go_on.set()
        wait_until(lambda: removed.running == 0, "the end of the threads")
        assert endpoint.ask("/removed").status == 200


def test_tables_that_do_not_answer_hold_up_no_other_cluster(
    large: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed, other = Removed(monkeypatch), new_tables(tmp_path / "other")
    with opened({"a": large.root, "b": other.root}) as endpoint, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(removed.ask(endpoint, "a"))
        wait_until(lambda: removed.running == 2, "both")
        for path in ("/removed", "/groups.csv", "/groups"):
            assert endpoint.ask(f"{path}?cluster=b").status == 200
        removed.may_go_on.set()


READ = (
    "/offset?group=g&topic=t&partition=0",  # removed
    "/offset?group=nobody&topic=t&partition=0",
    "/offset?group=g&topic=t&partition=2",  # newer than the assessment
    "/offset?group=new&topic=t&partition=0",
    "/group?group=new",
)
"""Pages of the present that are not made from memory."""

HELD = {
    "/offset?group=g&topic=t&partition=1": 200,
    "/offset?group=g&topic=t&partition=7": 200,  # assigned
    "/offset?group=g&topic=t&partition=x": 400,
    "/offset?group=g&topic=t&partition=1&cluster=c": 404,
    "/group?group=g": 200,
    "/group?group=nobody": 404,
}


def test_pages_that_memory_does_not_have_hold_up_no_other_cluster(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, may_go_on, running, ask = filled(tmp_path / "other", committed=7), threading.Event(), [], Asked.ask

    def slow(asked: Asked, *arguments: Any, **named: Any) -> Any:
        if asked.cluster.name == "a":
            running.append(asked)
            assert may_go_on.wait(60)
        return ask(asked, *arguments, **named)

    now = now_ms()
    assigned = [{"topic": "t", "topic_id": None, "subtopology": None, "partitions": [7]}]
    member = {"member_id": "m", "client_id": "c", "client_host": "/h", "assignment": assigned}
    first: Batch = {("g", "t", number): offset(source_partition=0) for number in (0, 1)}
    first |= {"g": group(source_partition=0, members=[member])}
    partition = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    append(tables, first, now=now - 2, partitions={0: partition})
    append(tables, {("g", "t", 0): None}, live=first, now=now - 1)
    with opened({"a": tables.root, "b": other.root}, every_s=600) as endpoint, ExitStack() as stack:
        assert endpoint.ask("/offset?group=g&topic=t&partition=1&cluster=a").status == 200
        append(tables, {("g", "t", 2): offset(source_partition=0), "new": group(source_partition=0)}, now=now)
        tailer = endpoint.telling._clusters[0].tailer
        wait_until(lambda: tailer.current.groups.place("new") is not None, "the new group")
        stack.callback(may_go_on.set)
        monkeypatch.setattr(Asked, "ask", slow)
        for path in READ:
            client = stack.enter_context(endpoint.connect())
            client.sendall(f"GET {path}&cluster=a HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        wait_until(lambda: len(running) == 2, "two pages from the tables")
        assert endpoint.ask("/groups?cluster=b").status == 200
        for path, status in HELD.items():
            assert endpoint.ask(path if "cluster" in path else f"{path}&cluster=a").status == status, path
        assert len(running) == 2


PEERS = {
    "10.0.0.1": "10.0.0.1",
    "10.0.0.1:1111": "10.0.0.1",
    "10.0.0.9, 10.0.0.1:1111": "10.0.0.1",
    "2001:db8::1": "2001:db8::/64",
    "[2001:db8::1]": "2001:db8::/64",
    "[2001:db8::1]:1111": "2001:db8::/64",
    "unknown": "127.0.0.1",
    "10.0.0.1:x": "127.0.0.1",
}


@pytest.mark.parametrize("stated", PEERS)
def test_a_proxy_may_state_the_port_of_a_client(stated: str) -> None:
    headers = [(b"x-forwarded-for", stated.encode())]
    request = Request({"type": "http", "headers": headers, "client": ("127.0.0.1", 1)})
    assert peer_of(request, is_behind_proxy=True) == PEERS[stated]
    assert peer_of(request, is_behind_proxy=False) == "127.0.0.1"


def test_places_are_counted_for_all_and_for_each() -> None:
    places = Places(3, 2)
    assert [places.take(peer) for peer in "aaabb"] == [True, True, False, True, False]
    places.give_back("a")
    assert [places.take(peer) for peer in "bab"] == [True, False, False]
