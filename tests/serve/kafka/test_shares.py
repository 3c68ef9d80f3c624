"""One that asks for much does not delay the others: turns, work and connections are shared."""

import asyncio
import socket
import threading
from contextlib import ExitStack
from typing import Any

import pytest
from kafka_clients import wait_until
from listening import Client, Listening, listening
from new_tables import new_tables
from table_batches import append, group, groups_of_offsets

from decoders.messages import request_bytes
from streaming.common.times import now_ms
from streaming.model.progress import PartitionProgress
from streaming.serve.kafka.limits import Limits
from streaming.serve.kafka.turns import FairQueue, Turns
from streaming.tables.tables import Tables


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)


class Askers:
    """Tasks that take turns of `turns`, and keep them until they are told to give them back."""

    def __init__(self, count: int) -> None:
        self.turns = Turns(count)
        self.served: list[str] = []
        self.tasks: dict[str, list[asyncio.Task[None]]] = {}

    async def ask(self, *askers: str) -> None:
        for asker in askers:
            self.tasks.setdefault(asker, []).append(asyncio.create_task(self._take(asker)))
        await settle()

    async def _take(self, asker: str) -> None:
        await self.turns.take(asker)
        self.served.append(asker)

    async def give_back(self, *askers: str) -> None:
        for asker in askers:
            self.turns.give_back(asker)
            await settle()


def test_no_asker_has_all_turns() -> None:
    async def act() -> None:
        askers = Askers(3)
        await askers.ask(*"aaaa")
        assert askers.served == ["a", "a"]
        assert not askers.turns.are_taken
        assert askers.turns.are_wanted
        await askers.ask("b")
        assert askers.served == ["a", "a", "b"]
        assert askers.turns.are_taken
        await askers.give_back("a")
        assert askers.served == [*"aaba"]

    asyncio.run(act())


def test_a_free_turn_goes_to_whoever_has_the_fewest_and_then_in_rotation() -> None:
    async def act() -> None:
        askers = Askers(2)
        await askers.ask(*"xy")
        await askers.ask(*"aaabbc")
        await askers.give_back("x")
        await askers.give_back("y", "a", "b", "c", "a", "b")
        assert askers.served == [*"xyabcaba"]
        await askers.give_back(*"a")
        assert not askers.turns.are_wanted

    asyncio.run(act())


def test_the_only_turn_goes_round() -> None:
    async def act() -> None:
        askers = Askers(1)
        await askers.ask(*"aaab")
        await askers.give_back("a", "b", "a")
        assert askers.served == [*"abaa"]

    asyncio.run(act())


@pytest.mark.parametrize("is_given", [False, True])
def test_who_goes_while_waiting_leaves_no_turn_taken(is_given: bool) -> None:
    async def act() -> None:
        askers = Askers(1)
        await askers.ask("x", "a", "b")
        if is_given:  # and has not noticed
            askers.turns.give_back("x")
        askers.tasks["a"][0].cancel()
        await settle()
        if not is_given:
            await askers.give_back("x")
        assert askers.served == ["x", "b"]
        await askers.give_back("b")
        assert not askers.turns.are_taken
        assert not askers.turns.are_wanted

    asyncio.run(act())


def test_work_is_done_in_rotation() -> None:
    queue = FairQueue[str]()
    for asker, work in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.put(asker, asker + work)
    assert [queue.get() for _ in range(6)] == ["a1", "b1", "c1", "a2", "b2", "a3"]
    found: list[str] = []
    waiting = threading.Thread(target=lambda: found.append(queue.get()))
    waiting.start()
    queue.put("d", "d1")
    waiting.join(5)
    assert found == ["d1"]


# --- at the listener ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Groups with so many offsets that an answer is larger than any buffer of a socket."""
    made = new_tables(tmp_path_factory.mktemp("shares") / "tables")
    batch = groups_of_offsets(10, 3_000, "m" * 400) | {"small": group(source_partition=0)}
    append(made, batch, partitions={0: PartitionProgress(loaded=True)}, now=now_ms())
    return made


def of_host(endpoint: Listening, host: str) -> Client:
    return Client(endpoint.bootstrap, 20, source=host)


EVERYTHING: dict[str, Any] = {"groups": [{"groupId": f"g{number}", "topics": None} for number in range(10)]}


def test_one_address_that_does_not_read_keeps_no_other_from_large_answers(tables: Tables) -> None:
    asked = request_bytes(9, 8, 1, "tests", EVERYTHING)
    with listening(tables, limits=Limits(turn_s=5.0)) as endpoint, ExitStack() as stack:
        assert endpoint.listener is not None
        for _ in range(10):
            slow = stack.enter_context(of_host(endpoint, "127.0.0.1"))
            slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            slow.socket.sendall(asked)
        turns = endpoint.listener._turns
        wait_until(lambda: turns._taken.total() == 2, "turns to be taken", timeout_s=10)
        with of_host(endpoint, "127.0.0.2") as other:
            assert len(other.ask(9, 8, EVERYTHING)["groups"]) == 10
        assert turns._taken.total() == 2


def test_one_address_has_only_so_many_connections(tables: Tables) -> None:
    limits = Limits(connections=6, connections_per_address=4)
    with listening(tables, limits=limits) as endpoint, ExitStack() as stack:
        assert endpoint.listener is not None
        clients = [stack.enter_context(of_host(endpoint, "127.0.0.1")) for _ in range(4)]
        for client in clients:
            client.ask(18, 0, {})
        with of_host(endpoint, "127.0.0.1") as fifth:
            assert fifth.frame() == b""
        assert endpoint.listener.counts.closed()["address"] == 1
        [line] = [one for one in endpoint.said if "from one address" in one]
        assert "expected at most 4, found more from 127.0.0.1" in line
        others = [stack.enter_context(of_host(endpoint, "127.0.0.2")) for _ in range(2)]
        for client in others:
            client.ask(18, 0, {})
        with of_host(endpoint, "127.0.0.3") as seventh:
            assert seventh.frame() == b""
        assert endpoint.listener.counts.closed()["connections"] == 1
        clients[0].close()
        wait_until(lambda: endpoint.listener.connections == 5, "room", timeout_s=5)  # type: ignore[union-attr]
        with of_host(endpoint, "127.0.0.1") as again:
            assert again.ask(18, 0, {})["errorCode"] == 0
    assert endpoint.listener._by_address == {}


def test_connections_from_one_address_share_the_time_in_which_others_wait(tables: Tables) -> None:
    with listening(tables) as endpoint, ExitStack() as stack:
        assert endpoint.listener is not None
        for host, count in (("127.0.0.1", 40), ("127.0.0.2", 1)):
            for _ in range(count):
                stack.enter_context(of_host(endpoint, host)).ask(18, 0, {})
        slices: dict[str, list[float]] = {}
        for connection in endpoint.listener._connections:
            slices.setdefault(connection.peer, []).append(endpoint.listener.time_slice_s(connection))
        assert sum(slices["127.0.0.1"]) < 6 * slices["127.0.0.2"][0]
