"""What is asked for by name: patterns become names, and what is not there is named with the nearest names."""

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.common.topics import TopicPartitions, of_topics
from streaming.model.errors import MisuseError
from streaming.model.schemas import KEY
from streaming.queries.names import KnownNames, Missing, NameSearch, is_pattern, matching

Key = tuple[str, str | None, int | None]
KEYS: list[Key] = [
    ("billing", "orders", 0),
    ("billing", "orders", 1),
    ("billing-2", "orders", 0),
    ("audit", "payments", 5),
    ("bill*", "a?", 0),
    ("idle", None, None),
    ("", "orders", 0),
]


def table(keys: list[Key]) -> pa.Table:
    columns = zip(*keys, strict=True) if keys else [[]] * 3
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, KEY, strict=True)], pa.schema(KEY)
    )


class Lake:
    """Tables with `KEYS`, which count how often they are asked for names."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...] | None] = []

    def names(self, groups: tuple[str, ...] | None) -> KnownNames:
        self.asked.append(groups)
        return KnownNames.of(table([key for key in KEYS if groups is None or key[0] in groups]))

    def search(self, groups: list[str], topics: list[str] | None = None) -> NameSearch:
        parsed = [TopicPartitions.parse(text, name="--topic") for text in topics or []]
        return NameSearch(groups, parsed, self.names)

    def answer(self, search: NameSearch) -> pa.Table:
        """What a question for committed offsets gives."""
        held = [key for key in KEYS if key[1] is not None]
        of_groups = [key for key in held if search.groups is None or key[0] in search.groups]
        return of_topics(table(of_groups), search.topics)

    def missing(self, groups: list[str], topics: list[str] | None = None) -> Missing:
        search = self.search(groups, topics)
        return search.missing(self.answer(search), nothing="committed offsets")


# --- what is asked ---------------------------------------------------------------------------------------

MEANT: dict[str, list[str]] = {
    "billing": ["billing"],
    "bill*": ["bill*"],  # which is a name itself
    "bil*": ["bill*", "billing", "billing-2"],
    "billing?2": ["billing-2"],
    "?????": ["audit", "bill*"],
    "*": ["", "audit", "bill*", "billing", "billing-2", "idle"],
    "none*": ["none*"],
    "[b]illing*": ["[b]illing*"],
}


@pytest.mark.parametrize(("text", "meant"), MEANT.items())
def test_a_pattern_means_the_names_that_match_and_a_name_itself(text: str, meant: list[str]) -> None:
    assert Lake().search([text]).groups == meant


def test_patterns_of_topics_keep_their_partitions() -> None:
    search = Lake().search([], ["*s:0,1", "a?"])
    both = frozenset({0, 1})
    assert search.topics == [
        TopicPartitions("orders", both),
        TopicPartitions("payments", both),
        TopicPartitions("a?"),
    ]
    assert search.groups is None


def test_a_name_that_is_meant_twice_is_asked_for_once() -> None:
    assert Lake().search(["billing", "billing*", "billing"]).groups == ["billing", "billing-2"]


@given(st.text(), st.text(st.sampled_from("*?[]!a\n\0.")))
def test_brackets_mean_themselves_and_stars_anything(name: str, pattern: str) -> None:
    expected = "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)
    assert bool(matching(pattern, [name])) is bool(re.fullmatch(expected, name, re.DOTALL))
    assert bool(matching(pattern, [pattern]))
    assert is_pattern(pattern) is bool({"*", "?"} & set(pattern))


# --- what is not there -----------------------------------------------------------------------------------


def test_where_everything_is_there_no_names_are_read() -> None:
    lake = Lake()
    assert lake.missing(["billing", ""], ["orders", "orders:0"]) == Missing()
    assert lake.asked == []


HERE = "Did you mean"
NO_TOPIC = " is not there (no group has committed offsets of it)"
OUTSIDE = "is not there: the lowest known partition is 0, the highest"
NONE, HAS_NONE = "has no committed offsets", "has committed offsets"
MISSING: list[tuple[list[str], list[str], list[str], list[str], list[str]]] = [
    (["biling"], [], ["biling"], [], [f"group 'biling' is not there. {HERE} billing or billing-2?"]),
    (["AUDIT"], [], ["AUDIT"], [], [f"group 'AUDIT' is not there. {HERE} audit?"]),
    (["zzz", "billing"], [], ["zzz"], [], ["group 'zzz' is not there"]),
    (["b*s"], [], ["b*s"], [], ["no group matches 'b*s'"]),
    (["idle"], [], [], [], [f"group 'idle' {NONE}"]),
    (["id*"], [], [], [], [f"no group that matches 'id*' {HAS_NONE}"]),
    (["i?le", "a*"], [], [], [], [f"no group that matches 'i?le' {HAS_NONE}"]),
    (["bil*"], ["payments"], [], [], [f"no group that matches 'bil*' {HAS_NONE} of these topics"]),
    (["audit"], ["orders"], [], [], [f"group 'audit' {NONE} of these topics"]),
    ([], ["order"], [], ["order"], [f"topic 'order'{NO_TOPIC}. {HERE} orders?"]),
    ([], ["orders:99,0"], [], ["orders:99"], [f"topic partition 'orders:99' {OUTSIDE} 1"]),
    ([], ["*s:5"], [], [], []),
    ([], ["*s:9"], [], ["*s:9"], [f"topic partition '*s:9' {OUTSIDE} 5"]),
    ([], ["x*"], [], ["x*"], ["no topic matches 'x*'"]),
    (["billing-2"], ["orders:1,0"], [], [], [f"topic 'orders:1' {NONE} of these groups"]),
    (
        ["billing-2"],
        ["orders:9,1,0"],
        [],
        ["orders:9"],
        [
            f"topic partition 'orders:9' {OUTSIDE} 1",
            f"topic 'orders:1' {NONE} of these groups",
        ],
    ),
    (["billing"], ["orders", "payments"], [], [], [f"topic 'payments' {NONE} of these groups"]),
    (
        ["a\nudit", "billing"],
        ["order\x1b"],
        ["a\nudit"],
        ["order\x1b"],
        [
            f"group 'a\\nudit' is not there. {HERE} audit?",
            f"group 'billing' {NONE} of these topics",
            f"topic 'order\\x1b'{NO_TOPIC}. {HERE} orders?",
        ],
    ),
]


@pytest.mark.parametrize(("groups", "topics", "no_groups", "no_topics", "sentences"), MISSING)
def test_what_is_not_there_is_named_with_the_nearest_names(
    groups: list[str], topics: list[str], no_groups: list[str], no_topics: list[str], sentences: list[str]
) -> None:
    missing = Lake().missing(groups, topics)
    assert list(missing.sentences) == sentences
    assert missing.document() == {"groups": no_groups, "topics": no_topics}
    assert bool(missing) is bool(no_groups or no_topics)


def test_a_group_that_is_there_without_offsets_is_looked_for_alone() -> None:
    lake = Lake()
    lake.missing(["idle"])
    assert lake.asked == [("idle",)]


def test_of_what_has_an_error_nothing_else_is_said() -> None:
    search = Lake().search(["biling", "zzz"])
    missing = search.missing(table([]), {"biling": "COORDINATOR_LOAD_IN_PROGRESS"}, nothing="offsets")
    assert missing.groups == ("zzz",)


def test_a_time_is_said_where_it_matters() -> None:
    search = Lake().search(["audit"], ["payments"])
    missing = search.missing(table([]), nothing="rewind events", when=" in that time")
    assert missing.sentences == ("group 'audit' has no rewind events of these topics in that time",)


def test_what_is_read_in_part_may_hold_more() -> None:
    search = Lake().search(["b*", "none*", "zzz"], ["none", "n?", "orders:9"])
    missing = search.missing(table([]), nothing="committed offsets", is_partial=True)
    so_far = ", as far as has been read"
    assert missing.sentences == (
        f"no group matches 'none*'{so_far}",
        "group 'zzz' is not there",  # all that could hold it has been read: else it has an error
        f"no group that matches 'b*' {HAS_NONE} of these topics{so_far}",
        f"topic 'none'{NO_TOPIC}{so_far}",
        f"no topic matches 'n?'{so_far}",
        f"topic partition 'orders:9' {OUTSIDE} 1{so_far}",
    )


def test_of_a_pattern_whose_groups_have_errors_nothing_else_is_said() -> None:
    search = Lake().search(["bil*"])
    assert search.missing(table([]), {"billing-2": "ERROR"}, nothing="committed offsets") == Missing()


@pytest.mark.parametrize(
    ("texts", "expected"),
    [([], False), (["billing", "bill*", "zzz"], False), (["bil*"], True), (["audit", "zzz*"], True)],
)
def test_a_pattern_is_about_all_groups_but_a_name_like_one_is_not(texts: list[str], expected: bool) -> None:
    assert Lake().search(texts).has_patterns is expected


@pytest.mark.timeout(60)
def test_of_thousands_that_are_not_there_the_first_get_names_that_may_have_been_meant() -> None:
    known = KnownNames(frozenset(f"consumer-group-{number:07}" for number in range(20_000)), {})
    search = NameSearch([f"consumer-grup-{number:07}" for number in range(3_000)], [], lambda _: known)
    missing = search.missing(table([]), nothing="committed offsets")
    meant = [sentence for sentence in missing.sentences if HERE in sentence]
    assert (len(missing.groups), len(missing.sentences), len(meant)) == (3_000, 3_000, 5)
    assert "consumer-group-0000004" in meant[4]


# --- --topic ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "partitions"),
    [("orders", None), ("orders:0", {0}), ("orders:0,12,0", {0, 12}), ("orders:999999999", {999_999_999})],
)
def test_topic_is_asked_for_as_kafka_tools_do(text: str, partitions: set[int] | None) -> None:
    assert TopicPartitions.parse(text, name="--topic") == TopicPartitions(
        "orders", partitions and frozenset(partitions)
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":0",
        "orders:",
        "orders:x",
        "orders:-1",
        "orders:0,",
        "orders:0;1",
        "orders:٣",
        "orders:9999999999",
    ],
)
def test_bad_topic_is_explained(text: str) -> None:
    with pytest.raises(MisuseError, match=re.escape(f"such as orders:0,1; found {text!r}")):
        TopicPartitions.parse(text, name="--topic")
