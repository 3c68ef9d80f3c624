"""Clocks that are wrong by far for a while: nothing that is young is lost, and maintenance goes on."""

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from alert_tables import RETENTION, Lake
from deltalake import CommitProperties, Transaction, write_deltalake
from maintenance_rounds import KEPT, NOW, TODAY, round_at
from table_batches import Batch, append, group, heartbeat, live_on, offset

from streaming.common.times import DAY_MS, HOUR_MS, MINUTE_MS, from_ms, now_ms
from streaming.maintenance.compaction import SORTED_TRANSACTION
from streaming.maintenance.lease import LEASE_MS, LEASE_TRANSACTION, MaintenanceBusyError, maintenance_lease
from streaming.maintenance.trusted_time import moment_before
from streaming.model.schemas import CHANGES, QUARANTINE
from streaming.queries.lag import LagQueries
from streaming.tables.progress_rows import HISTORY_TRANSACTION, history_start, noted_day
from streaming.tables.tables import Tables

YEAR_MS = 365 * DAY_MS


def committed(number: int) -> Batch:
    return {("g", "orders", 0): offset(committed_offset=number)}


def days_ago(days: int) -> date:
    return TODAY - timedelta(days=days)


def a_week(tables: Tables) -> None:
    """Commit once a day, for the last time now; on the first day an offset was removed, too."""
    for number, days in enumerate(range(6, -1, -1)):
        removed: Batch = {} if number else {("gone", "orders", 0): None}
        live = committed(number - 1) | ({} if number else {("gone", "orders", 0): offset()})
        append(tables, committed(number) | removed, live=live, now=NOW - days * DAY_MS)
    tables.fold()


def answers(tables: Tables) -> list[Any]:
    """What was committed on each of the last days, and all changes."""
    then = [
        tables.read(["g"], as_of=NOW - days * DAY_MS).offsets["committed_offset"].to_pylist()
        for days in range(6)
    ]
    return [then, sorted(map(str, tables.read_changes().to_pylist()))]


def appended_by(tables: Tables, clock: int, number: int, record_time: int = NOW) -> None:
    """Append a batch as a job with another clock does: its record is as old as the brokers say."""
    append(tables, committed(number), live=committed(number - 1), now=clock, records_at=record_time)


# --- a clock that is ahead -------------------------------------------------------------------------------


@pytest.mark.more
def test_a_round_a_year_ahead_trims_no_history_and_the_next_one_works(tables: Tables) -> None:
    a_week(tables)
    before = answers(tables)
    for clock in (NOW, NOW + YEAR_MS, NOW + MINUTE_MS):
        reports = round_at(tables, clock)
        assert reports["changes"].rows_dropped == 0
    assert answers(tables) == before
    assert history_start(tables.delta("changes")) <= days_ago(5)


@pytest.mark.more
def test_heartbeats_and_batches_of_a_clock_that_is_ahead_are_no_evidence_for_it(tables: Tables) -> None:
    a_week(tables)
    before = answers(tables)[0]
    heartbeat(tables, NOW + YEAR_MS)
    appended_by(tables, NOW + YEAR_MS + 1, 7)
    tables.fold()
    round_at(tables, NOW + YEAR_MS + 2)
    append(tables, committed(8), live=committed(7), now=NOW + MINUTE_MS)
    tables.fold()
    round_at(tables, NOW + 2 * MINUTE_MS)
    assert answers(tables)[0] == before
    assert tables.read(as_of=NOW + MINUTE_MS).offsets["committed_offset"].to_pylist() == [8]
    assert len(tables.read_changes()) == 10


@pytest.mark.more
def test_what_a_clock_ahead_wrote_leaves_when_that_time_comes(tables: Tables) -> None:
    append(tables, committed(1), now=NOW)
    appended_by(tables, NOW + 20 * DAY_MS, 2)
    tables.fold()
    live_on(tables, NOW, NOW + 40 * DAY_MS)
    round_at(tables, NOW + 26 * DAY_MS)
    assert [row["day"] for row in tables.read_changes().to_pylist()] == [days_ago(-20)]
    round_at(tables, NOW + 28 * DAY_MS)
    assert tables.read_changes().num_rows == 0
    assert tables.read().offsets["committed_offset"].to_pylist() == [2]


@pytest.mark.more
def test_a_record_from_the_future_is_no_evidence_either(tables: Tables) -> None:
    a_week(tables)
    appended_by(tables, NOW, 7, record_time=NOW + 3 * YEAR_MS)
    tables.fold()
    before = answers(tables)
    round_at(tables, NOW + YEAR_MS)
    assert answers(tables) == before


@pytest.mark.more
def test_a_quiet_topic_is_trimmed_while_the_job_is_at_work(tables: Tables) -> None:
    a_week(tables)
    live_on(tables, NOW, NOW + 60 * DAY_MS)
    for days in (10, 40, 60):  # heartbeats leave as well
        round_at(tables, NOW + days * DAY_MS)
    assert history_start(tables.delta("changes")) >= days_ago(-60 + 7 + 1)


def test_quarantine_and_closed_alerts_outlive_a_round_a_year_ahead(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit("closed", at=lake.now - RETENTION + DAY_MS)
    lake.evaluate()
    lake.commit("closed")
    lake.pass_time(DAY_MS)
    lake.evaluate()
    [episode] = lake.episodes()
    assert episode.closed_at is not None
    row = {"source_timestamp": datetime.fromtimestamp(lake.now / 1_000, UTC), "sequence": 1}
    row["day"] = row["source_timestamp"].date()
    write_deltalake(lake.tables.delta("quarantine"), pa.Table.from_pylist([row], QUARANTINE), mode="append")
    reports = round_at(lake.tables, lake.now + YEAR_MS)
    assert reports["alerts"].rows_dropped == reports["quarantine"].rows_dropped == 0
    assert len(lake.episodes()) == len(lake.tables.read_quarantine()) == 1


def noted(tables: Tables, transaction: str, day: date) -> None:
    note = Transaction(transaction, (day - date(1970, 1, 1)).days)
    write_deltalake(
        tables.delta("changes"),
        CHANGES.empty_table(),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[note]),
    )


@pytest.mark.more
def test_days_noted_by_a_clock_a_year_ahead_do_not_stop_sorting_nor_trimming(tables: Tables) -> None:
    a_week(tables)
    for transaction in (HISTORY_TRANSACTION, SORTED_TRANSACTION):
        noted(tables, transaction, days_ago(-365))
    round_at(tables, NOW)
    changes = tables.delta("changes")
    assert history_start(changes) == days_ago(-1)  # nobody knows what is missing until then
    assert noted_day(changes, SORTED_TRANSACTION) == TODAY
    live_on(tables, NOW, NOW + 20 * DAY_MS)
    round_at(tables, NOW + 20 * DAY_MS)
    assert history_start(tables.delta("changes")) == days_ago(-13)


# --- a clock that is behind ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "behind_ms",
    [
        YEAR_MS,
        *(pytest.param(days * DAY_MS, marks=pytest.mark.more) for days in (100, 20)),
        5 * DAY_MS,
    ],
    ids=str,
)
def test_what_a_clock_that_was_behind_wrote_stays_as_long_as_what_was_written_beside_it(
    tables: Tables, behind_ms: int
) -> None:
    a_week(tables)
    appended_by(tables, NOW - behind_ms, 7)
    tables.fold()
    before = tables.read_changes().num_rows
    round_at(tables, NOW - behind_ms)
    append(tables, committed(8), live=committed(7), now=NOW + 3 * DAY_MS)
    tables.fold()
    round_at(tables, NOW + 3 * DAY_MS)
    rows = tables.read_changes().to_pylist()
    assert [row["after"]["committed_offset"] for row in rows if row["group"] == "g"][-2:] == [7, 8]
    assert len(rows) == before + 1 - 2  # what was set on the two days that have left


def test_what_is_not_folded_is_not_dropped_however_old_its_day(tables: Tables) -> None:
    append(tables, committed(1), now=NOW - YEAR_MS)
    append(tables, {("h", "t", 0): offset()}, now=NOW)
    noted(tables, HISTORY_TRANSACTION, days_ago(7))
    round_at(tables, NOW)
    tables.fold()
    assert sorted(tables.read().offsets["group"].to_pylist()) == ["g", "h"]
    round_at(tables, NOW)
    assert tables.read_changes()["group"].to_pylist() == ["h"]


def test_a_table_that_a_clock_behind_wrote_from_its_start_keeps_what_is_young(tables: Tables) -> None:
    appended_by(tables, NOW - YEAR_MS, 1)
    gone: Batch = {("g", "orders", 0): None}
    append(tables, gone, live=committed(1), now=NOW - YEAR_MS + 1, records_at=NOW)
    tables.fold()
    heartbeat(tables, NOW + 1)
    round_at(tables, NOW + 1)
    assert tables.read_changes()["op"].to_pylist() == ["set", "remove"]


def test_an_alert_that_was_closed_by_a_clock_behind_stays(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit("closed", at=lake.now - RETENTION + DAY_MS)
    lake.evaluate()
    alerts = lake.tables.delta("alerts")
    moment = f"arrow_cast({(lake.now - YEAR_MS) * 1_000}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
    alerts.update(updates={"closed_at": moment})
    lake.pass_time(DAY_MS)
    assert round_at(lake.tables, lake.now)["alerts"].rows_dropped == 0
    assert len(lake.episodes()) == 1


# --- the lease -------------------------------------------------------------------------------------------


def test_a_lease_given_back_by_a_clock_a_year_ahead_is_free(tables: Tables) -> None:
    with maintenance_lease(tables, lambda: NOW + YEAR_MS):
        pass
    round_at(tables, NOW)


def test_a_lease_for_a_year_counts_as_dead_once_it_has_stood_unchanged_for_as_long_as_any(
    tables: Tables,
) -> None:
    killed = maintenance_lease(tables, lambda: NOW + YEAR_MS)
    killed.__enter__()
    with pytest.raises(MaintenanceBusyError, match="2026-11-21T13:00:00Z"):
        round_at(tables, NOW)
    with pytest.raises(MaintenanceBusyError):
        round_at(tables, NOW + LEASE_MS - 1)
    round_at(tables, NOW + LEASE_MS)
    with maintenance_lease(tables, lambda: NOW + LEASE_MS):  # and then all is as ever
        assert (tables.delta("quarantine").transaction_version(LEASE_TRANSACTION) or 0) < NOW + YEAR_MS


def test_a_lease_that_its_holder_renews_is_never_taken_by_a_clock_that_is_behind(tables: Tables) -> None:
    held = NOW
    with maintenance_lease(tables, lambda: held) as renew:
        for hours in range(4):
            held = NOW + hours * HOUR_MS
            renew()
            with pytest.raises(MaintenanceBusyError):
                round_at(tables, held - YEAR_MS)


def test_that_a_lease_was_met_by_a_clock_ahead_does_not_block_it_either(tables: Tables) -> None:
    killed = maintenance_lease(tables, lambda: NOW + 3 * YEAR_MS)
    killed.__enter__()
    for clock in (NOW + YEAR_MS, NOW):
        with pytest.raises(MaintenanceBusyError):
            round_at(tables, clock)
    round_at(tables, NOW + LEASE_MS)


def test_a_change_that_outlives_its_day_does_not_say_who_rewound_later(tables: Tables) -> None:
    """A batch begins before midnight, and is committed after a heartbeat of the next day: a question about
    this heartbeat still needs its rows, when all others of the day before are dropped. They leave with
    the next day, and before its rows."""
    midnight = NOW - 12 * HOUR_MS
    live: Batch = {}

    def change(at: int, place: int, *, name: str = "", committed_offset: int | None = None) -> None:
        times = {"source_offset": place, "source_timestamp": at, "source_partition": 0}
        batch: Batch = {}
        if name:
            batch["g"] = group(members=[{"member_id": name, "client_id": name, "client_host": "/h"}], **times)
        if committed_offset is not None:
            batch["g", "t", 0] = offset(committed_offset=committed_offset, commit_timestamp=at, **times)
        append(tables, batch, live=live, now=at)
        live.update(batch)

    def who() -> list[Any]:
        rows = LagQueries(tables).rewinds(["g"], since=from_ms(midnight + DAY_MS)).rows.to_pylist()
        return [[member["client_id"] for member in row["members"] or []] for row in rows]

    change(midnight - 20 * HOUR_MS, 1, name="first", committed_offset=10)
    heartbeat(tables, midnight + 3_000)
    change(midnight - 2_000, 2, name="second")
    change(midnight + 12 * HOUR_MS, 3, name="third")
    rewound_at = midnight + DAY_MS + 10 * HOUR_MS
    change(rewound_at, 4, committed_offset=5)
    heartbeat(tables, rewound_at + 2 * MINUTE_MS)
    assert who() == [["third"]]
    keep = replace(KEPT, history_ms=2 * DAY_MS)
    for day, left in ((2, {2, 3}), (3, set[int]())):
        at = midnight + day * DAY_MS + 12 * HOUR_MS
        for hours in range(-24, 1, 6):
            heartbeat(tables, at + hours * HOUR_MS)
        append(tables, committed(day), now=at)
        tables.fold()
        round_at(tables, at, keep)
        rows = tables.read_changes().to_pylist()
        assert {row["sequence"] for row in rows if row["kind"] == "group"} == left
        assert who() == ([["third"]] if left else [[]])  # not known


# --- files -----------------------------------------------------------------------------------------------

AN_HOUR = replace(KEPT, keep_unused_files_ms=HOUR_MS)


@pytest.fixture
def young(tables: Tables) -> tuple[Tables, Callable[[int], list[str]]]:
    """Tables whose last hours by the clock of this machine are written with heartbeats that end some time
    ago, and with a file that was written at that time and is not committed yet."""

    def files_after_round(ended_ago: int) -> list[str]:
        now = now_ms()
        append(tables, committed(1), now=now - ended_ago - 3 * HOUR_MS)
        for minutes in range(180, -1, -10):
            heartbeat(tables, now - ended_ago - minutes * MINUTE_MS)
        folder = Path(tables.root) / "changes" / f"day={date(2026, 1, 1)}"
        folder.mkdir()
        for name, age in (("new", 5 * MINUTE_MS), ("old", 3 * HOUR_MS)):
            path = folder / f"{name}.parquet"
            path.write_bytes(b"being written")
            os.utime(path, ns=((now - ended_ago - age) * 1_000_000,) * 2)
        round_at(tables, now, AN_HOUR)
        return sorted(path.stem for path in folder.iterdir())

    return tables, files_after_round


def test_a_file_being_written_when_the_clock_jumps_a_year_ahead_is_not_deleted(
    young: tuple[Tables, Callable[[int], list[str]]],
) -> None:
    _, files_after_round = young
    assert files_after_round(YEAR_MS) == ["new"]


def test_a_file_of_a_suspended_job_is_not_deleted_if_files_are_kept_for_less_than_an_hour(
    tables: Tables,
) -> None:
    """The job goes on by a clock that stood still, and commits the file."""
    now = now_ms()
    suspended_at = now - 58 * MINUTE_MS
    append(tables, committed(1), now=now - 3 * HOUR_MS)
    for ago in (2 * HOUR_MS, HOUR_MS, *range(5 * MINUTE_MS, -1, -MINUTE_MS)):
        heartbeat(tables, suspended_at - ago)
    path = Path(tables.root) / "changes" / f"day={date(2026, 1, 1)}" / "new.parquet"
    path.parent.mkdir()
    path.write_bytes(b"being written")
    os.utime(path, ns=((suspended_at - 5 * MINUTE_MS) * 1_000_000,) * 2)
    round_at(tables, now, replace(KEPT, keep_unused_files_ms=MINUTE_MS))
    assert path.exists()


@pytest.mark.more
def test_a_file_is_deleted_after_its_time_by_a_clock_that_runs(
    young: tuple[Tables, Callable[[int], list[str]]],
) -> None:
    _, files_after_round = young
    assert files_after_round(0) == ["new"]


@pytest.mark.parametrize(
    ("signs", "expected"),
    [
        ([100, 90, 80, 70, 60, 50, 40, 30], 40),  # at work all the time
        ([99, 97, 82, 81, 70, 60, 50, 35], 40),
        ([100, -1_000, -1_010, -1_020, -1_040], -1_030),  # a jump counts for half
        ([100, 90, -1_000, -1_010, -1_020], -1_020),
        ([100, -1_000, -9_000], -1_030),  # at work now and then
        ([], None),
        ([100, 90, 80], None),
    ],
)
def test_how_far_back_signs_of_life_make_up_a_duration(signs: list[int], expected: int | None) -> None:
    assert moment_before(signs, 100, 60) == expected
