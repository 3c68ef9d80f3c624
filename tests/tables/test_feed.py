"""Past moments: what the tables say of them equals a replay of what had been written by then."""

from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from new_tables import new_tables
from table_batches import (
    BATCHES,
    Batch,
    append,
    as_read,
    completed,
    group,
    heartbeat,
    in_one_partition,
    live_in,
    offset,
    replay,
)

from streaming.common.times import MINUTE_MS, to_ms
from streaming.model.progress import PartitionEnds, PartitionProgress, Progress
from streaming.model.schemas import CHANGES, PAUSES
from streaming.tables.progress_rows import (
    GAP_MS,
    OBSERVED_EVERY_MS,
    Gap,
    HistoryGoneError,
    is_observation_due,
)
from streaming.tables.tables import Tables

T0 = 1_700_000_000_000
HOUR = 3_600_000


class Step(NamedTuple):
    """A batch (None: a heartbeat), how much later than the one before, and whether a fold follows."""

    batch: Batch | None
    later_ms: int
    folds: bool


STEPS = st.builds(
    Step,
    st.one_of(BATCHES, BATCHES, st.none()),
    st.sampled_from([0, 1, 500, 30_000, 2 * HOUR, 60 * HOUR, -1, -3 * HOUR]),  # clocks are set back too
    st.booleans(),
)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, min_size=1, max_size=7), moments=st.lists(st.integers(-10, 10), max_size=3))
def test_any_moment_equals_a_replay_up_to_it(
    steps: list[Step], moments: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    tables = new_tables(tmp_path_factory.mktemp("tables"))
    now, batches, written = T0, [], []
    for step in steps:
        now += step.later_ms
        if step.batch is None:
            heartbeat(tables, now)
        else:
            batch = in_one_partition(step.batch)
            append(tables, batch, live=replay(batches), now=now)
            batches.append(batch)
        written.append((now, len(batches)))
        if step.folds:
            tables.fold()
    times = [time + apart * 100 for time, _ in written for apart in (0, *moments)]
    for moment in times:
        if all(time > moment for time, _ in written):
            with pytest.raises(HistoryGoneError):
                tables.read(as_of=moment)
            continue
        snapshot = tables.read(as_of=moment)
        newest_time, newest = written[-1]
        known = [count for time, count in written if time <= moment]
        expected = newest if newest_time <= moment else max(known)
        assert snapshot.progress.sequence == expected
        assert live_in(snapshot) == completed(replay(batches[:expected]))


LIVE: Batch = {("g", "t", 0): offset(committed_offset=1), "g": group(), ("h", "t", 0): offset()}


def test_a_moment_between_batches_is_that_of_the_batch_before(tables: Tables) -> None:
    append(tables, LIVE, now=T0)
    append(tables, {("g", "t", 0): offset(committed_offset=2)}, live=LIVE, now=T0 + 10_000)
    tables.fold()
    before = tables.read(["g"], as_of=T0 + 9_999)
    assert before.offsets["committed_offset"].to_pylist() == [1]
    assert (before.progress.sequence, before.progress.batch_time) == (1, T0)
    assert tables.read(["g"], as_of=T0 + 10_000).offsets["committed_offset"].to_pylist() == [2]


def test_a_batch_written_after_the_clock_was_set_back_counts_as_before_the_moment(tables: Tables) -> None:
    append(tables, LIVE, now=T0)
    append(tables, {"g": group(state="Empty")}, live=LIVE, now=T0 - 3 * HOUR)
    append(tables, {"g": None}, live=LIVE, now=T0 + 1)
    assert tables.read(as_of=T0).progress.sequence == 2
    assert tables.read(as_of=T0 - HOUR).progress.sequence == 2
    assert tables.read(["g"], as_of=T0).groups["state"].to_pylist() == ["Empty"]


def test_a_moment_knows_how_far_the_source_had_come(tables: Tables) -> None:
    first = Progress(topic="t").with_positions({0: 4, 1: 9}).with_ends({0: PartitionEnds(7, 8)}, T0)
    append(tables, LIVE, now=T0, topic="t", partitions=first.partitions)
    append(tables, {}, now=T0 + 5, partitions=first.with_positions({0: 7}).partitions)
    then = tables.read(as_of=T0 + 4).progress
    assert (then.topic, then.batch_id, then.heartbeat) == ("t", 0, T0)
    assert then.partitions == {
        0: PartitionProgress(position=4, last_stable_offset=7, high_watermark=8, open_transaction_since=T0),
        1: PartitionProgress(position=9),
    }
    assert tables.read(as_of=T0 + 5).progress.partitions[0].loaded


def test_a_moment_before_the_first_heartbeat_is_refused(tables: Tables) -> None:
    append(tables, LIVE, now=T0)
    heartbeat(tables, T0 + HOUR)
    with pytest.raises(
        HistoryGoneError, match=r"history starts at 2023-11-14T22:13:20\.000Z, because the tables are no"
    ):
        tables.read(as_of=T0 - 1)


def gap(tables: Tables, moment: int) -> Gap | None:
    return tables.ask(lambda at: at.gap, as_of=moment)


def test_a_moment_without_signs_of_life_around_it_says_so(tables: Tables) -> None:
    append(tables, LIVE, now=T0)
    heartbeat(tables, T0 + GAP_MS)
    heartbeat(tables, T0 + HOUR)
    append(tables, {}, now=T0 + 9 * HOUR)
    silence = Gap(T0 + HOUR, T0 + 9 * HOUR)
    assert gap(tables, T0 + 1) is None
    assert gap(tables, T0 + GAP_MS) == Gap(T0 + GAP_MS, T0 + HOUR)
    assert gap(tables, T0 + HOUR + 1) == silence
    assert gap(tables, T0 + 9 * HOUR - 1) == silence
    assert gap(tables, T0 + 9 * HOUR) is None
    assert gap(tables, T0 + 9 * HOUR + GAP_MS + 1) == Gap(T0 + 9 * HOUR, None)
    assert str(silence) == "not observed from 2023-11-14T23:13:20.000Z to 2023-11-15T07:13:20.000Z"


def test_moments_outlive_a_cleaned_up_log_and_compaction(tables: Tables) -> None:
    DeltaTable(f"{tables.root}/changes").alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 0 days"}
    )
    live: Batch = {}
    for number in range(4):
        batch: Batch = {("g", "t", 0): offset(committed_offset=number)}
        progress = append(tables, batch, live=live, now=T0 + number)
        live = batch
    changes = DeltaTable(f"{tables.root}/changes")
    changes.optimize.compact()
    changes.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    tables.append_changes(CHANGES.empty_table(), progress, is_batch=False, is_observation=False)
    changes = DeltaTable(f"{tables.root}/changes")
    changes.create_checkpoint()
    changes.cleanup_metadata()
    numbers = [tables.read(as_of=T0 + number).offsets["committed_offset"].to_pylist() for number in range(4)]
    assert numbers == [[0], [1], [2], [3]]


def test_a_moment_before_the_history_that_is_kept_is_refused(tables: Tables) -> None:
    live: Batch = {}
    for number in range(3):
        batch: Batch = {("g", "t", 0): offset(committed_offset=number)}
        append(tables, batch, live=live, now=T0 + number * HOUR)
        live = batch
    tables.fold()
    progress = tables.progress()
    DeltaTable(f"{tables.root}/changes").delete('"sequence" <= 1')
    tables.append_changes(CHANGES.empty_table(), progress, is_batch=False, is_observation=False)
    assert tables.read(as_of=T0 + HOUR).offsets["committed_offset"].to_pylist() == [1]
    with pytest.raises(
        HistoryGoneError, match=r"starts at 2023-11-14T23:13:20.000Z, because what is older was deleted"
    ):
        tables.read(as_of=T0 + HOUR - 1)


def test_a_question_is_asked_again_when_its_files_are_gone(tables: Tables) -> None:
    append(tables, LIVE, now=T0)
    tables.fold()
    asked = []

    def question(at: Any) -> Any:
        asked.append(at)
        at.offsets()  # opens the table
        if len(asked) == 1:  # as if maintenance ran between opening and reading
            for name in ("offsets", "groups"):
                folded = DeltaTable(f"{tables.root}/{name}")
                folded.optimize.z_order(["group"])
                folded.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        return at.offsets()

    assert len(tables.ask(question)) == 2
    assert len(asked) == 2


def test_rows_of_progress_are_no_changes(tables: Tables) -> None:
    heartbeat(tables, T0)
    assert len(tables.read_changes()) == 0
    append(tables, {"g": group()}, now=T0)
    heartbeat(tables, T0 + 1)
    assert len(tables.read_changes()) == 1
    assert tables.unfolded_rows() == 1
    assert tables.fold() == 1
    assert as_read(tables) == completed({"g": group()})


def test_heartbeats_leave_a_row_once_a_minute_and_when_a_partition_is_loaded() -> None:
    observed = Progress(heartbeat=T0).with_positions({0: 0})
    assert is_observation_due(observed, None)

    def due(after_ms: int, progress: Progress = observed) -> bool:
        return is_observation_due(Progress(heartbeat=T0 + after_ms, partitions=progress.partitions), observed)

    assert [due(after) for after in (0, 10_000, OBSERVED_EVERY_MS - 1)] == [False] * 3
    assert due(OBSERVED_EVERY_MS)
    assert due(-1)  # the clock was set back
    assert due(10_000, observed.with_ends({0: PartitionEnds(0, 0)}, T0))


# --- pauses ----------------------------------------------------------------------------------------------


def test_commits_after_pauses_and_first_commits_are_read(tables: Tables) -> None:
    key, other, live = ("g\0", "t", 0), ("other", "t", 0), Batch()
    for number, minute in enumerate([0, 1, 15, 24, 60]):
        at = T0 + minute * MINUTE_MS
        batch: Batch = {key: offset(committed_offset=number, commit_timestamp=at)}
        if minute in (0, 60):
            batch[other] = offset(committed_offset=7, commit_timestamp=at)
        append(tables, batch, live=live, now=at)
        live |= batch

    def pauses(groups: list[str] | None, since: int) -> list[dict[str, Any]]:
        rows = tables.ask(lambda at: at.pauses(groups, since=since, longer_than_ms=10 * MINUTE_MS))
        assert rows.schema == PAUSES
        return sorted(rows.to_pylist(), key=lambda row: (row["group"], row["committed_at"]))

    found = pauses(["g\0"], 0)
    assert [to_ms(row["committed_at"]) - T0 for row in found] == [0, 15 * MINUTE_MS, 60 * MINUTE_MS]
    assert [row["before_at"] and to_ms(row["before_at"]) - T0 for row in found] == [
        None,
        MINUTE_MS,
        24 * MINUTE_MS,
    ]
    assert [row["offset_before"] for row in found] == [None, 1, 3]
    assert pauses(["g\0"], T0 + 20 * MINUTE_MS) == found[2:]
    assert [row["group"] for row in pauses(None, 0)] == ["g\0"] * 3 + ["other"] * 2
    assert pauses(["nobody"], 0) == []
