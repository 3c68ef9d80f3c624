"""How large an answer will be is known before any of it is made."""

import threading
from typing import Any

import pytest
from listening import CLUSTER_ID, Client, listening
from new_tables import new_tables
from table_batches import Batch, Row, append, group, offset

from decoders import DecodeError, ErrorKind
from decoders.messages import Request, read_request, request_bytes
from streaming.common.times import MINUTE_MS, now_ms
from streaming.model.progress import PartitionProgress
from streaming.model.schemas import MEMBER
from streaming.serve.kafka import apis, connection
from streaming.serve.kafka.limits import Limits, UnansweredError
from streaming.serve.kafka.view import Address, RequestContext
from streaming.serve.kafka.view import Client as Software
from streaming.serve.memory.tailer import Tailer
from streaming.tables.tables import Tables

TEXT = "x" * 30_000
NAME = "n" * 249
TOPIC_ID = "AAAAAAAAAAEAAAAAAAAAAg"


def assigned(count: int) -> Row:
    told = dict.fromkeys(field.name for field in MEMBER) | {"client_id": "c", "client_host": "/h"}
    has = [{"topic": "t", "topic_id": TOPIC_ID, "partitions": list(range(count))}]
    return told | {
        "member_id": "m",
        "is_classic": False,
        "assignment": has,
        "assignment_bytes": b"a" * 4 * count,
    }


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> RequestContext:
    """Few things that are large: texts, assignments, names, and topics of which one partition is known."""
    tables = new_tables(tmp_path_factory.mktemp("sizes") / "tables")
    batch: Batch = {("texts", "t", number): offset(source_partition=0, metadata=TEXT) for number in range(10)}
    batch |= {("texts", NAME, number): offset(source_partition=0) for number in range(10)}
    batch |= {("gaps", f"gap-{number}", 999): offset(source_partition=0) for number in range(20)}
    batch |= {"classic": group(source_partition=0, members=[assigned(50_000)])}
    batch |= {"consumer": group(source_partition=0, type="consumer", members=[assigned(50_000)])}
    append(tables, batch, partitions={0: PartitionProgress(loaded=True)}, now=now_ms())
    tailer = Tailer(tables)
    tailer.poll()
    return RequestContext(
        snapshot=tailer.current,
        now=now_ms(),
        within_ms=MINUTE_MS,
        address=Address("127.0.0.1", 1),
        cluster_id=CLUSTER_ID,
        client=Software(),
    )


def asked(api_key: int, version: int, body: dict[str, Any]) -> Request:
    return read_request(request_bytes(api_key, version, 1, "tests", body)[4:])


def part_of(topic: str, *numbers: int) -> dict[str, Any]:
    return {"topics": [{"name": topic, "partitionIndexes": list(numbers)}]}


CASES: list[tuple[int, int, dict[str, Any]]] = [
    (9, 8, {"groups": [{"groupId": "texts", "topics": None}]}),
    (9, 8, {"groups": [{"groupId": "texts", **part_of("t", 0, 0, 3, 11)}] * 7}),
    (9, 1, {"groupId": "texts", **part_of("t", *[2] * 50)}),
    (9, 7, {"groupId": "texts", **part_of(NAME, 2)}),
    (15, 6, {"groups": ["classic"]}),
    (69, 1, {"groupIds": ["consumer"]}),
    (3, 9, {"topics": None}),
    (3, 0, {"topics": []}),
    (3, 9, {"topics": [{"name": f"gap-{number}"} for number in range(7)]}),
    (75, 0, {"topics": [], "responsePartitionLimit": 2_000, "cursor": None}),
    (42, 2, {"groupsNames": ["a" * 1_000]}),
    (10, 4, {"keyType": 1, "coordinatorKeys": [f"key-{number}" for number in range(100)]}),
    (16, 5, {"statesFilter": [], "typesFilter": []}),
]


@pytest.mark.parametrize(("api_key", "version", "body"), CASES)
def test_the_size_of_an_answer_is_about_what_it_will_be(
    view: RequestContext, api_key: int, version: int, body: dict[str, Any]
) -> None:
    request = asked(api_key, version, body)
    size = apis.size_of(request, view)
    made = len(apis.answer(request, view).whole)
    assert size.content + 100 * size.elements >= made - 300
    assert size.content <= 3 * made + 1_000


def test_each_config_of_the_broker_counts_with_its_texts(view: RequestContext) -> None:
    broker = {"resourceType": 4, "resourceName": "1", "configurationKeys": None}
    request = asked(32, 4, {"resources": [broker], "includeSynonyms": False, "includeDocumentation": True})
    [found] = apis.configs.answer_configs(request.body or {}, view)["results"]
    texts = "".join(one["name"] + one["value"] + one["documentation"] for one in found["configs"])
    size = apis.size_of(request, view)
    assert len(found["configs"]) == size.elements > 1
    assert len(texts) <= size.content


def test_partitions_that_nothing_has_named_are_elements(view: RequestContext) -> None:
    shown = apis.cluster.answer_metadata({"topics": None}, view)["topics"]
    partitions = sum(len(topic["partitions"]) for topic in shown)
    assert partitions > 20_000
    for version, body in ((9, None), (0, [])):
        assert partitions <= apis.size_of(asked(3, version, {"topics": body}), view).elements
    one = asked(3, 9, {"topics": [{"name": "gap-1"}] * 5})
    assert 1_000 <= apis.size_of(one, view).elements < 1_010


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (9, 8, {"groups": [{"groupId": "texts", **part_of("t", *range(10))}] * 400}),
        (9, 7, {"groupId": "texts", **part_of("t", *[0] * 4_000)}),
        (8, 2, {"groupId": "", "topics": [{"name": TEXT, "partitions": []}] * 4_000}),
    ],
)
def test_bytes_that_no_answer_can_hold_are_refused_before_it_is_made(
    view: RequestContext, api_key: int, version: int, body: dict[str, Any]
) -> None:
    request = Request(api_key, version, 1, "tests", body)
    with pytest.raises(UnansweredError, match=r"found 1[0-9]{8}: ask for fewer at once"):
        apis.size_of(request, view)


def test_few_elements_of_many_bytes_are_not_made_on_the_loop(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = list[str]()

    def answered(request: Request, view: RequestContext) -> apis.Response:
        threads.append(threading.current_thread().name)
        return apis.answer(request, view)

    monkeypatch.setattr(connection, "answer", answered)
    batch: Batch = {("g", "t", number): offset(source_partition=0, metadata=TEXT) for number in range(5)}
    append(tables, batch, partitions={0: PartitionProgress(loaded=True)}, now=now_ms())
    with (
        listening(tables, limits=Limits(large_bytes=100_000)) as endpoint,
        Client(endpoint.bootstrap) as client,
    ):
        for numbers in ([0, 1], [0, 1, 2], [0, 1, 2, 3]):
            [found] = client.ask(9, 8, {"groups": [{"groupId": "g", **part_of("t", *numbers)}]})["groups"]
            assert {one["metadata"] for one in found["topics"][0]["partitions"]} == {TEXT}
    on_loop, on_thread, at_length = threads
    assert on_thread == "offsetlake-answers" != on_loop
    assert at_length == "offsetlake-large-answers" != on_loop


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (3, 9, {"topics": [{"name": ""}] * 350_001}),
        (42, 2, {"groupsNames": [""] * 350_001}),
        pytest.param(9, 8, {"groups": [{"groupId": "", **part_of("")}] * 175_001}, marks=pytest.mark.more),
    ],
)
def test_a_request_of_more_elements_than_anyone_needs_is_not_read(
    api_key: int, version: int, body: dict[str, Any]
) -> None:
    with pytest.raises(DecodeError, match="expected at most 350000 elements") as caught:
        asked(api_key, version, body)
    assert caught.value.kind is ErrorKind.TOO_LARGE


def test_a_request_may_have_as_many_elements_as_anyone_needs() -> None:
    body = {"topics": [{"name": ""}] * 350_000}
    read = asked(3, 9, body).body
    assert read is not None
    assert len(read["topics"]) == 350_000
    numbers = {"groups": [{"groupId": "", **part_of("", *range(400_000))}]}
    assert asked(9, 8, numbers).body is not None


class Counted(str):
    """A text that counts how often it was divided."""

    divided = 0

    def split(self, *about: Any) -> list[str]:  # type: ignore[override]
        type(self).divided += 1
        return super().split(*about)


def test_the_version_of_a_client_is_read_once() -> None:
    client = Software("apache-kafka-java", Counted("3.9.2.17"))
    assert client.needs_leaders
    assert client.needs_leaders
    assert Counted.divided == 1
