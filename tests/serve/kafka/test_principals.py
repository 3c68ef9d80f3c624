"""What a principal is told: of groups and topics outside its patterns nothing, not even that they exist."""

import fnmatch
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hostile_names import NAMES
from hypothesis import example, given, settings
from hypothesis import strategies as st
from log_end_rows import Sample, rows_of
from new_tables import new_tables
from seen_by import Seen, of_snapshot, principal, request_of
from table_batches import Batch, Row, append, group, offset

from decoders.formats.java_values import MAX_TEXT_BYTES
from decoders.messages import APIS, request_bytes
from streaming.model.progress import PartitionProgress
from streaming.model.schemas import MEMBER
from streaming.serve.kafka import apis
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.limits import Limits, Size
from streaming.serve.kafka.principals import Patterns, Principal
from streaming.serve.kafka.view import RequestContext
from streaming.serve.memory.names import TEXTS, NameIndex
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.serve.memory.tailer import Tailer

NOW = 1_000_000

# --- patterns ----------------------------------------------------------------------------------------------

LETTERS = st.sampled_from([*"ab-.*?[]!^\\é\0\n", "\U0010ffff", "&&", "||", "~~", "--"])
TEXTS_OF_LETTERS = st.lists(LETTERS, max_size=6).map("".join)


def index_of(names: list[str]) -> NameIndex:
    return NameIndex.none().changed(pa.array(names, TEXTS))[0]


@given(names=st.lists(TEXTS_OF_LETTERS), patterns=st.lists(TEXTS_OF_LETTERS, max_size=4))
@example(names=NAMES, patterns=["*\0*", "[!a]*", "*é"])
@example(names=NAMES, patterns=[NAMES[0], "*"])
@example(names=["", "\U0010ffff", "a\U0010ffff", "a\U0010ffffb"], patterns=["a*"])
@example(names=["a", "ab", "abc"], patterns=["ab*", "abc", "a*b*", "ab*"])
def test_what_matches_among_many_names_is_what_matches_alone(names: list[str], patterns: list[str]) -> None:
    index, held = index_of(names), Patterns(patterns)
    ordered = index.texts.to_pylist()
    matching = [any(fnmatch.fnmatchcase(name, one) for one in patterns) for name in ordered]
    assert held.mask(index).tolist() == matching == [held.match(name) for name in ordered]
    ranges = held.ranges(index)
    within = [place for one in ranges for place in one]
    assert within == sorted(set(within))
    assert set(np.flatnonzero(matching)) <= set(within)


def test_a_name_as_long_as_there_are_is_matched_at_once() -> None:
    began = time.monotonic()
    longest = "a" * MAX_TEXT_BYTES
    assert not Patterns(["*a*a*a*a*b"]).match(longest)
    assert Patterns([f"{longest}*"]).match(longest)
    assert time.monotonic() - began < 5


def test_what_matches_is_kept_while_the_names_are_the_same() -> None:
    index, held = index_of(["a", "b"]), Patterns(["?"])
    assert held.mask(index) is held.mask(index)
    assert held.ranges(index) is held.ranges(index)
    assert held.mask(index_of(["a", "bc"])).tolist() == [True, False]


# --- the same as without the rest --------------------------------------------------------------------------

TOPICS = ["orders", "payments", "p", "t-é\0", "[x]"]
GROUPS = ["", "billing-1", "billing-2", "billing", "b[1]", "*", "a\0b", "share", "consumer", *NAMES]
IDS = {topic: f"AAAAAAAAAAEAAAAAAAAA{number}A" for number, topic in enumerate(TOPICS)}

PATTERNS = st.lists(
    st.sampled_from(["*", "billing-*", "b*", "", "*-1", "b[[]1]", "[*]", "*\0*", "?", "[!a-m]*", *NAMES[:3]]),
    max_size=3,
)
OF_TOPICS = st.lists(st.sampled_from(["*", "p*", "orders", "*é*", "[[]x]", "?"]), max_size=2)


def member(*topics: str) -> Row:
    has = [{"topic": topic, "topic_id": IDS[topic], "partitions": [0]} for topic in topics]
    nothing = dict.fromkeys(field.name for field in MEMBER)
    return nothing | {"member_id": "m", "client_id": "c", "client_host": "/h", "assignment": has}


def rows_of_groups(groups: list[str], topics: list[str]) -> Batch:
    batch: Batch = {
        (name, topic, number): offset(source_partition=0, committed_offset=number, metadata=f"{name[:9]}")
        for place, name in enumerate(GROUPS)
        for number, topic in enumerate(TOPICS)
        if name in groups and topic in topics and (place + number) % 3
    }
    for place, name in enumerate(GROUPS):
        kind = ("classic", "consumer", "share")[place % 3]
        members = [member(*TOPICS[place % 4 : place % 4 + 2])] if place % 2 else []
        if name in groups:
            batch[name] = group(source_partition=0, type=kind, members=members)
    return batch


Snapshots = Callable[[tuple[str, ...], tuple[str, ...]], MemorySnapshot]


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> Snapshots:
    """Snapshots of tables that have only some groups and topics."""

    @cache
    def made(groups: tuple[str, ...], topics: tuple[str, ...]) -> MemorySnapshot:
        return snapshot_of(
            tmp_path_factory.mktemp("part"),
            rows_of_groups([*groups], [*topics]),
            [Sample(NOW, topic, number, 9, IDS[topic]) for topic in topics for number in range(6)],
        )

    return made


def snapshot_of(folder: Path, batch: Batch, samples: list[Sample]) -> MemorySnapshot:
    tables = new_tables(folder / "tables")
    loaded = {0: PartitionProgress(position=10, loaded=True)}
    append(tables, batch, partitions=loaded, topic="__consumer_offsets", now=NOW)
    tables.append_log_ends(rows_of(samples))
    tailer = Tailer(tables, clock=lambda: NOW)
    tailer.poll()
    return tailer.current


def about_all(topics: list[str]) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Name requests that name no group, and no topic that is not given."""
    for version in APIS[16].versions:
        yield 16, version, {}
    yield 16, 5, {"statesFilter": ["stable"], "typesFilter": ["consumer", "share"]}
    for version in (0, 1, 9, 12, 13):
        yield 3, version, {"topics": None if version else []}
    for limit, cursor in ((2, None), (100, {"topicName": "p", "partitionIndex": 1})):
        yield 75, 0, {"topics": [], "responsePartitionLimit": limit, "cursor": cursor}
    yield 3, 13, {"topics": [{"name": None, "topicId": IDS[topic]} for topic in topics]}


def about(groups: list[str], topics: list[str]) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Name requests about groups and topics."""
    named = [{"name": topic} for topic in topics]
    for version in (0, 1, 9, 12):
        yield 3, version, {"topics": named or [{"name": "nope"}]}
    cursor = {"topicName": topics[0], "partitionIndex": 1} if topics else None
    yield 75, 0, {"topics": named, "responsePartitionLimit": 3, "cursor": cursor}
    end = [{"partitionIndex": number, "timestamp": timestamp} for number in (0, 9) for timestamp in (-1, -2)]
    yield 2, 7, {"topics": [{"name": topic, "partitions": end} for topic in topics]}
    resources = [(2, topic) for topic in topics] + [(32, name) for name in groups]
    asked = [
        {"resourceType": kind, "resourceName": name, "configurationKeys": []} for kind, name in resources
    ]
    yield 32, 4, {"resources": asked}
    for version in (0, 5, 6):
        yield 15, version, {"groups": groups, "includeAuthorizedOperations": version > 3}
    yield 69, 1, {"groupIds": groups, "includeAuthorizedOperations": True}
    yield 77, 1, {"groupIds": groups, "includeAuthorizedOperations": True}
    yield 10, 6, {"coordinatorKeys": groups}
    yield 42, 2, {"groupsNames": groups}
    some = [{"name": topic, "partitionIndexes": [0, 1, 2, 3]} for topic in topics]
    for name in groups:
        yield 10, 3, {"key": name}
        yield 9, 1, {"groupId": name, "topics": some}
        for wanted in (some, None):
            yield 9, 7, {"groupId": name, "topics": wanted}
    for wanted in (some, None):
        member_of = {"memberId": "m", "memberEpoch": 0}
        yield 9, 9, {"groups": [{"groupId": name, "topics": wanted} for name in groups]}
        yield 9, 9, {"groups": [{"groupId": name, "topics": wanted, **member_of} for name in groups]}
    yield 9, 10, {"groups": [{"groupId": name, "topics": None} for name in groups]}


@settings(max_examples=settings.default.max_examples // 2)
@given(groups=PATTERNS, topics=OF_TOPICS)
@example(groups=["billing-*", "consumer"], topics=["p*"])
@example(groups=["b*"], topics=["*"])
@example(groups=[], topics=[])
def test_a_principal_is_told_the_same_as_if_there_were_nothing_else(
    snapshots: Snapshots, groups: list[str], topics: list[str]
) -> None:
    who = principal(groups, topics)
    seen, seen_topics = [*filter(who.may_see_group, GROUPS)], [*filter(who.may_see_topic, TOPICS)]
    whole = of_snapshot(who, snapshots((*GROUPS,), (*TOPICS,)), now=NOW)
    part = of_snapshot(who, snapshots((*seen,), (*seen_topics,)), now=NOW)
    alone = of_snapshot(None, part.context.snapshot, now=NOW)
    for asked in (*about_all(seen_topics), *about([*GROUPS, "nope"], [*TOPICS, "nope"])):
        assert whole.sent(*asked) == part.sent(*asked), asked
    if seen_topics == TOPICS:  # else a group whose members have hidden topics is an error
        for asked in (*about_all(seen_topics), *about(seen, seen_topics)):
            assert whole.sent(*asked) == alone.sent(*asked), asked


def test_answers_that_are_written_from_columns_are_the_same(
    snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = snapshots((*GROUPS,), (*TOPICS,))
    for groups, topics in ((["b*"], ["p*"]), (["*-1", "*"], ["orders", "?"]), ([], ["*"]), (["*"], [])):
        seen = of_snapshot(principal(groups, topics), whole, now=NOW)
        asked = [one for one in about(GROUPS, TOPICS) if one[0] == 9]
        few = [seen.ask(*one) for one in asked]
        monkeypatch.setattr(apis, "MANY", -1)
        assert [seen.ask(*one) for one in asked] == few
        monkeypatch.undo()


ROUGH_BYTES = 16 * 1024
"""Content up to which the longest text of all is taken for that of one group."""


@pytest.mark.parametrize("groups", [["billing-*"], ["billing-1", "[*]"], []])
def test_hidden_groups_add_nothing_to_the_size_of_an_answer(snapshots: Snapshots, groups: list[str]) -> None:
    """Sizes decide how long an answer takes, and whether there is one."""
    who = principal(groups, ["*"])
    seen = [*filter(who.may_see_group, GROUPS)]
    whole, part = (
        of_snapshot(who, snapshots((*names,), (*TOPICS,)), now=NOW).context for names in (GROUPS, seen)
    )
    for asked in (*about_all(TOPICS), *about([*GROUPS, "nope"], TOPICS)):
        request = request_of(*asked)
        if asked[0] != 16:  # this one is bounded from above
            assert apis.weight_of(request, whole) == apis.weight_of(request, part)
        found, expected = apis.size_of(request, whole), apis.size_of(request, part)
        assert found.elements == expected.elements, asked
        is_rough = asked[0] == 9 and max(found.content, expected.content) < ROUGH_BYTES
        assert is_rough or abs(found.content - expected.content) < 100, asked  # less by buffers' ends


# --- errors ------------------------------------------------------------------------------------------------


def errors_in(answer: Any) -> set[int]:
    """Return the error codes anywhere in an answer, but 0."""
    inside = answer.values() if isinstance(answer, dict) else answer if isinstance(answer, list) else ()
    own = {answer.get("errorCode", 0)} if isinstance(answer, dict) else set()
    return set().union(own, *map(errors_in, inside)) - {0}


@pytest.mark.parametrize("name", ["hidden", "share", "", "\0"])
def test_what_is_hidden_is_said_to_be_so_in_every_version(snapshots: Snapshots, name: str) -> None:
    seen = of_snapshot(principal(["g"], ["t"]), snapshots((*GROUPS,), (*TOPICS,)), now=NOW)
    topic = name if name in TOPICS else "payments"
    of_topics, of_groups = {Error.TOPIC_AUTHORIZATION_FAILED}, {Error.GROUP_AUTHORIZATION_FAILED}
    for asked in about([name], []):
        if asked[0] not in {2, 3, 75}:
            assert errors_in(seen.ask(*asked)) == (of_groups if (asked[0], asked[1]) != (9, 1) else set())
    for asked in about([], [topic]):
        if asked[0] in {2, 3, 32, 75}:
            assert errors_in(seen.ask(*asked)) == of_topics
    some = [{"name": topic, "partitionIndexes": [0]}]
    assert errors_in(seen.ask(9, 1, {"groupId": name, "topics": some})) == of_groups
    for version, group_id in ((1, "g"), (7, "g")):
        assert errors_in(seen.ask(9, version, {"groupId": group_id, "topics": some})) == of_topics
    by_id = [{"topicId": IDS[topic], "partitionIndexes": [0]}]
    assert errors_in(seen.ask(9, 10, {"groups": [{"groupId": "g", "topics": by_id}]})) == of_topics
    [found] = seen.ask(3, 12, {"topics": [{"name": None, "topicId": IDS[topic]}]})["topics"]
    assert (found["errorCode"], found["name"]) == (Error.TOPIC_AUTHORIZATION_FAILED, None)


def test_a_hidden_group_is_not_looked_up(snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []
    rows_of = MemorySnapshot.rows_of

    def recorded(snapshot: MemorySnapshot, groups: Any) -> Any:
        looked_up.extend(groups)
        return rows_of(snapshot, groups)

    monkeypatch.setattr(MemorySnapshot, "rows_of", recorded)
    seen = of_snapshot(principal(["billing-*"], ["*"]), snapshots((*GROUPS,), (*TOPICS,)), now=NOW)
    for asked in about(GROUPS, TOPICS):
        seen.ask(*asked)
    assert set(looked_up) == {"billing-1", "billing-2"}


def test_a_hidden_group_is_an_error_even_while_groups_are_loading(snapshots: Snapshots) -> None:
    seen = of_snapshot(principal(["billing-*"], ["*"]), MemorySnapshot.none(), now=NOW)
    errors = {
        one["groupId"]: one["errorCode"]
        for one in seen.ask(15, 6, {"groups": ["billing-1", "other"]})["groups"]
    }
    loading = Error.COORDINATOR_LOAD_IN_PROGRESS
    assert errors == {"billing-1": loading, "other": Error.GROUP_AUTHORIZATION_FAILED}
    topics = seen.ask(3, 9, {"topics": [{"name": "t"}]})["topics"]
    assert [one["errorCode"] for one in topics] == [Error.LEADER_NOT_AVAILABLE]
    busy = apis.answer_later(request_of(15, 6, {"groups": ["other"]}), seen.context)
    assert busy.whole == seen.sent(15, 6, {"groups": ["other"]})


def test_a_topic_whose_name_is_not_known_is_hidden_from_whoever_may_not_see_all(tmp_path: Path) -> None:
    unknown = member("orders")
    unknown["assignment"][0]["topic"] = None
    rows: Batch = {"g": group(source_partition=0, type="consumer", members=[unknown])}
    snapshot = snapshot_of(tmp_path / "some", rows, [])
    nothing = snapshot_of(tmp_path / "none", {"g": group(source_partition=0, type="consumer")}, [])

    def error_for(*topics: str) -> int:
        seen = of_snapshot(principal(["g"], [*topics]), snapshot, now=NOW)
        [described] = seen.ask(69, 1, {"groupIds": ["g"]})["groups"]
        return int(described["errorCode"])

    assert [error_for("*"), error_for("orders")] == [Error.NONE, Error.TOPIC_AUTHORIZATION_FAILED]
    for pattern in ("A*", "?*", IDS["orders"]):  # which the id matches, but ids are no names
        assert error_for(pattern) == Error.TOPIC_AUTHORIZATION_FAILED
        whole = of_snapshot(principal(["g"], [pattern]), snapshot, now=NOW)
        part = of_snapshot(principal(["g"], [pattern]), nothing, now=NOW)
        for asked in (*about_all(["orders"]), *about([], [IDS["orders"]])):
            if asked[0] != 16:
                assert whole.sent(*asked) == part.sent(*asked), asked
    for version, named in ((12, None), (9, [{"name": IDS["orders"]}])):
        [found] = of_snapshot(principal(["g"], ["*"]), snapshot, now=NOW).ask(3, version, {"topics": named})[
            "topics"
        ]
        assert (found["errorCode"], found["name"]) == (Error.NONE, IDS["orders"])


def test_a_topic_is_visible_once_its_name_is_known(tmp_path: Path) -> None:
    unknown = member("orders")
    unknown["assignment"][0]["topic"] = None
    rows: Batch = {"g": group(source_partition=0, type="consumer", members=[unknown])}
    snapshot = snapshot_of(tmp_path, rows, [Sample(NOW, "orders", 0, 9, IDS["orders"])])
    seen = of_snapshot(principal(["g"], ["orders"]), snapshot, now=NOW)
    [described] = seen.ask(69, 1, {"groupIds": ["g"]})["groups"]
    assert described["errorCode"] == Error.NONE
    assert [one["name"] for one in seen.ask(3, 12, {"topics": None})["topics"]] == ["orders"]


def test_a_group_of_which_a_member_will_get_a_hidden_topic_is_an_error(tmp_path: Path) -> None:
    has = member("orders")
    has["target_assignment"] = member("payments")["assignment"]
    rows: Batch = {"g": group(source_partition=0, type="consumer", members=[has])}
    snapshot = snapshot_of(tmp_path, rows, [])
    for topics, error in ((["orders", "p*"], Error.NONE), (["orders"], Error.TOPIC_AUTHORIZATION_FAILED)):
        [found] = of_snapshot(principal(["g"], topics), snapshot, now=NOW).ask(69, 1, {"groupIds": ["g"]})[
            "groups"
        ]
        assert (found["errorCode"], found["groupId"]) == (error, "g")


def test_log_ends_of_the_past_are_not_read_for_hidden_topics(snapshots: Snapshots) -> None:
    read: list[str] = []
    whole = of_snapshot(principal([], ["p*"]), snapshots((*GROUPS,), (*TOPICS,)), now=NOW)

    def past_ends(topics: Any, moment: int) -> dict[Any, Any]:
        read.extend(topics)
        return {}

    seen = Seen(replace(whole.context, past_ends=past_ends))
    at = [{"partitionIndex": 0, "timestamp": 5}]
    asked = {"topics": [{"name": topic, "partitions": at} for topic in ("orders", "payments")]}
    found = {one["name"]: one["partitions"][0]["errorCode"] for one in seen.ask(2, 7, asked)["topics"]}
    assert found == {"orders": Error.TOPIC_AUTHORIZATION_FAILED, "payments": Error.UNSUPPORTED_VERSION}
    assert read == ["payments"]


def test_metadata_of_hidden_topics_adds_nothing_to_the_size_of_an_answer(tmp_path: Path) -> None:
    rows: Batch = {
        (name, topic, 0): offset(source_partition=0, metadata=text)
        for name in ("a", "b")
        for topic, text in (("orders", "m" * 20_000), ("payments", "m"))
    }
    snapshot = snapshot_of(tmp_path, rows, [])
    request = request_of(9, 8, {"groups": [{"groupId": name, "topics": None} for name in ("a", "b")]})
    content = [
        apis.size_of(request, of_snapshot(principal(["*"], topics), snapshot, now=NOW).context).content
        for topics in (["*"], ["p*"])
    ]
    assert content[0] > 40_000
    assert content[1] < 100


# --- kept answers ------------------------------------------------------------------------------------------


def test_principals_never_share_a_kept_answer(snapshots: Snapshots) -> None:
    snapshot = snapshots((*GROUPS,), (*TOPICS,))
    frame = request_bytes(16, 5, 1, "tests", {})[4:]
    request = request_of(16, 5, {})
    kept = apis.ResponseCache()
    who: list[Principal | None] = [
        None,
        principal(["billing-1"], ["*"], "a"),
        principal(["billing-2"], ["*"], "b"),
        principal(["billing-2"], ["*"], "a"),  # as the settings are now
        principal(["billing-2"], ["orders"], "a"),
    ]
    views = [of_snapshot(one, snapshot, now=NOW).context for one in who]
    for view in views:
        assert _kept_for(view, kept, frame) is None
        response = apis.answer(request, view)
        kept.keep(frame, view, response._replace(data=response.whole))
    again = of_snapshot(principal(["billing-1"], ["*"], "a"), snapshot, now=NOW).context
    found = [_kept_for(view, kept, frame) for view in [*views, again]]
    answers = [answer.whole for answer in found if answer is not None]
    assert len(answers) == len(views) + 1
    assert len(set(answers)) == 3  # the last three principals see the same
    assert answers[-1] == answers[1]


def _kept_for(view: RequestContext, kept: apis.ResponseCache, frame: bytes) -> apis.Response | None:
    return kept.answer(frame, (view.address, view.client, view.principal), view.snapshot, view.now)


# --- a few among many --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> MemorySnapshot:
    """20,000 groups and as many topics, of which few are called `mine-...`."""
    named = ["mine-1", "mine-2", "of-mine", *(f"other-{number}" for number in range(20_000))]
    rows: Batch = {(name, name, 0): offset(source_partition=0, metadata="m" * 90) for name in named}
    rows |= {name: group(source_partition=0) for name in named}
    return snapshot_of(tmp_path_factory.mktemp("many"), rows, [])


@pytest.mark.parametrize(("pattern", "count"), [("mine-*", 2), ("*mine*", 3), ("?ine-[12]", 2)])
def test_who_sees_few_among_many_is_answered_as_if_they_were_all(
    many: MemorySnapshot, pattern: str, count: int
) -> None:
    seen = of_snapshot(principal([pattern], [pattern]), many, now=NOW)
    everyone = of_snapshot(None, many, now=NOW)
    requests = [(16, 5, {}, "groups"), (3, 9, {"topics": None}, "topics"), (75, 0, {"topics": []}, "topics")]
    for api_key, version, body, about_these in requests:
        request = request_of(api_key, version, {"responsePartitionLimit": 2_000, **body})
        size = apis.size_of(request, seen.context)
        if api_key != 75:  # of this one, the limit counts
            assert size.elements <= count
            assert apis.size_of(request, everyone.context).elements > 20_000
        assert size.content < 200
        assert len(seen.ask(api_key, version, body)[about_these]) == count


def test_many_hidden_groups_are_refused_in_an_answer_that_is_not_large(many: MemorySnapshot) -> None:
    names = [f"other-{number}" for number in range(5_000)]
    body = {"groups": [{"groupId": name, "topics": None} for name in names]}
    seen = of_snapshot(principal(["mine-*"], ["*"]), many, now=NOW)
    assert apis.size_of(request_of(9, 8, body), seen.context) == Size(5_000, sum(map(len, names)))
    assert Limits().large > 5_000
    errors = {one["errorCode"] for one in seen.ask(9, 8, body)["groups"]}
    assert errors == {Error.GROUP_AUTHORIZATION_FAILED}
