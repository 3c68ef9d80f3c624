"""Requests about the past: while it is being read, about moments that there are not, of hostile clients."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka_clients import wait_until
from listening import Client, Listening, listening
from log_end_rows import Sample, of_topic, rows_of
from signing_in import BY_PASSWORD, signed_in
from table_batches import append, group, heartbeat, offset

from streaming.common.times import MINUTE_MS, iso, now_ms
from streaming.model.progress import PartitionProgress
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.moments import Moments
from streaming.serve.memory import past
from streaming.serve.memory.past import PastLimits
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.serve.process.security import read_security
from streaming.settings.model import KafkaListenerSettings
from streaming.tables.tables import Tables

LONGEST = 32_767
TOPIC = {"name": "t", "partitions": [{"partitionIndex": 0, "timestamp": -1}]}
Asked = tuple[int, int, dict[str, Any], Callable[[dict[str, Any]], tuple[int, str | None]]]

OF_GROUPS: list[Asked] = [
    (16, 4, {}, lambda found: (found["errorCode"], None)),
    (15, 5, {"groups": ["g"]}, lambda found: (found["groups"][0]["errorCode"], None)),
    (15, 6, {"groups": ["g"]}, lambda found: said_of(found["groups"][0])),
    (69, 1, {"groupIds": ["g"]}, lambda found: said_of(found["groups"][0])),
    (77, 1, {"groupIds": ["g"]}, lambda found: said_of(found["groups"][0])),
    (9, 7, {"groupId": "g", "topics": None}, lambda found: (found["errorCode"], None)),
    (
        9,
        9,
        {"groups": [{"groupId": "g", "topics": None}]},
        lambda found: (found["groups"][0]["errorCode"], None),
    ),
]
OF_TOPICS: list[Asked] = [
    (3, 12, {"topics": [{"name": "t"}]}, lambda found: (found["topics"][0]["errorCode"], None)),
    (3, 13, {"topics": None}, lambda found: (found["errorCode"], None)),
    (2, 10, {"topics": [TOPIC]}, lambda found: (found["topics"][0]["partitions"][0]["errorCode"], None)),
    (75, 0, {"topics": [{"name": "t"}]}, lambda found: (found["topics"][0]["errorCode"], None)),
]
OF_NEITHER: list[Asked] = [
    (10, 4, {"coordinatorKeys": ["g"]}, lambda found: (found["coordinators"][0]["errorCode"], None)),
    (
        18,
        3,
        {"clientSoftwareName": "a", "clientSoftwareVersion": "1"},
        lambda found: (found["errorCode"], None),
    ),
    (60, 0, {}, lambda found: (found["errorCode"], None)),
]


def said_of(one: dict[str, Any]) -> tuple[int, str | None]:
    return one["errorCode"], one["errorMessage"]


def errors_of(client: Client, asked: list[Asked]) -> list[tuple[int, str | None]]:
    return [read(client.ask(api_key, version, body)) for api_key, version, body, read in asked]


@pytest.fixture(scope="module")
def base() -> int:
    """The time of the first batch."""
    return now_ms() - 5 * MINUTE_MS


@pytest.fixture(scope="module")
def minutes(tmp_path_factory: pytest.TempPathFactory, base: int) -> Tables:
    """Tables with a batch a minute until now, of which the n-th brings the offset to n."""
    tables, live = Tables(str(tmp_path_factory.mktemp("minutes") / "tables")), {}
    tables.create()
    for number in range(5):
        now = base + number * MINUTE_MS
        batch = {
            ("g", "t", 0): offset(source_partition=0, committed_offset=number),
            "g": group(source_partition=0),
        }
        append(tables, batch, live=live, now=now, partitions={0: PartitionProgress(loaded=True)})
        tables.append_log_ends(rows_of([Sample(now, "t", 0, 10 + number), of_topic(now, "t", "id-1")]))
        live = batch
    heartbeat(tables, now_ms())
    return tables


@pytest.fixture
def endpoint(minutes: Tables) -> Iterator[Listening]:
    with listening(minutes, moments=Moments(), past_limits=PastLimits(in_use_s=0.2)) as running:
        yield running


def offset_of(client: Client) -> int:
    """Return the offset that is told, or the negative error."""
    asked = [{"groupId": "g", "topics": [{"name": "t", "partitionIndexes": [0]}]}]
    [answered] = client.ask(9, 9, {"groups": asked})["groups"]
    if answered["errorCode"]:
        return -int(answered["errorCode"])
    return int(answered["topics"][0]["partitions"][0]["committedOffset"])


def offset_as_of(client: Client, moment: int) -> int:
    client.client_id = f"as-of={moment}"
    wait_until(lambda: offset_of(client) != -Error.COORDINATOR_LOAD_IN_PROGRESS, "the snapshot")
    return offset_of(client)


def test_while_a_snapshot_is_read_its_clients_retry_and_others_are_answered(
    endpoint: Listening, base: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, real = threading.Event(), past.read_as_of

    def slowly(tables: Tables, moment: int) -> MemorySnapshot:
        assert go_on.wait(10)
        return real(tables, moment)

    monkeypatch.setattr(past, "read_as_of", slowly)
    with Client(endpoint.bootstrap, client_id=f"as-of={base + MINUTE_MS}") as then:
        loading = (Error.COORDINATOR_LOAD_IN_PROGRESS, None)
        assert errors_of(then, OF_GROUPS) == [loading] * len(OF_GROUPS)
        assert errors_of(then, OF_TOPICS) == [(Error.LEADER_NOT_AVAILABLE, None)] * len(OF_TOPICS)
        assert errors_of(then, OF_NEITHER) == [(0, None)] * len(OF_NEITHER)
        with Client(endpoint.bootstrap) as now:
            assert offset_of(now) == 4
        go_on.set()
        wait_until(lambda: offset_of(then) == 1, "the snapshot")
        [topic] = then.ask(2, 10, {"topics": [TOPIC]})["topics"]
        assert topic["partitions"][0]["offset"] == 11
        then.client_id = "tests"
        assert offset_of(then) == 4


def test_a_moment_that_there_is_not_ends_clients_with_a_reason(endpoint: Listening, base: int) -> None:
    moment = base - 1
    why = (
        f"as of {iso(moment)}: history starts at {iso(base)}, because the tables are not older. "
        "Ask for a later time."
    )
    with Client(endpoint.bootstrap, client_id=f"as-of={moment}") as client:
        wait_until(lambda: offset_of(client) == -Error.INVALID_REQUEST, "the refusal")
        assert_refused(client, Error.INVALID_REQUEST, why)
        [one] = client.ask(32, 4, {"resources": [BROKER]})["results"]
        assert said_of(one) == (Error.INVALID_REQUEST, why)
    assert [f"a client asks for the past: {why}"] == endpoint.said


BROKER = {"resourceType": 4, "resourceName": "1", "configurationKeys": None}


def assert_refused(client: Client, error: Error, why: str) -> None:
    has_message = [version == 6 or api_key in (69, 77) for api_key, version, *_ in OF_GROUPS]
    assert errors_of(client, OF_GROUPS) == [(error, why if has else None) for has in has_message]
    assert errors_of(client, OF_TOPICS) == [(Error.TOPIC_AUTHORIZATION_FAILED, None)] * len(OF_TOPICS)
    assert errors_of(client, OF_NEITHER) == [(0, None)] * len(OF_NEITHER)


def test_groups_that_were_not_read_then_end_clients_too(tables: Tables, base: int) -> None:
    batch = {("g", "t", 0): offset(source_partition=0), "g": group(source_partition=0)}
    append(tables, batch, now=base, partitions={0: PartitionProgress(loaded=False)})
    heartbeat(tables, base + MINUTE_MS)
    with (
        listening(tables, moments=Moments()) as running,
        Client(running.bootstrap, client_id=f"as-of={base}") as client,
    ):
        wait_until(lambda: offset_of(client) == -Error.INVALID_REQUEST, "the refusal")
        error, why = errors_of(client, OF_GROUPS[3:4])[0]
        assert error == Error.INVALID_REQUEST
        assert why == f"as of {iso(base)}: the offsets partition of the group was not read completely"
        assert errors_of(client, OF_GROUPS[:1]) == [(Error.INVALID_REQUEST, None)]
        nothing = {"topics": [{"name": "nope"}]}
        assert client.ask(3, 12, nothing)["topics"][0]["errorCode"] == Error.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("text", ["", "soon", "\0", "grüße 🐢", "9999-01-01", "x" * (LONGEST - 6)])
def test_an_invalid_moment_ends_clients_with_a_reason(endpoint: Listening, text: str) -> None:
    with Client(endpoint.bootstrap, client_id=f"as-of={text}") as client:
        [(error, why)] = errors_of(client, OF_GROUPS[3:4])
        assert why is not None
        assert why.startswith("client.id as-of=: expected a time")
        assert_refused(client, Error(error), why)
        client.client_id = "tests"
        assert offset_of(client) == 4
    assert endpoint.said == [f"refusing a client that asks for the past: {why}"]


def test_a_failed_reading_ends_clients_with_a_reason(
    endpoint: Listening, base: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(tables: Tables, moment: int) -> MemorySnapshot:
        raise OSError("no answer")

    monkeypatch.setattr(past, "read_as_of", fails)
    with Client(endpoint.bootstrap, client_id=f"as-of={base}") as client:
        wait_until(lambda: offset_of(client) == 1, "the error")  # UNKNOWN_SERVER_ERROR is -1
        assert_refused(
            client,
            Error.UNKNOWN_SERVER_ERROR,
            f"as of {iso(base)}: the tables could not be read: no answer",
        )


def test_a_client_that_asks_for_thousands_of_moments_keeps_no_other_from_its_own(
    endpoint: Listening, minutes: Tables, base: int
) -> None:
    done = threading.Event()

    def ask_for_many() -> None:
        moment = base
        with Client(endpoint.bootstrap) as hostile:
            while not done.is_set():
                moment += 7
                hostile.client_id = f"as-of={moment}"
                offset_of(hostile)

    hostile = threading.Thread(target=ask_for_many)
    hostile.start()
    try:
        with Client(endpoint.bootstrap) as honest, Client(endpoint.bootstrap) as now:
            assert offset_of(now) == 4
            for number in range(3):
                assert offset_as_of(honest, base + number * MINUTE_MS + 1) == number
                assert endpoint.past.counts(minutes.root).held <= 3
                assert offset_of(now) == 4
    finally:
        done.set()
        hostile.join()


def test_kept_answers_are_of_the_moment_that_is_asked_for(endpoint: Listening, base: int) -> None:
    with Client(endpoint.bootstrap) as client:
        for _ in range(2):
            for number in range(4):
                assert offset_as_of(client, base + number * MINUTE_MS) == number
            client.client_id = "tests"
            assert offset_of(client) == offset_of(client) == 4


def test_an_answer_about_the_past_does_not_age(endpoint: Listening, base: int) -> None:
    with Client(endpoint.bootstrap) as client:
        assert offset_as_of(client, base) == 0
        ends = client.ask(2, 10, {"topics": [TOPIC]})
        time.sleep(1.1)  # longer than answers are kept
        assert client.ask(2, 10, {"topics": [TOPIC]}) == ends


# --- before signing in -------------------------------------------------------------------------------------


def newest_offset_fetch(client: Client) -> int:
    """Return the version of OffsetFetch that clients are offered."""
    [newest] = [api["maxVersion"] for api in client.ask(18, 0, {})["apiKeys"] if api["apiKey"] == 9]
    return int(newest)


def test_clients_that_have_not_signed_in_do_not_make_past_snapshots(minutes: Tables, base: int) -> None:
    settings = KafkaListenerSettings(listen="127.0.0.1:0", security_protocol="SASL_PLAINTEXT")
    security, clock = read_security(settings, BY_PASSWORD), [(base // MINUTE_MS + 4) * MINUTE_MS]
    moments = Moments(clock=lambda: clock[0], most_clients=1)
    with (
        listening(minutes, moments=moments, security=security) as running,
        Client(running.bootstrap) as stranger,
        Client(running.bootstrap, client_id="as-of=-2m") as client,
    ):

        def ask_before_signing_in() -> None:
            for client_id, newest in ((f"as-of={base + 1}", 9), ("as-of=soon", 9), ("tests", 10)):
                stranger.client_id = client_id
                assert newest_offset_fetch(stranger) == newest  # 9: the topic ids then are not known here

        ask_before_signing_in()
        signed_in(client)
        wait_until(lambda: offset_of(client) >= 0, "the snapshot")
        before = offset_of(client)
        assert newest_offset_fetch(client) == 10
        clock[0] += MINUTE_MS
        ask_before_signing_in()
        assert offset_of(client) == before  # the client is not forgotten, and keeps its moment
        assert running.past.counts(minutes.root).built == 1
        assert running.said == []
