"""Samples of log ends: what is read equals what one finds by looking at each, however they are kept."""

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from log_end_rows import (
    Position,
    Sample,
    expected_crossing,
    expected_newest,
    gone,
    of_topic,
    positions_of,
    rows_of,
)
from maintenance_rounds import KEPT, NOW
from table_batches import Batch, append, group, heartbeat, offset

from streaming.common.times import DAY_MS, HOUR_MS, MINUTE_MS, from_ms
from streaming.maintenance import samples
from streaming.maintenance.compaction import compact
from streaming.maintenance.maintenance import maintain
from streaming.model.schemas import TOPIC_GONE
from streaming.queries.sql import run_sql
from streaming.tables import log_ends
from streaming.tables.log_ends import (
    NEWEST_ENDS,
    NEWEST_WITHIN_MS,
    TOPICS_OVER_TIME,
    HeldSamples,
    SampleFiles,
    ends_at,
    ends_between,
    newest_ends,
    topics_over_time,
)
from streaming.tables.offset_times import CROSSINGS, offset_times
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables

FIRST = NOW - 3 * DAY_MS - 12 * HOUR_MS  # the start of a day
TOPICS = ("a", "a.b", "b", "a\0", "t" * 249, "ü𝄞")


def crossed(tables: Tables, positions: list[Position], as_of: int = NOW) -> list[dict[str, object]]:
    found = offset_times(SampleFiles(tables.delta("log_ends")), positions_of(positions), as_of=as_of)
    assert found.schema == CROSSINGS
    answer: list[dict[str, object]] = found.to_pylist()
    return answer


def minutes(*ends: int, topic_id: str | None = "id-1") -> list[Sample]:
    return [Sample(FIRST + n * MINUTE_MS, "a", 0, end, topic_id) for n, end in enumerate(ends)]


def crossing(
    below: tuple[int, int] | None, above: tuple[int, int] | None
) -> dict[str, object]:  # (minute, log end)
    return {
        "below_at": below and from_ms(FIRST + below[0] * MINUTE_MS),
        "below_end": below and below[1],
        "above_at": above and from_ms(FIRST + above[0] * MINUTE_MS),
        "above_end": above and above[1],
    }


def listed(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in rows), key=repr)


def newest_among(rows: pa.Table, moment: int) -> dict[tuple[Any, ...], Any]:
    """Return the last row of each partition and topic id up to a moment, and all rows about whole topics."""
    found = sorted(rows.to_pylist(), key=lambda row: row["sampled_at"])
    return {
        (row["topic"], row["topic_id"], row["partition"] if row["partition"] is not None else repr(row)): row
        for row in found
        if row["sampled_at"] <= from_ms(moment)
    }


def expected_between(
    sampled: list[Sample], topics: list[str] | None, since: int, until: int
) -> list[dict[str, Any]]:
    """Find the samples with a log end, and the rows about whole topics, between two moments."""
    return [
        {
            "topic": one.topic,
            "topic_id": one.topic_id,
            "partition": one.partition,
            "sampled_at": from_ms(one.at),
            "log_start": one.start,
            "log_end": one.end,
        }
        for one in sampled
        if since < one.at <= until
        and (topics is None or one.topic in topics)
        and (one.end is not None or (one.partition is None and (one.topic_id or one.error == TOPIC_GONE)))
    ]


@pytest.mark.parametrize(
    ("ends", "position", "expected"),
    [
        ([5, 8, 12], 8, crossing((1, 8), (2, 12))),
        ([5, 8, 12], 10, crossing((1, 8), (2, 12))),
        ([5, 8, 12], 12, crossing((2, 12), None)),  # nothing is behind it
        ([5, 8, 12], 40, crossing((2, 12), None)),
        ([5, 8, 12], 4, crossing(None, (0, 5))),  # at least as old as the first sample
        ([5, 5, 5, 8, 8], 5, crossing((2, 5), (3, 8))),  # the last moment at which nothing was behind it
        ([5, 9, 7, 12], 8, crossing((2, 7), (3, 12))),  # an unclean election took records away
        ([9, 7, 3], 4, crossing((2, 3), None)),
        ([2**62, 2**63 - 1, 0], 2**62, crossing((2, 0), None)),
        ([0, 2**62, 2**63 - 1], 2**62 + 1, crossing((1, 2**62), (2, 2**63 - 1))),
        ([5], -(2**63), crossing(None, (0, 5))),
        ([5], 2**63 - 1, crossing((0, 5), None)),
    ],
)
def test_a_position_is_passed_between_two_samples(
    tables: Tables, ends: list[int], position: int, expected: dict[str, object]
) -> None:
    tables.append_log_ends(rows_of(minutes(*ends)))
    assert crossed(tables, [("a", 0, position)]) == [expected]


def test_samples_of_a_recreated_topic_are_of_another_log(tables: Tables) -> None:
    old, new = minutes(5, 50), minutes(0, 0, 0, 3, 9, topic_id="id-2")[2:]
    tables.append_log_ends(rows_of([*old, *new]))
    assert crossed(tables, [("a", 0, 4), ("a", 0, 60)]) == [crossing((3, 3), (4, 9)), crossing((4, 9), None)]
    before = FIRST + MINUTE_MS
    assert crossed(tables, [("a", 0, 4), ("a", 0, 60)], before) == [
        crossing(None, (0, 5)),
        crossing((1, 50), None),
    ]


def test_a_position_below_the_first_sample_of_a_topic_recreated_is_not_found_in_the_former(
    tables: Tables,
) -> None:
    tables.append_log_ends(rows_of([*minutes(5, 50), *minutes(0, 0, 8, 9, topic_id="id-2")[2:]]))
    assert crossed(tables, [("a", 0, 6)]) == [crossing(None, (2, 8))]


@pytest.mark.parametrize("tells", [of_topic(FIRST + 1, "a", "id-2"), Sample(FIRST + 1, "a", 0, 3, "id-2")])
def test_partitions_that_a_topic_recreated_lacks_have_no_end(tables: Tables, tells: Sample) -> None:
    old = [Sample(FIRST, "a", 0, 1_000), Sample(FIRST, "a", 5, 1_000), Sample(FIRST, "a", 6, 9, None)]
    tables.append_log_ends(rows_of([of_topic(FIRST, "a", "id-1"), *old, Sample(FIRST, "b", 5, 7), tells]))

    def ends(as_of: int) -> set[tuple[object, ...]]:
        found = newest_ends(SampleFiles(tables.delta("log_ends")), None, as_of=as_of)
        return {tuple(row.values()) for row in found.select(["topic", "partition", "log_end"]).to_pylist()}

    before = {("a", 0, 1_000), ("a", 5, 1_000), ("a", 6, 9), ("b", 5, 7)}
    assert ends(FIRST) == before
    left = {("a", 6, 9), ("b", 5, 7)}  # an unknown id is like any
    assert ends(FIRST + 1) == left | ({("a", 0, 3)} if tells.partition == 0 else set())


def test_a_row_about_a_topic_is_no_sample_of_its_ends(tables: Tables) -> None:
    later = of_topic(FIRST + HOUR_MS, "a", "id-1")
    tables.append_log_ends(
        rows_of([Sample(FIRST, "a", 0, 5), Sample(later.at - MINUTE_MS, "b", 0, 7), later])
    )
    found = newest_ends(SampleFiles(tables.delta("log_ends")), None, as_of=later.at + NEWEST_WITHIN_MS)
    assert found["topic"].to_pylist() == ["b"]


def test_a_row_about_a_topic_stays_beside_a_sample_of_its_partition_0(tables: Tables) -> None:
    rows = [gone(FIRST + 1, "a"), Sample(FIRST + 2, "a", 0, 5, None), Sample(FIRST + 3, "a", 0, 6, None)]
    tables.append_log_ends(rows_of(rows))
    found = ends_at(SampleFiles(tables.delta("log_ends")), ["a"], np.array([FIRST, FIRST + MINUTE_MS]))
    assert found.select(["partition", "log_end"]).to_pylist() == [
        {"partition": None, "log_end": None},
        {"partition": 0, "log_end": 6},
    ]


def test_files_whose_times_overlap_are_read_together(tables: Tables) -> None:
    first, second, third, fourth = minutes(5, 7, 9, 12)
    tables.append_log_ends(rows_of([first, third]))
    tables.append_log_ends(rows_of([second, fourth]))  # the clock was set back
    assert crossed(tables, [("a", 0, 7)]) == [crossing((1, 7), (2, 9))]


def test_an_unknown_id_is_like_any(tables: Tables) -> None:
    ends = [*minutes(5, 6), *minutes(0, 0, 8, topic_id=None)[2:], *minutes(0, 0, 0, 9)[3:]]
    tables.append_log_ends(rows_of(ends))
    assert crossed(tables, [("a", 0, 6)]) == [crossing((1, 6), (2, 8))]


@pytest.mark.parametrize("files", ["one", "many"])
def test_without_ids_what_may_be_of_a_recreated_topic_does_not_count(tables: Tables, files: str) -> None:
    fell, unnamed = minutes(5, 50, 3, 9, topic_id=None), minutes(5, 7, 8, 9, topic_id=None)
    grown = [replace_topic(one, "b") for one in (unnamed[0], gone(unnamed[1].at, "a"), *unnamed[2:])]
    named = [replace_topic(one, "c") for one in (*minutes(5), gone(FIRST + 1, "a"), *minutes(5, 7, 8)[1:])]
    rows = sorted([*fell, *grown, *named], key=lambda one: one.at)
    for held in [rows] if files == "one" else [[one] for one in rows]:
        tables.append_log_ends(rows_of(held))
    asked: list[Position] = [("a", 0, 2), ("a", 0, 6), ("b", 0, 6), ("b", 0, 8), ("c", 0, 6)]
    assert crossed(tables, asked) == [
        crossing(None, (2, 3)),
        crossing((2, 3), (3, 9)),
        crossing(None, (2, 8)),
        crossing((2, 8), (3, 9)),
        crossing((0, 5), (1, 7)),  # its id says that it is the same
    ]
    assert crossed(tables, asked[:3], FIRST + MINUTE_MS - 1) == [
        crossing(None, (0, 5)),
        crossing((0, 5), None),
        crossing((0, 5), None),
    ]


def replace_topic(one: Sample, topic: str) -> Sample:
    return one._replace(topic=topic)


def test_positions_of_which_nothing_is_known_stay_in_their_places(tables: Tables) -> None:
    tables.append_log_ends(rows_of(minutes(5)))
    nothing = crossing(None, None)
    asked: list[Position] = [
        ("b", 0, 1),
        ("a", 1, 1),
        (None, 0, 1),
        ("a", 0, 5),
        ("a", None, 1),
        ("a", 0, None),
    ]
    assert crossed(tables, asked) == [nothing, nothing, nothing, crossing((0, 5), None), nothing, nothing]
    assert crossed(tables, []) == []
    assert crossed(tables, [(None, None, None)]) == [nothing]


def test_before_the_first_sample_nothing_is_known(tables: Tables) -> None:
    assert crossed(tables, [("a", 0, 1)]) == [crossing(None, None)]
    assert newest_ends(SampleFiles(tables.delta("log_ends")), None, as_of=NOW) == NEWEST_ENDS.empty_table()
    assert (
        topics_over_time(SampleFiles(tables.delta("log_ends")), None, as_of=NOW)
        == TOPICS_OVER_TIME.empty_table()
    )
    tables.append_log_ends(rows_of(minutes(5)))
    assert crossed(tables, [("a", 0, 1)], FIRST - 1) == [crossing(None, None)]
    assert (
        newest_ends(SampleFiles(tables.delta("log_ends")), None, as_of=FIRST - 1) == NEWEST_ENDS.empty_table()
    )


# --- however they are stored -----------------------------------------------------------------------------


def history(seed: int) -> list[list[Sample]]:
    """Make the samples of three days and a half, round by round."""
    chance = random.Random(seed)
    partitions = [(topic, number) for topic in TOPICS for number in range(chance.randint(1, 3))]
    ends = {key: chance.randint(0, 100) for key in partitions}
    ids = {topic: chance.choice([None, f"{topic}-0"]) for topic in TOPICS}
    minutes = sorted(chance.sample(range(FIRST, NOW, MINUTE_MS), 60))  # of each minute one is kept
    moments = [minute + chance.randrange(4) * MINUTE_MS // 4 for minute in minutes]
    rounds = []
    for number, at in enumerate(moments):
        sampled = []
        for topic in TOPICS:
            kind = chance.random()
            if kind < 0.03:
                ids[topic] = f"{topic}-{number}"  # recreated
                sampled.append(of_topic(at, topic, ids[topic]))
                ends |= {key: chance.randint(0, 5) for key in partitions if key[0] == topic}
            elif kind < 0.05:
                sampled.append(gone(at, topic))
                continue
            elif kind < 0.2:
                continue
            for key in partitions:
                if key[0] == topic:
                    step = chance.choice([0, 0, 0, 1, 7, 40, -3])
                    ends[key] = max(0, ends[key] + step)
                    silent = chance.random() < 0.05
                    known = None if chance.random() < 0.1 else ids[topic]
                    sampled.append(
                        Sample(at, *key, None if silent else ends[key], known, None, "X" if silent else None)
                    )
        rounds.append(sampled)
    return rounds


def store_by_rounds(tables: Tables, rounds: list[list[Sample]]) -> None:
    for sampled in rounds:
        tables.append_log_ends(rows_of(sampled))


def store_compacted(tables: Tables, rounds: list[list[Sample]]) -> None:
    for number, sampled in enumerate(rounds):
        tables.append_log_ends(rows_of(sampled))
        if number % 20 == 19:
            compact(tables, "log_ends", lambda: True)


def store_sorted(tables: Tables, rounds: list[list[Sample]]) -> None:
    """Let days that have ended be sorted."""
    append(tables, {("g", "t", 0): offset()}, now=FIRST, records_at=NOW)
    heartbeat(tables, NOW)
    store_by_rounds(tables, rounds)
    keep = replace(KEPT, keep_unused_files_ms=DAY_MS)
    reports = {one.table: one for one in maintain(tables, keep, clock=lambda: NOW)}
    assert reports["log_ends"].files_after < 30 < reports["log_ends"].files_before


STORES = [store_by_rounds, store_compacted, store_sorted]


@pytest.mark.parametrize("small", [pytest.param(500_000, marks=pytest.mark.more), 50])
@pytest.mark.parametrize(
    "store", [*(pytest.param(store, marks=pytest.mark.more) for store in STORES[:-1]), STORES[-1]]
)
def test_what_is_read_equals_what_one_finds_by_looking_at_each_sample(
    tables: Tables,
    store: Callable[[Tables, list[list[Sample]]], None],
    small: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(samples, "SMALL_ROWS", small)  # 50: several files of sorted topics a day
    rounds = history(seed=STORES.index(store))
    store(tables, rounds)
    sampled = [one for one_round in rounds for one in one_round]
    chance = random.Random(1)
    positions: list[Position] = [
        (
            chance.choice([*TOPICS, *TOPICS, "unknown", None]),
            chance.choice([0, 0, 1, 2, None]),
            chance.choice([chance.randint(0, 300), chance.choice(sampled).end]),
        )
        for _ in range(150)
    ]
    table, held = tables.delta("log_ends"), HeldSamples()
    for as_of in (NOW, NOW + HOUR_MS, FIRST + DAY_MS, *chance.sample(range(FIRST, NOW), 4), sampled[70].at):
        expected = [expected_crossing(sampled, position, as_of) for position in positions]
        assert crossed(tables, positions, as_of) == expected
        for topics in (None, ["a\0", "b"], ["b"], ["t" * 249], []):
            found = newest_ends(SampleFiles(table, held), topics, as_of=as_of)
            assert found.schema == NEWEST_ENDS
            in_order = found.sort_by([("topic", "ascending"), ("partition", "ascending")]).to_pylist()
            assert in_order == expected_newest(sampled, topics, as_of)
            until = as_of + 3 * HOUR_MS
            between = ends_between(SampleFiles(table, held), topics, since=as_of, until=until)
            assert listed(between.to_pylist()) == listed(
                [*in_order, *expected_between(sampled, topics, as_of, until)]
            )
            exact = [one.at for one in sampled if as_of < one.at < until][::50]
            moments = np.unique([as_of, as_of + HOUR_MS + 7, *exact, until])
            few = ends_at(SampleFiles(table, held), topics, moments)
            assert set(listed(few.to_pylist())) <= set(listed(between.to_pylist()))
            for moment in moments.tolist():
                assert newest_among(few, moment) == newest_among(between, moment)
    seen = [one for one in sampled if one.partition is None and one.topic_id]
    assert sorted(
        map(
            tuple, (row.values() for row in topics_over_time(SampleFiles(table), None, as_of=NOW).to_pylist())
        )
    ) == sorted((one.topic, one.topic_id, from_ms(one.at), from_ms(one.at)) for one in seen)
    rows = pa.Table.from_pylist(table.to_pyarrow_table().to_pylist(), rows_of([]).schema)
    assert sorted(map(repr, rows.to_pylist())) == sorted(map(repr, rows_of(sampled).to_pylist()))


def test_topics_are_seen_from_the_first_to_the_last_row_of_an_id(tables: Tables) -> None:
    one = [of_topic(FIRST + n * DAY_MS, "a", "id-1") for n in range(3)]
    tables.append_log_ends(
        rows_of([*one, of_topic(FIRST + 3 * DAY_MS, "a", "id-2"), of_topic(FIRST, "b", "x")])
    )
    found = topics_over_time(SampleFiles(tables.delta("log_ends")), ["a"], as_of=NOW)
    assert found.schema == TOPICS_OVER_TIME
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        ("a", "id-1", from_ms(FIRST), from_ms(FIRST + 2 * DAY_MS)),
        ("a", "id-2", from_ms(FIRST + 3 * DAY_MS), from_ms(FIRST + 3 * DAY_MS)),
    ]
    before = topics_over_time(SampleFiles(tables.delta("log_ends")), ["a"], as_of=FIRST + DAY_MS)
    assert [tuple(row.values()) for row in before.to_pylist()] == [
        ("a", "id-1", from_ms(FIRST), from_ms(FIRST + DAY_MS))
    ]


# --- which version is read -----------------------------------------------------------------------------


def test_a_question_reads_one_version_and_the_next_one_the_newest(tables: Tables) -> None:
    first, second, third = minutes(5, 8, 12)
    append(tables, {("g", "a", 0): offset()})
    tables.append_log_ends(rows_of([first]))
    asked = positions_of([("a", 0, 6)])

    def ends(at: Snapshot) -> tuple[list[object], list[dict[str, object]]]:
        newest = at.newest_ends(["a"], as_of=third.at)["log_end"].to_pylist()
        return newest, at.offset_times(asked, as_of=third.at).to_pylist()

    def twice(at: Snapshot) -> list[object]:
        before = ends(at)
        tables.append_log_ends(rows_of([second]))
        join_all(tables)
        return [before, ends(at)]

    assert tables.ask(twice) == [([5], [crossing((0, 5), None)])] * 2
    assert tables.ask(ends) == ([8], [crossing((0, 5), (1, 8))])
    tables.append_log_ends(rows_of([third]))
    assert tables.ask(ends) == ([12], [crossing((0, 5), (1, 8))])


def join_all(tables: Tables) -> None:
    """Join the files of one day, as maintenance does."""
    files = pa.table(tables.delta("log_ends").get_add_actions(flatten=True)).to_pylist()
    samples.join_samples(tables, files[0]["partition.day"], files)


def test_files_that_went_after_they_were_listed_are_looked_for_in_the_newest_version(tables: Tables) -> None:
    append(tables, {("g", "a", 0): offset()})
    for one in minutes(5, 8, 12):
        tables.append_log_ends(rows_of([one]))
    asked = positions_of([("a", 0, 6)])
    listed = []

    def question(at: Snapshot) -> list[dict[str, object]]:
        assert at.samples is not None
        listed.append(len(at.samples.files))
        if len(listed) == 1:
            join_all(tables)
            for file in at.samples.files:
                Path(tables.root, "log_ends", file.path).unlink()  # as maintenance does later on
        return at.offset_times(asked, as_of=NOW).to_pylist()

    assert tables.ask(question) == [crossing((0, 5), (1, 8))]
    assert listed == [3, 1]


def test_small_files_are_held_a_bounded_number_of_rows_at_a_time(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = history(seed=4)
    store_by_rounds(tables, rounds)
    table = SampleFiles(tables.delta("log_ends"))
    expected = sorted(map(repr, rows_in(table)))
    for rows, whole in ((1, 2**20), (40, 2**20), (40, 0)):
        monkeypatch.setattr(log_ends, "_ROWS_TOGETHER", rows)
        monkeypatch.setattr(log_ends, "_WHOLE_BYTES", whole)  # 0: all are large
        assert sorted(map(repr, rows_in(table))) == expected
    monkeypatch.setattr(log_ends, "_WHOLE_BYTES", 2**20)
    most = max(len(sampled) for sampled in rounds)
    assert max(map(len, batches_of(table))) < 40 + most


def batches_of(table: SampleFiles) -> list[pa.RecordBatch]:
    return [*table.joined(table.files, ["sampled_at", "topic", "partition", "log_end"], topics=None)]


def rows_in(table: SampleFiles) -> list[dict[str, object]]:
    return [row for batch in batches_of(table) for row in batch.to_pylist()]


@pytest.mark.parametrize("whole", [2**20, 0])
def test_repeated_questions_are_answered_as_the_first_time(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, whole: int
) -> None:
    """Whether their rows were cached, were too many for it, or are of other topics than the last ones."""
    monkeypatch.setattr(log_ends, "_WHOLE_BYTES", whole)  # 0: all are large
    for at in (FIRST, FIRST + MINUTE_MS):
        tables.append_log_ends(rows_of([Sample(at, t, n, n) for t in ("a", "b", "c") for n in range(1_000)]))
    newest = tables.delta("log_ends")
    for together in (500_000, 1_500):  # the second holds one file of a topic, not two
        monkeypatch.setattr(log_ends, "_ROWS_TOGETHER", together)
        table = SampleFiles(newest)
        for topics in (["a"], ["a"], ["b"], ["a", "c"], ["a"], ["b"], ["b"]):
            found = [*table.joined(table.files, ["topic", "partition", "sampled_at"], topics=topics)]
            expected = len(table.files) * 1_000 * len(topics)
            assert {row for batch in found for row in batch["topic"].to_pylist()} == set(topics)
            assert sum(map(len, found)) == expected


def test_held_samples_are_those_of_the_version_that_is_read(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds are added, joined and held again; rows of files that are gone make room for others."""
    monkeypatch.setattr(log_ends, "_HELD_ROWS", 12_000)
    held, older = HeldSamples(), SampleFiles(tables.delta("log_ends"))
    for number in range(6):
        at = FIRST + number * MINUTE_MS
        tables.append_log_ends(rows_of([Sample(at, t, n, n) for t in ("a", "b") for n in range(1_000)]))
        if number == 3:
            join_all(tables)
        newer = SampleFiles(tables.delta("log_ends"), held)
        assert samples_of(newer, ["a", "b"]) == 2_000 * (number + 1)
        assert samples_of(newer, ["b"]) == 1_000 * (number + 1)
        assert samples_of(older, ["a", "b"]) == 2_000 * number, "another version, with what it holds itself"
        older = SampleFiles(tables.delta("log_ends"), held)
    join_all(tables)
    newest = SampleFiles(tables.delta("log_ends"), held)
    assert samples_of(newest, ["b"]) == 6_000
    assert samples_of(newest, ["a", "b"]) == 12_000
    monkeypatch.setattr(SampleFiles, "batches", None)
    assert samples_of(newest, ["a", "b"]) == 12_000
    monkeypatch.undo()
    tables.append_log_ends(rows_of([Sample(NOW, "a", n, n) for n in range(1_000)]))
    newest = SampleFiles(tables.delta("log_ends"), held)
    assert samples_of(newest, ["a", "b"]) == 13_000
    monkeypatch.setattr(log_ends, "_HELD_BYTES", 0)
    monkeypatch.setattr(SampleFiles, "batches", None)
    with pytest.raises(TypeError):  # they were too many
        samples_of(newest, ["a", "b"])


def test_held_samples_are_not_read_again(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_ends, "_HELD_BYTES", 0)  # no other cache
    tables.append_log_ends(rows_of([Sample(FIRST, t, n, n) for t in ("a", "b") for n in range(1_000)]))
    held = HeldSamples()
    assert samples_of(SampleFiles(tables.delta("log_ends"), held), ["a", "b"]) == 2_000
    again = SampleFiles(tables.delta("log_ends"), held)
    monkeypatch.setattr(SampleFiles, "batches", None)
    assert samples_of(again, ["b"]) == 1_000
    assert samples_of(again, ["a", "b"]) == 2_000
    with pytest.raises(TypeError):
        samples_of(again, ["c"])


def samples_of(table: SampleFiles, topics: list[str]) -> int:
    """Count the samples of topics (sorted)."""
    found = [batch["topic"].to_pylist() for batch in table.joined(table.files, ["topic"], topics=topics)]
    return sum(topic in topics for topics_of_batch in found for topic in topics_of_batch)


def test_files_without_a_topic_are_not_opened(tables: Tables) -> None:
    for topic in ("a", "m", "z"):
        tables.append_log_ends(rows_of([Sample(FIRST, topic, 0, 5)]))
    table = SampleFiles(tables.delta("log_ends"))
    assert [len(table.between(None, NOW, topics)) for topics in (None, ["m"], ["b", "y"], [])] == [3, 1, 0, 0]


# --- maintenance -----------------------------------------------------------------------------------------


def test_a_finished_day_is_sorted_once_and_days_leave_as_a_whole(tables: Tables) -> None:
    rounds = history(seed=7)
    store_sorted(tables, rounds)
    files = tables.delta("log_ends").file_uris()
    maintain(tables, KEPT, clock=lambda: NOW)
    assert tables.delta("log_ends").file_uris() == files
    days = {one.at - one.at % DAY_MS for sampled in rounds for one in sampled}
    kept = replace(KEPT, keep_log_ends_ms=2 * DAY_MS)
    report = {one.table: one for one in maintain(tables, kept, clock=lambda: NOW)}["log_ends"]
    left = {day for day in days if day >= NOW - NOW % DAY_MS - 2 * DAY_MS}
    assert report.rows_dropped == sum(one.at < min(left) for sampled in rounds for one in sampled)
    held = tables.delta("log_ends").to_pyarrow_table()["day"].to_pylist()
    assert set(held) == {from_ms(day).date() for day in left} < {from_ms(day).date() for day in days}


def test_a_row_too_few_and_the_files_stay(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    store_by_rounds(tables, history(seed=1)[:9])
    before = tables.delta("log_ends").file_uris()
    monkeypatch.setattr(samples, "_ranges", lambda counts: iter([sorted(counts)[1:]]))
    with pytest.raises(samples.SamplesLostError, match=r"expected \d+ rows, found \d+\. The files stay"):
        compact(tables, "log_ends", lambda: True)
    assert tables.delta("log_ends").file_uris() == before


# --- beside the other tables -----------------------------------------------------------------------------


def test_of_tables_of_an_older_release_no_ends_are_known_until_the_next_start(tables: Tables) -> None:
    live: Batch = {("g", "t", 0): offset()}
    append(tables, live)
    shutil.rmtree(f"{tables.root}/log_ends")
    asked = positions_of([("t", 0, 1)])
    assert tables.ask(lambda at: at.newest_ends(None, as_of=NOW)) == NEWEST_ENDS.empty_table()
    assert tables.ask(lambda at: at.offset_times(asked, as_of=NOW)).to_pylist() == [crossing(None, None)]
    assert tables.ask(lambda at: at.topics_over_time(None, as_of=NOW)) == TOPICS_OVER_TIME.empty_table()
    assert "log_ends" not in run_sql(tables, "SHOW TABLES").rows["table_name"].to_pylist()
    tables.create()
    tables.append_log_ends(rows_of([Sample(FIRST, "t", 0, 3)]))
    assert tables.ask(lambda at: len(at.newest_ends(["t"], as_of=NOW))) == 1
    assert run_sql(tables, "SELECT log_end FROM log_ends").rows["log_end"].to_pylist() == [3]


def test_what_is_committed_and_subscribed_to_is_known_folded_or_not(tables: Tables) -> None:
    def committed(after: int | None = None) -> set[tuple[object, ...]]:
        rows = tables.ask(lambda at: at.committed_partitions(after=after)).to_pylist()
        assert len({*map(repr, rows)}) == len(rows)
        return {tuple(row.values()) for row in rows}

    def subscribed(after: int | None = None) -> set[object]:
        return set(tables.ask(lambda at: at.subscribed_topics(after=after))["topic"].to_pylist())

    assert committed() == subscribed() == set()
    append(
        tables, {("g", "t", 0): offset(), ("h", "t", 0): offset(), "g": group(subscribed_topics=["t", "u"])}
    )
    assert (committed(), subscribed()) == ({("t", 0)}, {"t", "u"})
    tables.fold()
    first = append(
        tables, {("g", "t\0", 1): offset(), "h": group(subscribed_topics=["u", "v"]), "i": group()}
    )
    assert (committed(), subscribed()) == ({("t", 0), ("t\0", 1)}, {"t", "u", "v"})
    assert (committed(first.sequence - 1), subscribed(first.sequence - 1)) == ({("t\0", 1)}, {"u", "v"})
    assert committed(first.sequence) == subscribed(first.sequence) == set()
