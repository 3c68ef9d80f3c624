"""Connections: order, limits, and clients that are slow, malformed, many, or do not read."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from kafka_clients import wait_until
from listening import Client, Listening, listening
from new_tables import new_tables
from table_batches import append, groups_of_offsets

from decoders.messages import Request, request_bytes
from streaming.common.times import now_ms
from streaming.demo.local_broker import free_ports
from streaming.model.progress import PartitionProgress
from streaming.serve.kafka import apis, connection, listener
from streaming.serve.kafka.limits import Limits
from streaming.serve.kafka.view import Address, RequestContext
from streaming.tables.tables import Tables

QUICK = Limits(
    first_frame_s=1.0,
    frame_s=1.0,
    idle_s=2.0,
    unread_s=1.0,
    connections=20,
    ended_connections=10,
)
ASK_VERSIONS = request_bytes(18, 0, 1, "tests", {})
GROUPS, PARTITIONS = 30, 1_000


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Groups with so many offsets that all of them are a few megabytes in an answer."""
    made = new_tables(tmp_path_factory.mktemp("many") / "tables")
    batch = groups_of_offsets(GROUPS, PARTITIONS, "m" * 50)
    append(made, batch, partitions={0: PartitionProgress(loaded=True)}, now=now_ms())
    return made


@pytest.fixture(scope="module")
def endpoint(tables: Tables) -> Iterator[Listening]:
    with listening(tables, limits=QUICK, within_ms=10**9) as running:
        yield running


@pytest.fixture(autouse=True)
def _all_connections_end(endpoint: Listening) -> Iterator[None]:
    """Whatever clients did, nothing of them is left, and others are answered."""
    yield
    wait_until(lambda: _answers(endpoint), "room for one more", timeout_s=5)
    assert endpoint.listener is not None
    wait_until(lambda: not endpoint.listener._connections, "connections to end", timeout_s=5)  # type: ignore[union-attr]
    assert not endpoint.listener._ended
    assert endpoint.listener._reserved == 0


def everything() -> bytes:
    groups = [{"groupId": f"g{number}", "topics": None} for number in range(GROUPS)]
    return request_bytes(9, 8, 1, "tests", {"groups": groups})


def is_closed(client: Client, within_s: float) -> bool:
    """Tell whether the connection is closed without an answer, within a time."""
    client.socket.settimeout(within_s)
    try:
        return client.frame() == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


# --- order -------------------------------------------------------------------------------------------------


def test_requests_that_come_at_once_are_answered_in_their_order(endpoint: Listening) -> None:
    with Client(endpoint.bootstrap) as client:
        small = b"".join(request_bytes(18, 0, number, "tests", {}) for number in range(2_000))
        client.socket.sendall(everything() + small)
        numbers = [struct.unpack_from(">i", client.frame())[0] for _ in range(2_001)]
        assert numbers == [1, *range(2_000)]


def test_a_request_that_comes_byte_by_byte_is_answered(endpoint: Listening) -> None:
    with Client(endpoint.bootstrap) as client:
        for byte in ASK_VERSIONS:
            client.socket.sendall(bytes([byte]))
        assert client.frame()[:4] == bytes([0, 0, 0, 1])


def test_a_large_answer_comes_whole_and_others_are_answered_meanwhile(endpoint: Listening) -> None:
    with Client(endpoint.bootstrap) as large, Client(endpoint.bootstrap) as small:
        large.socket.sendall(everything())
        time.sleep(0.3)  # it is not read: its end is not made yet
        for _ in range(20):
            assert small.ask(18, 0, {})["errorCode"] == 0
        assert len(large.frame()) > GROUPS * PARTITIONS * 60
        assert large.ask(18, 0, {})["errorCode"] == 0


def test_groups_that_are_described_at_once_are_all_in_the_answer(endpoint: Listening) -> None:
    names = [f"g{number}" for number in range(GROUPS)] + ["nope"]
    with Client(endpoint.bootstrap) as client:
        described = client.ask(15, 6, {"groups": names})["groups"]
        assert [one["groupId"] for one in described] == names
        assert [one["groupState"] for one in described] == ["Stable"] * GROUPS + ["Dead"]


def test_bytes_behind_a_request_are_overlooked(endpoint: Listening) -> None:
    with Client(endpoint.bootstrap) as client:
        frame = ASK_VERSIONS[4:] + b"\0\0\0"
        client.socket.sendall(len(frame).to_bytes(4, "big") + frame)
        assert client.frame()[:4] == bytes([0, 0, 0, 1])


def test_readers_and_writers_are_made_before_the_endpoint_is_opened(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[str]()
    make = listener.prepare

    def prepared() -> None:
        with socket.socket() as other:
            made.append("closed" if other.connect_ex(("127.0.0.1", port)) else "open")
        make()

    monkeypatch.setattr(listener, "prepare", prepared)
    [port] = free_ports(1)
    with listening(tables, address=Address("127.0.0.1", port)):
        assert made == ["closed"]


# --- sizes and numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [-1, 2**22 + 1, 2**31 - 1, -(2**31)])
def test_a_frame_of_a_size_that_is_not_allowed_closes_the_connection(endpoint: Listening, size: int) -> None:
    with Client(endpoint.bootstrap) as client:
        client.socket.sendall(struct.pack(">i", size) + b"\0" * 100)
        assert is_closed(client, 0.5)


def test_a_large_frame_is_read_and_answered(endpoint: Listening) -> None:
    with Client(endpoint.bootstrap) as client:
        names = [{"name": f"topic-{number}"} for number in range(50_000)]
        assert len(client.ask(3, 4, {"topics": names})["topics"]) == len(names)


@pytest.mark.more
def test_twenty_thousand_groups_of_long_names_can_be_asked_for_at_once(endpoint: Listening) -> None:
    names = [f"{number:0200}" for number in range(20_000)]
    with Client(endpoint.bootstrap) as client:
        described = client.ask(15, 6, {"groups": names})["groups"]
        assert [one["groupId"] for one in described] == names
        found = client.ask(9, 8, {"groups": [{"groupId": name, "topics": None} for name in names]})["groups"]
        assert [one["groupId"] for one in found] == names


def test_large_requests_have_only_so_much_room_together(tables: Tables) -> None:
    limits = Limits(frame_bytes=400_000, frames_bytes=1_000_000)
    begun = struct.pack(">i", limits.frame_bytes) + bytes(300_000)
    with listening(tables, limits=limits) as endpoint, ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(Client(endpoint.bootstrap)).socket.sendall(begun)
        assert endpoint.listener is not None
        wait_until(lambda: endpoint.listener._reserved > 900_000, "frames to come", timeout_s=5)  # type: ignore[union-attr]
        with Client(endpoint.bootstrap) as other:
            with suppress(OSError):
                other.socket.sendall(begun)
            assert is_closed(other, 5.0)
        with Client(endpoint.bootstrap) as small:
            assert small.ask(18, 0, {})["errorCode"] == 0
        assert sum("large requests" in sentence for sentence in endpoint.said) == 1
        assert closed(endpoint)["memory"] == 1


def test_large_requests_that_do_not_come_take_no_room(endpoint: Listening) -> None:
    begun = struct.pack(">i", Limits().frame_bytes) + b"\0" * 10
    names = [{"name": f"topic-{number}"} for number in range(10_000)]
    with ExitStack() as stack:
        for _ in range(Limits().frames_bytes // Limits().frame_bytes + 1):
            stack.enter_context(Client(endpoint.bootstrap)).socket.sendall(begun)
        with Client(endpoint.bootstrap) as other:
            assert len(other.ask(3, 4, {"topics": names})["topics"]) == len(names)


def test_there_are_only_so_many_connections(endpoint: Listening) -> None:
    before = closed(endpoint)["connections"]
    with ExitStack() as stack:
        held = [stack.enter_context(Client(endpoint.bootstrap)) for _ in range(QUICK.connections)]
        for client in held:
            assert client.ask(18, 0, {})["errorCode"] == 0
        with Client(endpoint.bootstrap) as other:
            assert is_closed(other, 0.5)
        assert closed(endpoint)["connections"] == before + 1
        held[0].close()
        wait_until(lambda: _answers(endpoint), "room for one more", timeout_s=2)
    assert sum("more connections than are allowed" in sentence for sentence in endpoint.said) == 1


def closed(endpoint: Listening) -> dict[str, int]:
    """Return how many connections the endpoint has closed, by the reason."""
    assert endpoint.listener is not None
    return endpoint.listener.counts.closed()


def _answers(endpoint: Listening) -> bool:
    with Client(endpoint.bootstrap) as client:
        client.socket.sendall(ASK_VERSIONS)
        try:
            return client.frame() != b""
        except ConnectionResetError:
            return False


SOME = {"name": "t", "partitionIndexes": [*range(PARTITIONS)]}


@pytest.mark.parametrize(
    "topics", [[], pytest.param([{"name": "t", "partitionIndexes": []}], marks=pytest.mark.more)]
)
def test_a_group_that_has_many_offsets_may_be_named_often_when_none_is_asked_for(
    endpoint: Listening, topics: list[dict[str, Any]]
) -> None:
    asked = [{"groupId": "g1", "topics": topics}] * 50_000
    with Client(endpoint.bootstrap, 30) as client:
        assert client.ask(9, 8, {"groups": asked})["groups"] == [
            {
                "groupId": "g1",
                "topics": [{"name": one["name"], "partitions": []} for one in topics],
                "errorCode": 0,
            }
        ] * len(asked)


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (9, 9, {"groups": [{"groupId": "g1", "topics": None, "memberId": f"m{n}"} for n in range(1_001)]}),
        (9, 8, {"groups": [{"groupId": "g1", "topics": [SOME]}] * 1_001}),
        (9, 8, {"groups": [{"groupId": "g1", "topics": [{"name": "", "partitionIndexes": []}] * 350_000}]}),
        (42, 2, {"groupsNames": ["g1"] * 400_000}),
    ],
)
def test_what_no_answer_can_hold_is_refused_before_it_is_made(
    endpoint: Listening, monkeypatch: pytest.MonkeyPatch, api_key: int, version: int, body: dict[str, Any]
) -> None:
    asked = request_bytes(api_key, version, 1, "tests", body)
    assert len(asked) < Limits().frame_bytes
    before, made = closed(endpoint)["size"], list[Request]()
    monkeypatch.setattr(connection, "answer", lambda request, _: made.append(request))
    with Client(endpoint.bootstrap) as client:
        client.socket.sendall(asked)
        assert is_closed(client, 5.0)
    assert not made
    assert closed(endpoint)["size"] == before + 1
    assert (
        sum(line.startswith("a request asks for more than fits into one response") for line in endpoint.said)
        == 1
    )


ANSWERED_ONCE = [
    (9, 8, {"groups": [{"groupId": "g1", "topics": None}] * 50_000}, "groups"),
    (15, 6, {"groups": ["g1"] * 250_000}, "groups"),
    (69, 1, {"groupIds": ["g1"] * 250_000}, "groups"),
    (42, 2, {"groupsNames": ["g1"] * 250_000}, "results"),
    (10, 4, {"coordinatorKeys": ["g1"] * 250_000}, "coordinators"),
]


@pytest.mark.parametrize(("api_key", "version", "body", "answers"), ANSWERED_ONCE)
def test_a_group_that_is_named_twice_is_answered_once(
    endpoint: Listening, api_key: int, version: int, body: dict[str, Any], answers: str
) -> None:
    with Client(endpoint.bootstrap) as client:
        assert len(client.ask(api_key, version, body)[answers]) == 1


def test_a_topic_that_is_asked_for_again_and_again_is_answered(endpoint: Listening) -> None:
    topics = [{"name": "t", "partitionIndexes": []}] * 20_000 + [{"name": "t", "partitionIndexes": [0]}]
    with Client(endpoint.bootstrap) as client:
        [found] = client.ask(9, 8, {"groups": [{"groupId": "g1", "topics": topics}]})["groups"]
        assert [len(one["partitions"]) for one in found["topics"]] == [0] * 20_000 + [1]
        assert found["topics"][-1]["partitions"][0]["committedOffset"] == 7
        [topic] = client.ask(3, 4, {"topics": [{"name": "t"}] * 20_000})["topics"]
        assert len(topic["partitions"]) == PARTITIONS


def test_work_for_a_connection_that_is_gone_is_not_begun(
    endpoint: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = list[Request](), threading.Event()

    def answered(request: Request, view: RequestContext) -> apis.Response:
        begun.append(request)
        assert go_on.wait(10)
        return apis.answer(request, view)

    monkeypatch.setattr(connection, "answer", answered)
    assert endpoint.listener is not None
    clients = [Client(endpoint.bootstrap) for _ in range(3)]
    for client in clients:
        client.socket.sendall(everything())
    wait_until(lambda: len(begun) > 0, "an answer to be begun", timeout_s=5)
    for held in list(endpoint.listener._connections):
        endpoint.listener._checks.get_loop().call_soon_threadsafe(held.abort)
    try:
        wait_until(lambda: not endpoint.listener._connections, "connections to end", timeout_s=5)  # type: ignore[union-attr]
    finally:
        go_on.set()
    with Client(endpoint.bootstrap) as client:  # those before it have had their turn
        client.socket.sendall(everything())
        assert client.frame()
    for one in clients:
        one.close()
    assert len(begun) == 2


def _held(endpoint: Listening) -> threading.Event:
    """Let the thread that makes large answers wait until this is set."""
    assert endpoint.listener is not None
    go_on = threading.Event()
    endpoint.listener._checks.get_loop().call_soon_threadsafe(endpoint.listener.at_length, go_on.wait, 10)
    return go_on


def test_clients_that_went_during_an_answer_leave_room_for_others(endpoint: Listening) -> None:
    assert endpoint.listener is not None
    go_on = _held(endpoint)
    try:
        for _ in range(QUICK.connections):
            client = Client(endpoint.bootstrap)
            client.socket.sendall(everything())
            client.close()
        wait_until(lambda: _answers(endpoint), "room for one more", timeout_s=0.9)
        held, most = endpoint.listener._connections, QUICK.ended_connections + 1
        wait_until(lambda: len(held) <= most, "those that are too many to be closed", timeout_s=2)
    finally:
        go_on.set()


def test_what_a_large_request_weighs_is_found_while_others_are_answered(
    endpoint: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, names = list[str](), [f"no-group-{number}" for number in range(1_000)]

    def weighed(request: Request, view: RequestContext) -> int:
        if request.api_key == 15:
            threads.append(threading.current_thread().name)
        return apis.weight_of(request, view)

    monkeypatch.setattr(connection, "weight_of", weighed)
    with Client(endpoint.bootstrap) as client:
        assert len(client.ask(15, 6, {"groups": names})["groups"]) == len(names)
        assert client.ask(15, 6, {"groups": names[:1]})["groups"]
    assert threads[0] == "offsetlake-answers" != threads[1]


def test_clients_that_do_not_read_or_hardly_write_take_little_and_others_are_answered(tables: Tables) -> None:
    topics = [{"name": f"topic-{number}"} for number in range(300)]
    asked = request_bytes(3, 4, 1, "tests", {"topics": topics})
    limits = Limits()
    with listening(tables, limits=limits, within_ms=10**9) as endpoint, ExitStack() as stack:
        assert endpoint.listener is not None
        slow = [stack.enter_context(Client(endpoint.bootstrap)) for _ in range(120)]
        for client in slow:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.socket.setblocking(False)
        longest = 0.0
        with Client(endpoint.bootstrap) as other:
            for turn in range(30):
                for client in slow[:60]:  # these ask and do not read
                    with suppress(BlockingIOError):
                        client.socket.send(asked * 20)
                for client in slow[60:]:  # these send a byte at a time
                    client.socket.send(asked[turn : turn + 1])
                began = time.monotonic()
                assert other.ask(18, 0, {})["errorCode"] == 0
                longest = max(longest, time.monotonic() - began)
        held = list(endpoint.listener._connections)
        assert len(held) >= len(slow)
        assert max(len(one._received) for one in held) < 200_000
        assert max(one._transport.get_write_buffer_size() for one in held) < 200_000
        assert longest < 1.0


# --- times -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "what"),
    [
        (b"", "nothing is asked"),
        pytest.param(ASK_VERSIONS[:3], "not even a size comes", marks=pytest.mark.more),
        (ASK_VERSIONS[:-1], "a frame is begun"),
    ],
)
def test_a_connection_is_closed_when(endpoint: Listening, sent: bytes, what: str) -> None:
    with Client(endpoint.bootstrap) as client:
        client.socket.sendall(sent)
        began = time.monotonic()
        assert is_closed(client, 4.0), what
        assert 0.9 < time.monotonic() - began < 3.5


def test_a_client_that_trickles_is_closed_though_it_always_sends_something(endpoint: Listening) -> None:
    with Client(endpoint.bootstrap) as client:
        client.ask(18, 0, {})
        client.socket.sendall(struct.pack(">i", 1_000))
        began = time.monotonic()
        with suppress(OSError):
            while time.monotonic() - began < 5:
                client.socket.sendall(b"\0")
                time.sleep(0.05)
        assert time.monotonic() - began < 4


def test_an_idle_client_is_closed_and_one_that_asks_is_not(endpoint: Listening) -> None:
    with Client(endpoint.bootstrap) as idle, Client(endpoint.bootstrap) as busy:
        idle.ask(18, 0, {})
        began = time.monotonic()
        while time.monotonic() - began < 3.5:
            busy.ask(18, 0, {})
            time.sleep(0.2)
        assert is_closed(idle, 0.5)
        assert busy.ask(18, 0, {})["errorCode"] == 0


def test_a_client_that_reads_nothing_is_not_read_from_and_is_closed_in_the_end(endpoint: Listening) -> None:
    topics = [{"name": f"topic-{number}"} for number in range(400)]
    asked = request_bytes(3, 4, 1, "tests", {"topics": topics})
    with Client(endpoint.bootstrap) as client:
        client.ask(18, 0, {})
        assert endpoint.listener is not None
        [connection] = endpoint.listener._connections
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.socket.settimeout(0.2)
        most, began = 0, time.monotonic()
        while endpoint.listener._connections and time.monotonic() - began < 8:
            with suppress(OSError):
                client.socket.sendall(asked * 20)
            most = max(most, connection._transport.get_write_buffer_size())
    assert most < 200_000
    assert time.monotonic() - began < 6


@pytest.mark.more
def test_a_large_answer_that_nobody_reads_does_not_stop_further_ones(endpoint: Listening) -> None:
    with ExitStack() as stack:
        deaf = [stack.enter_context(Client(endpoint.bootstrap)) for _ in range(QUICK.large_answers + 2)]
        for client in deaf:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.socket.sendall(everything())
        with Client(endpoint.bootstrap) as client:
            assert client.ask(15, 6, {"groups": [f"g{number}" for number in range(GROUPS)]})["groups"]
            assert endpoint.listener is not None
            assert len(endpoint.listener._connections) == len(deaf) + 1  # smaller ones need not wait for them
            client.socket.sendall(everything())
            assert len(client.frame()) > GROUPS * PARTITIONS * 60


# --- ends --------------------------------------------------------------------------------------------------


def test_a_client_that_has_said_all_gets_its_answers_and_the_connection_is_closed(
    endpoint: Listening,
) -> None:
    with Client(endpoint.bootstrap) as client:
        client.socket.sendall(everything() + ASK_VERSIONS)
        client.socket.shutdown(socket.SHUT_WR)
        assert len(client.frame()) > GROUPS * PARTITIONS * 60
        assert client.frame()[:4] == bytes([0, 0, 0, 1])
        assert client.frame() == b""


def test_clients_that_go_at_any_moment_leave_nothing_behind(endpoint: Listening) -> None:
    for wait_s in (0.0, 0.005, 0.05, 0.2):
        client = Client(endpoint.bootstrap)
        client.socket.sendall(everything() + ASK_VERSIONS * 10)
        time.sleep(wait_s)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()


def test_a_response_to_a_client_that_is_gone_is_not_sent_on(
    endpoint: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = _held(endpoint)
    names = [f"no-group-{number}" for number in range(90_000)]  # its response has many pieces
    asked = request_bytes(15, 6, 1, "tests", {"groups": names})
    assert endpoint.listener is not None
    with Client(endpoint.bootstrap) as client:
        client.socket.sendall(asked + asked[:100_000])  # so much ahead that nothing is read meanwhile
        wait_until(lambda: endpoint.listener._turns._taken, "a turn to be taken", timeout_s=5)  # type: ignore[union-attr]
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    go_on.set()
    wait_until(lambda: not endpoint.listener._connections, "the connection to end", timeout_s=10)  # type: ignore[union-attr]
    assert caplog.messages == []  # asyncio warns of sending to a connection that is lost


def test_garbage_of_many_clients_hurts_none_that_asks(endpoint: Listening) -> None:
    stop = threading.Event()

    def flood(seed: int) -> None:
        data = bytes((seed * 31 + place * 17) % 256 for place in range(400))
        while not stop.is_set():
            try:
                with Client(endpoint.bootstrap) as client:
                    client.socket.sendall(struct.pack(">i", 300) + data)
            except OSError:
                continue

    threads = [threading.Thread(target=flood, args=(seed,)) for seed in range(4)]
    with Client(endpoint.bootstrap) as client:
        errors = [client.ask(18, 0, {})["errorCode"]]  # it is there before they come
        for thread in threads:
            thread.start()
        try:
            errors += [client.ask(18, 0, {})["errorCode"] for _ in range(200)]
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert errors == [0] * 201
