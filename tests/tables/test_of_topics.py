"""Reading the rows of some topics and partitions gives the same as reading all rows and choosing after."""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest
from new_tables import new_tables
from table_batches import Batch, append, group, offset

from streaming.common.topics import TopicPartitions, of_topics
from streaming.tables.held import HeldChanges
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables

NAMES = ["t", "it's", '"t"', "''", "t\0", "\0t", "%_*", "\\", "été ☃ \U0001f980", "a\nb", "--", "", "T"]

GROUPS: list[Sequence[str] | None] = [["it's\0"], ["g", "it's\0"], None]

READS: dict[str, Callable[[Snapshot, Sequence[str] | None, Sequence[TopicPartitions]], pa.Table]] = {
    "offsets": lambda at, groups, topics: at.offsets(groups, topics),
    "earlier offsets": lambda at, groups, topics: at.as_of(2_000).offsets(groups, topics),
    "history": lambda at, groups, topics: at.history(groups, topics),
    "rewinds in the history": lambda at, groups, topics: at.history(groups, topics, events=["rewind"]),
    "commits": lambda at, groups, topics: at.commits(groups, topics, since=0),
    "rewinds": lambda at, groups, topics: at.rewinds(groups, topics, since=0),
}

CHOICES: dict[str, list[TopicPartitions]] = {
    "all": [],
    **{f"partition 1 of {name!r}": [TopicPartitions(name, frozenset({1}))] for name in NAMES},
    "two topics": [TopicPartitions("it's"), TopicPartitions("t\0")],
    "other partitions of each": [TopicPartitions("t", frozenset({0})), TopicPartitions("T", frozenset({1}))],
    "no partition": [TopicPartitions("t", frozenset())],
    "none that is there": [TopicPartitions("t' OR 'a' = 'a"), TopicPartitions("t", frozenset({-1, 7}))],
    "the most that are named": [TopicPartitions("t", frozenset({n})) for n in range(1, 250)],
    "too many to be named": [*map(TopicPartitions, [f"t-{n}" for n in range(600)]), TopicPartitions("\\")],
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Three batches: the second sets all offsets back, and is folded."""
    made = new_tables(tmp_path_factory.mktemp("tables"))
    live: Batch = {}
    for committed in 5, 3, 8:
        batch: Batch = {
            (of, name, partition): offset(committed_offset=committed + partition)
            for of in ("g", "it's\0", "other")
            for name in NAMES
            for partition in (0, 1, 2)
        }
        append(made, {**batch, "g": group()}, live=live)
        live |= batch
        if committed == 3:
            made.fold()
    return made


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.fixture(scope="module")
def of_all(tables: Tables) -> dict[tuple[str, int], pa.Table]:
    """What each read gives of all topics, by its name and the number of the groups in `GROUPS`."""
    return tables.ask(
        lambda at: {
            (name, number): read(at, groups, ())
            for name, read in READS.items()
            for number, groups in enumerate(GROUPS)
        }
    )


SINGLE = [choice for choice in CHOICES if choice.startswith("partition 1 of")]
OTHERS = ["two topics", "no partition", "the most that are named"]


@pytest.mark.parametrize(
    "choice",
    [
        pytest.param(choice, marks=[pytest.mark.more] if choice in SINGLE[::2] + OTHERS else [])
        for choice in CHOICES
    ],
)
def test_rows_of_some_topics_are_those_chosen_among_all(
    tables: Tables, of_all: dict[tuple[str, int], pa.Table], choice: str
) -> None:
    topics = CHOICES[choice]

    def ask(at: Snapshot) -> None:
        for name, read in READS.items():
            for number, groups in enumerate(GROUPS):
                found = read(at, groups, topics)
                assert rows(found) == rows(of_topics(of_all[name, number], topics)), name
                is_there = choice.startswith(("all", "partition", "two", "other", "the", "too"))
                assert bool(len(found)) == is_there, name

    tables.ask(ask)


@pytest.mark.parametrize("choice", [choice for choice in CHOICES if not choice.startswith("too")])
def test_changes_by_hour_are_those_of_the_topics(tables: Tables, choice: str) -> None:
    topics = CHOICES[choice]

    def ask(at: Snapshot) -> None:
        for groups in ["it's\0"], ["g", "it's\0"]:
            by_hour = at.commits_by_hour(groups, topics, since=0)
            assert sum(by_hour["changes"].to_pylist()) == len(at.history(groups, topics))

    tables.ask(ask)


@pytest.mark.parametrize("most_bytes", [pytest.param(10**8, marks=pytest.mark.more), 20_000, 1])
def test_changes_in_memory_answer_as_the_tables_do_about_any_topics(tables: Tables, most_bytes: int) -> None:
    """All changes of a group are held, or those of one topic, or none."""
    changes, own = HeldChanges(most_bytes), [TopicPartitions("t\0")]

    def ask(at: Snapshot) -> list[object]:
        found: list[object] = [
            rows(read(at, groups, topics))
            for read in READS.values()
            for topics in (own, [], CHOICES["two topics"], CHOICES["too many to be named"])
            for groups in (["it's\0"], ["g"])
        ]
        hours = [at.commits_by_hour(["it's\0"], topics, since=0) for topics in (own, [])]
        return [*found, *map(rows, hours), rows(at.groups(["it's\0"])), rows(at.removals(["it's\0"]))]

    def ask_memory(at: Snapshot) -> list[object]:
        at.hold("it's\0", changes, own)
        return ask(at)

    def is_held(topics: Sequence[TopicPartitions]) -> bool:
        sequence = tables.read().progress.sequence
        return tables.ask_now(lambda at: changes.of(at.changes, "it's\0", sequence, topics)) is not None

    assert tables.ask(ask_memory) == tables.ask(ask)
    assert (is_held([]), is_held(own)) == (most_bytes > 10**7, most_bytes > 1)
