"""Large answers: they take turns, nobody keeps one for ever, and each is made of what is known then."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from kafka_clients import wait_until
from listening import Client, Listening, listening
from new_tables import new_tables
from table_batches import Batch, append, group, groups_of_offsets, offset

from decoders.messages import request_bytes
from streaming.common.times import now_ms
from streaming.model.progress import PartitionProgress
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.limits import Limits
from streaming.tables.tables import Tables

PARTITIONS = 30_000
LOADED = {0: PartitionProgress(loaded=True)}
EVERYTHING = {"groups": [{"groupId": f"g{number}", "topics": None} for number in range(10)]}
ALL = request_bytes(9, 8, 1, "tests", EVERYTHING)
LIMITS = Limits(large_answers=1, turn_s=0.3)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Groups with so many offsets that an answer is larger than any buffer of a socket."""
    made = new_tables(tmp_path_factory.mktemp("turns") / "tables")
    batch = groups_of_offsets(10, PARTITIONS // 10, "m" * 400)
    batch |= {("small", "t", number): offset(source_partition=0) for number in range(1_000)}
    append(made, batch | {"small": group(source_partition=0)}, partitions=LOADED, now=now_ms())
    return made


@contextmanager
def one_that_is_slow(endpoint: Listening) -> Iterator[Client]:
    """Have a client that has its turn, and does not read."""
    with Client(endpoint.bootstrap, 20) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.ask(18, 0, {})
        client.socket.sendall(ALL)
        assert endpoint.listener is not None
        wait_until(lambda: endpoint.listener._turns.are_taken, "an answer to have its turn", timeout_s=5)
        yield client


def refused(endpoint: Listening) -> dict[str, int]:
    """Return how many connections were closed, by the reason."""
    assert endpoint.listener is not None
    return {reason: count for reason, count in endpoint.listener.counts.closed().items() if count}


@pytest.mark.parametrize(
    ("api_key", "version", "body", "about"),
    [
        (9, 8, EVERYTHING, "groups"),
        (15, 6, {"groups": [f"no-{number}" for number in range(30_000)]}, None),
        (3, 9, {"topics": [{"name": f"no-{number}"} for number in range(2_000)]}, "topics"),
    ],
)
def test_whoever_waits_too_long_for_a_turn_is_told_to_ask_again(
    tables: Tables, api_key: int, version: int, body: dict[str, Any], about: str | None
) -> None:
    with (
        listening(tables, limits=LIMITS) as endpoint,
        one_that_is_slow(endpoint),
        Client(endpoint.bootstrap) as client,
    ):
        if about == "groups":
            answered = client.ask(api_key, version, body)[about]
            assert {one["errorCode"] for one in answered} == {Error.COORDINATOR_LOAD_IN_PROGRESS}
            assert len(answered) == 10
            assert refused(endpoint) == {}
        elif about == "topics":  # this is not large: it needs no turn
            assert len(client.ask(api_key, version, body)[about]) == 2_000
        else:  # a request that is not read while it waits has no answer: clients connect again
            client.send(api_key, version, body)
            assert client.frame() == b""
            assert refused(endpoint) == {"busy": 1}
            assert [line for line in endpoint.said if "large responses take too long" in line]


def test_groups_that_cannot_be_listed_in_time_are_an_error_that_is_retried(tables: Tables) -> None:
    limits = Limits(large_answers=1, turn_s=0.3, large=500, large_bytes=10)
    asked = {"groupId": "small", "topics": [{"name": "t", "partitionIndexes": [*range(600)]}]}
    with (
        listening(tables, limits=limits) as endpoint,
        one_that_is_slow(endpoint),
        Client(endpoint.bootstrap) as client,
    ):
        assert client.ask(9, 7, asked)["errorCode"] == Error.COORDINATOR_LOAD_IN_PROGRESS
        partitions = client.ask(9, 1, asked)["topics"][0]["partitions"]
        assert {one["errorCode"] for one in partitions} == {Error.COORDINATOR_LOAD_IN_PROGRESS}
        described = client.ask(15, 6, {"groups": ["g1"] * 50 + [f"no-{n}" for n in range(600)]})["groups"]
        assert {one["errorCode"] for one in described} == {Error.COORDINATOR_LOAD_IN_PROGRESS}
        assert refused(endpoint) == {}


def test_a_few_offsets_of_a_group_that_has_many_need_no_turn(tables: Tables) -> None:
    limits = Limits(large_answers=1, turn_s=0.3, large=500)
    asked: dict[str, Any] = {"groupId": "small", "topics": [{"name": "t", "partitionIndexes": [7, 1_007, 0]}]}
    with (
        listening(tables, limits=limits) as endpoint,
        one_that_is_slow(endpoint),
        Client(endpoint.bootstrap) as client,
    ):
        for version in (1, 7):
            [topic] = client.ask(9, version, asked)["topics"]
            found = [(one["partitionIndex"], one["committedOffset"]) for one in topic["partitions"]]
            assert found == [(7, 7), (1_007, -1), (0, 7)]
            assert {one["errorCode"] for one in topic["partitions"]} == {Error.NONE}
        [answered] = client.ask(9, 9, {"groups": [asked]})["groups"]
        assert answered["errorCode"] == Error.NONE
        everything = {"groups": [{**asked, "topics": None}]}
        [answered] = client.ask(9, 9, everything)["groups"]
        assert answered["errorCode"] == Error.COORDINATOR_LOAD_IN_PROGRESS


def test_an_answer_is_made_of_what_is_known_when_its_turn_comes(tmp_path: Any) -> None:
    tables = new_tables(tmp_path / "tables")
    batch: Batch = {("g", "t", number): offset(source_partition=0) for number in range(25_000)}
    append(tables, batch | {"g": group(source_partition=0)}, partitions=LOADED, now=now_ms())
    asked = {"groups": [{"groupId": "g", "topics": None}]}
    go_on = threading.Event()
    with listening(tables, limits=Limits(large_answers=1), within_ms=10**9) as endpoint, ExitStack() as stack:
        assert endpoint.listener is not None
        stack.callback(go_on.set)
        endpoint.listener._checks.get_loop().call_soon_threadsafe(endpoint.listener.at_length, go_on.wait, 10)
        clients = [stack.enter_context(Client(endpoint.bootstrap, 20)) for _ in range(2)]
        numbers = [client.send(9, 8, asked) for client in clients]
        wait_until(lambda: endpoint.listener._turns.are_taken, "an answer to have its turn", timeout_s=5)
        newer: Batch = {("g", "t", 0): offset(source_partition=0, committed_offset=999)}
        append(tables, newer, live=batch, partitions=LOADED, now=now_ms())
        endpoint.tailer.poll()
        go_on.set()
        for client, number in zip(clients, numbers, strict=True):
            [found] = client.answer(9, 8, number)["groups"]
            assert found["topics"][0]["partitions"][0]["committedOffset"] == 999


def test_a_client_that_always_takes_a_little_does_not_keep_its_turn(tables: Tables) -> None:
    limits = Limits(large_answers=1, unread_s=1.0, unread_bytes_per_s=20_000_000)
    with listening(tables, limits=limits) as endpoint, one_that_is_slow(endpoint) as slow:
        slow.socket.settimeout(0.5)
        began = time.monotonic()
        assert endpoint.listener is not None
        while endpoint.listener._turns.are_taken and time.monotonic() - began < 8:
            with suppress(OSError):
                slow.socket.recv(8_192)
            time.sleep(0.1)
        assert refused(endpoint) == {"unread": 1}
        with Client(endpoint.bootstrap) as client:
            assert len(client.ask(9, 8, EVERYTHING)["groups"]) == 10


def take_steadily(client: Client, bytes_per_s: int, most: int = PARTITIONS * 400) -> bool:
    """Take an answer at a pace; tell whether so much of it came."""
    received = 0
    with suppress(OSError):
        while received < most and (piece := client.socket.recv(16_384)):
            received += len(piece)
            time.sleep(len(piece) / bytes_per_s)
    return received >= most


@pytest.mark.parametrize(("bytes_per_s", "is_answered"), [(2_000_000, True), (10**9, False)])
def test_a_client_has_longer_for_a_larger_answer(tables: Tables, bytes_per_s: int, is_answered: bool) -> None:
    limits = Limits(large_answers=1, unread_s=0.2, unread_bytes_per_s=bytes_per_s)
    with listening(tables, limits=limits) as endpoint, Client(endpoint.bootstrap) as client:
        client.socket.sendall(ALL)
        assert take_steadily(client, 8_000_000) is is_answered
        assert refused(endpoint) == ({} if is_answered else {"unread": 1})


def test_a_client_that_is_slow_loses_its_turn_only_to_another_that_waits(tables: Tables) -> None:
    limits = Limits(large_answers=1, unread_s=1.0, unread_bytes_per_s=1_000, wanted_bytes_per_s=10**9)
    with listening(tables, limits=limits) as endpoint, Client(endpoint.bootstrap) as slow:
        slow.socket.sendall(ALL)
        assert take_steadily(slow, 400_000, most=500_000)
        assert refused(endpoint) == {}
        with Client(endpoint.bootstrap) as other:
            assert len(other.ask(9, 8, EVERYTHING)["groups"]) == 10
        assert refused(endpoint) == {"unread": 1}


def test_how_long_clients_may_take() -> None:
    limits, mebibyte = Limits(), 1024 * 1024

    def taken(size: int, bytes_per_s: int, *, is_wanted: bool) -> bool:
        """Tell whether somebody who takes so many bytes a second is never too late."""
        times = [(sent / bytes_per_s, sent) for sent in range(mebibyte // 4, size, mebibyte // 4)]
        return all(time_s <= limits.may_take_s(sent, is_wanted=is_wanted) for time_s, sent in times)

    assert taken(90 * mebibyte, 50_000, is_wanted=False)  # through a VPN
    assert not taken(2 * mebibyte, 5_000, is_wanted=False)
    assert taken(90 * mebibyte, 1_000_000, is_wanted=True)
    assert not taken(2 * mebibyte, 50_000, is_wanted=True)


def test_an_answer_that_takes_only_a_while_does_not_wait_for_large_ones(tables: Tables) -> None:
    with listening(tables, limits=LIMITS) as endpoint:
        assert endpoint.listener is not None
        go_on = threading.Event()
        endpoint.listener._checks.get_loop().call_soon_threadsafe(endpoint.listener.at_length, go_on.wait, 10)
        try:
            with Client(endpoint.bootstrap, 5) as client:
                [found] = client.ask(9, 8, {"groups": [{"groupId": "small", "topics": None}]})["groups"]
                assert len(found["topics"][0]["partitions"]) == 1_000
        finally:
            go_on.set()
