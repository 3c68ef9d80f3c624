"""Maintenance of real Delta tables in a folder: answers stay the same, and what is old or small goes."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from alert_tables import RETENTION, Lake
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from kafka_clients import wait_until
from maintenance_rounds import KEPT, NOW, TODAY, round_at
from storage_faults import no_file_larger_than
from table_batches import QUERY, Batch, Row, append, group, heartbeat, live_in, live_on, offset

from streaming.alerts.rules import UNKNOWN_RECORD_VERSION
from streaming.cli.main import cli
from streaming.common.times import DAY_MS, HOUR_MS, day_of, from_ms, iso, now_ms, start_of
from streaming.job.maintenance_thread import Maintainer
from streaming.maintenance.compaction import compact
from streaming.maintenance.lease import LEASE_MS, MaintenanceBusyError, maintenance_lease
from streaming.maintenance.maintenance import MaintenanceError, shorten_log
from streaming.maintenance.unused_files import delete_unused_files
from streaming.model.errors import OffsetlakeError
from streaming.model.progress import Progress
from streaming.model.schemas import QUARANTINE_IN_BATCH
from streaming.model.totals import Position, Totals, UnknownRecords
from streaming.queries.lag import LagQueries
from streaming.settings.reading import read_settings
from streaming.tables.progress_rows import HistoryGoneError, history_start
from streaming.tables.rows import quarantine_rows
from streaming.tables.tables import Tables


@pytest.fixture
def forgetful(tables: Tables) -> Tables:
    """Tables whose log entries may go as soon as a checkpoint replaces them."""
    for name in tables.existing():
        tables.delta(name).alter.set_table_properties({"delta.logRetentionDuration": "interval 0 hours"})
    return tables


# --- writing as the job does -----------------------------------------------------------------------------


def batch(*changes: Batch) -> Batch:
    return {key: value for change in changes for key, value in change.items()}


def set_offset(group: str, committed_offset: int) -> Batch:
    return {(group, "orders", 0): offset(committed_offset=committed_offset)}


def remove_offset(group: str) -> Batch:
    return {(group, "orders", 0): None}


def quarantine(tables: Tables, batch_id: int, *, at: int = NOW) -> None:
    row = {"key": b"\0", "error_kind": "malformed", "reason": "cut short"}
    row |= {"source_offset": batch_id, "source_timestamp": at}
    packed = pa.Table.from_pylist([{**row, "source_partition": 0}], QUARANTINE_IN_BATCH)
    rows, _ = quarantine_rows(packed, sequence=batch_id, batch_time=at)
    tables.append_quarantine(rows, Progress(query_id=QUERY, batch_id=batch_id))


# --- asking ----------------------------------------------------------------------------------------------


def answers(tables: Tables) -> Row:
    """Everything that can be asked of the tables."""
    snapshot = tables.read()
    return {
        "offsets": snapshot.offsets.sort_by("group").to_pylist(),
        "groups": snapshot.groups.sort_by("group").to_pylist(),
        "of one group": tables.read(["g1"]).offsets.to_pylist(),
        "progress": tables.progress(),
        "snapshot's progress": snapshot.progress,
        "unfolded": tables.unfolded_rows(),
        "changes": tables.read_changes()
        .sort_by([("sequence", "ascending"), ("kind", "ascending")])
        .to_pylist(),
        "quarantine": tables.read_quarantine().to_pylist(),
        "a while ago": live_in(tables.read(as_of=NOW + 5_000)),
        "newest batch": tables.is_appended(QUERY, tables.progress().batch_id),
        "next batch": tables.is_appended(QUERY, tables.progress().batch_id + 1),
    }


def files_of(tables: Tables, name: str) -> list[str]:
    return sorted(
        str(path)
        for path in (Path(tables.root) / name).rglob("*.parquet")
        if path.parent.name != "_delta_log"
    )


def log_of(tables: Tables, name: str) -> list[str]:
    return sorted(path.name for path in (Path(tables.root) / name / "_delta_log").glob("*.json"))


def filled(tables: Tables) -> None:
    for number in range(12):
        changes = batch(set_offset(f"g{number % 5}", number), {f"g{number % 5}": group()})
        append(tables, changes, now=NOW + number * 1_000)
        quarantine(tables, number)
        if number % 5 == 4:
            tables.fold()
    append(tables, remove_offset("g4"), live=set_offset("g4", 9), now=NOW + 12_000)


# --- one round -------------------------------------------------------------------------------------------


def test_answers_are_the_same_after_compaction_checkpoint_vacuum_and_log_clean_up(forgetful: Tables) -> None:
    filled(forgetful)
    before, newest = answers(forgetful), forgetful.delta("changes").version()
    assert before["unfolded"] > 0
    compacted, cleaned = round_at(forgetful, NOW), round_at(forgetful, NOW)
    assert answers(forgetful) == before
    for name in ("changes", "quarantine"):
        assert compacted[name].files_before >= 12
        assert compacted[name].files_after == cleaned[name].files_after == 1
        assert len(files_of(forgetful, name)) == 1
        assert cleaned[name].unused_files_deleted == compacted[name].files_before
    assert log_of(forgetful, "changes")[0] > f"{newest:020}.json"


@pytest.mark.more
def test_the_job_goes_on_after_maintenance(tables: Tables) -> None:
    filled(tables)
    round_at(tables, NOW)
    append(tables, set_offset("g1", 100), now=NOW)
    tables.fold()
    assert tables.read(["g1"]).offsets["committed_offset"].to_pylist() == [100]
    assert tables.unfolded_rows() == 0


def test_replaced_files_are_deleted_only_when_they_are_old_enough(tables: Tables) -> None:
    filled(tables)
    reader = tables.delta("changes")
    compact(tables, "changes", lambda: True)
    assert len(files_of(tables, "changes")) == 14
    patient = replace(KEPT, keep_unused_files_ms=60_000)  # counts as an hour
    for minutes in range(5):
        heartbeat(tables, NOW - minutes * 60_000)
    assert delete_unused_files(tables, "changes", patient, NOW) == 0
    assert len(reader.to_pyarrow_table()) == 38
    assert delete_unused_files(tables, "changes", KEPT, NOW) == 13
    assert len(files_of(tables, "changes")) == 1 + 5


def test_files_of_a_writer_that_was_killed_are_deleted(tables: Tables) -> None:
    append(tables, set_offset("g", 1), now=NOW)
    (Path(tables.root) / "changes" / f"day={TODAY}" / "left-over.parquet").write_bytes(b"half")
    assert round_at(tables, NOW)["changes"].unused_files_deleted == 1
    assert len(files_of(tables, "changes")) == 1


def test_few_files_are_left_as_they_are(tables: Tables) -> None:
    for number in range(7):
        append(tables, set_offset("g", number), now=NOW)
    assert round_at(tables, NOW)["changes"].files_after == 7


def test_progress_outlives_the_log_of_a_job_that_stopped_long_ago(forgetful: Tables) -> None:
    """The last commit that says the progress would go with the others, were it not said anew."""
    filled(forgetful)
    progress, said_at = forgetful.progress(), log_of(forgetful, "changes")[-1]
    compact(forgetful, "changes", lambda: True)
    forgetful.delta("changes").create_checkpoint()
    shorten_log(forgetful, "changes")
    assert said_at not in log_of(forgetful, "changes")
    assert forgetful.progress() == progress
    assert forgetful.is_appended(QUERY, progress.batch_id)


def test_progress_is_said_anew_only_where_it_is_not_the_last_word(tables: Tables) -> None:
    tables.restate_progress()  # nothing to say yet
    assert tables.progress() == Progress()
    append(tables, set_offset("g", 1), now=NOW)
    version = tables.delta("changes").version()
    tables.restate_progress()
    assert tables.delta("changes").version() == version


@pytest.mark.more
def test_a_day_that_has_ended_is_sorted_by_group_once(tables: Tables) -> None:
    for name in ("b", "c", "a"):
        append(tables, set_offset(name, 1), now=NOW)
    append(tables, set_offset("d", 1), now=NOW + DAY_MS)
    files = tables.delta("changes").file_uris()
    round_at(tables, NOW + 12 * HOUR_MS)  # the day is not over for an hour
    assert tables.delta("changes").file_uris() == files
    round_at(tables, NOW + 14 * HOUR_MS)
    sorted_files = tables.delta("changes").file_uris()
    (ended,) = [file for file in sorted_files if f"day={TODAY}" in file]
    assert pq.read_table(ended, columns=["group"])["group"].drop_null().to_pylist() == ["a", "b", "c"]
    round_at(tables, NOW + 15 * HOUR_MS)
    assert tables.delta("changes").file_uris() == sorted_files
    round_at(tables, NOW + 50 * HOUR_MS)
    assert len(tables.delta("changes").file_uris()) == 2


@pytest.mark.more
def test_closed_alerts_leave_with_the_removed_offsets_and_open_ones_stay(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for name in ("open", "closed"):
        lake.commit(name, at=lake.now - RETENTION + DAY_MS)
    place = Position(0, 1)
    kind = UnknownRecords(record_type=2, value_version=9, count=1, first=place, last=place)
    lake.add_totals(Totals(unknown=(kind,)))
    lake.evaluate()
    lake.commit("closed")
    lake.pass_time(DAY_MS)
    lake.evaluate()
    closed_at = max(episode.closed_at or 0 for episode in lake.episodes())
    last_day = closed_at + KEPT.keep_removed_ms
    live_on(lake.tables, closed_at, last_day + DAY_MS)
    for now, dropped in ((last_day, 0), (last_day + 1, 1), (last_day + 2, 0)):
        assert round_at(lake.tables, now)["alerts"].rows_dropped == dropped
    left = [(e.finding.group or e.rule, e.is_open) for e in lake.episodes()]
    assert sorted(left) == [("open", True), (UNKNOWN_RECORD_VERSION.id, False)]
    assert lake.evaluate() == []  # what has been told of stays told


# --- history ---------------------------------------------------------------------------------------------


def kept(tables: Tables) -> list[tuple[date, str, str]]:
    return [(row["day"], row["op"], row["group"]) for row in tables.read_changes().to_pylist()]


def test_a_day_that_leaves_the_history_keeps_its_removed_offsets_until_theirs_has_passed(
    tables: Tables,
) -> None:
    changes = batch(set_offset("a", 1), remove_offset("b"), {"a": group()})
    append(tables, changes, live=set_offset("b", 2), now=NOW - 8 * DAY_MS)
    append(tables, set_offset("c", 1), now=NOW - 7 * DAY_MS)
    append(tables, set_offset("d", 1), now=NOW)
    tables.fold()
    live = answers(tables)["offsets"]
    ago = {days: (datetime(2026, 11, 21) - timedelta(days=days)).date() for days in (0, 7, 8)}

    assert round_at(tables, NOW)["changes"].rows_dropped == 3  # with the row that says how far the job was
    assert kept(tables) == [(ago[8], "remove", "b"), (ago[7], "set", "c"), (ago[0], "set", "d")]
    assert tables.read_changes()["before"][0].as_py()["committed_offset"] == 2
    assert history_start(tables.delta("changes")) == ago[7]

    assert round_at(tables, NOW + DAY_MS)["changes"].rows_dropped == 2
    assert kept(tables) == [(ago[8], "remove", "b"), (ago[0], "set", "d")]

    live_on(tables, NOW, NOW + 9 * DAY_MS)
    keep = replace(KEPT, keep_removed_ms=16 * DAY_MS)
    round_at(tables, NOW + 8 * DAY_MS, keep)
    assert kept(tables) == [(ago[8], "remove", "b")]
    round_at(tables, NOW + 9 * DAY_MS, keep)
    assert kept(tables) == []
    assert tables.read().offsets.sort_by("group").to_pylist() == live


def test_a_batch_committed_after_rows_of_the_next_day_leaves_with_its_own_day(tables: Tables) -> None:
    midnight = start_of(TODAY) - 8 * DAY_MS
    append(tables, set_offset("a", 1), now=midnight - HOUR_MS)
    heartbeat(tables, midnight + 1_000)
    append(tables, batch(set_offset("b", 1), remove_offset("c")), now=midnight - 1_000)
    append(tables, set_offset("d", 1), now=midnight + HOUR_MS)
    live_on(tables, midnight + 2 * HOUR_MS, NOW)
    tables.fold()
    day = day_of(midnight - 1_000)

    def of_that_day() -> list[str]:
        rows = tables.delta("changes").to_pyarrow_table()
        return [row["group"] for row in rows.to_pylist() if row["day"] == day]

    round_at(tables, NOW - DAY_MS)
    assert "b" in of_that_day(), "it is not known yet to be older than the rows of the next day"
    round_at(tables, NOW)
    assert of_that_day() == ["c"]
    assert history_start(tables.delta("changes")) == TODAY - timedelta(days=7)


def test_a_moment_before_the_history_is_refused_and_one_within_it_is_answered(tables: Tables) -> None:
    for days in (9, 8, 7, 6):
        append(tables, set_offset("a", days), live=set_offset("a", days + 1), now=NOW - days * DAY_MS)
    tables.fold()
    live_on(tables, NOW - 6 * DAY_MS, NOW)
    round_at(tables, NOW)
    with pytest.raises(HistoryGoneError):
        tables.read(as_of=NOW - 8 * DAY_MS)
    assert tables.read(as_of=NOW - 7 * DAY_MS).offsets["committed_offset"].to_pylist() == [7]


@pytest.mark.more
def test_a_moment_before_the_history_is_refused_even_if_nothing_has_changed_since(tables: Tables) -> None:
    start = now_ms()
    append(tables, set_offset("a", 1), now=start)
    live_on(tables, start, start + 20 * DAY_MS)
    tables.fold()
    assert len(tables.read(as_of=start + DAY_MS).offsets) == 1
    round_at(tables, start + 20 * DAY_MS)
    with pytest.raises(HistoryGoneError, match="Ask for a later time"):
        tables.read(as_of=start + DAY_MS)
    assert len(tables.read(as_of=start + 20 * DAY_MS).offsets) == 1


def test_history_says_from_when_on_it_has_every_step(tables: Tables) -> None:
    start = now_ms()
    append(tables, batch(set_offset("a", 1), set_offset("b", 1)), now=start)
    append(tables, remove_offset("a"), live=set_offset("a", 1), now=start + 1)
    append(tables, set_offset("b", 2), live=set_offset("b", 1), now=start + 20 * DAY_MS)
    tables.fold()
    queries = LagQueries(tables)
    assert queries.list_history("a").whole_since is None
    round_at(tables, start + 20 * DAY_MS)
    answer = queries.list_history("a")
    assert answer.rows["event"].to_pylist() == ["removed"]
    assert answer.whole_since is not None
    assert 0 <= start + 13 * DAY_MS - answer.whole_since < DAY_MS
    said = CliRunner().invoke(cli, ["history", "--group", "a", "--table-root", tables.root]).stderr
    assert f"history starts at {iso(answer.whole_since)}: before, only the removal of offsets is kept" in said
    since = from_ms(answer.whole_since)
    assert queries.list_history("b", since=since).whole_since is None
    assert queries.list_history("b", since=since - timedelta(milliseconds=1)).whole_since is not None


@pytest.mark.more
def test_a_day_is_rewritten_once(tables: Tables) -> None:
    append(tables, batch(set_offset("a", 1), remove_offset("b")), now=NOW - 8 * DAY_MS)
    tables.fold()
    files = tables.delta("changes").file_uris()
    round_at(tables, NOW)
    rewritten = tables.delta("changes").file_uris()
    round_at(tables, NOW)
    assert tables.delta("changes").file_uris() == rewritten != files


@pytest.mark.more
def test_a_day_with_changes_that_are_not_folded_waits_for_the_fold(tables: Tables) -> None:
    append(tables, set_offset("a", 1), now=NOW - 9 * DAY_MS)
    append(tables, set_offset("b", 1), now=NOW - 8 * DAY_MS)
    live_on(tables, NOW - 8 * DAY_MS, NOW + 20 * DAY_MS)
    round_at(tables, NOW + 20 * DAY_MS)
    assert len(kept(tables)) == 2
    tables.fold()
    round_at(tables, NOW + 20 * DAY_MS)
    assert kept(tables) == []
    assert sorted(tables.read().offsets["group"].to_pylist()) == ["a", "b"]


def test_quarantine_is_dropped_after_its_own_time(tables: Tables) -> None:
    quarantine(tables, 0, at=NOW - 31 * DAY_MS)
    quarantine(tables, 1, at=NOW - 30 * DAY_MS)
    live_on(tables, NOW - 30 * DAY_MS, NOW)
    assert round_at(tables, NOW)["quarantine"].rows_dropped == 1
    assert tables.read_quarantine()["source_offset"].to_pylist() == [1]


# --- beside others ---------------------------------------------------------------------------------------


def between(tables: Tables, monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], object]) -> None:
    """Let `act` commit once between the next opening of a table and what is committed on top of it."""
    opened, is_done = Tables.delta, threading.Event()

    def open_and_act(self: Tables, asked: str) -> DeltaTable:
        table = opened(self, asked)
        if asked == name and not is_done.is_set():
            is_done.set()
            act()
        return table

    monkeypatch.setattr(Tables, "delta", open_and_act)


def test_a_batch_is_appended_once_although_history_is_trimmed_meanwhile(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = append(tables, set_offset("a", 1), now=NOW - 8 * DAY_MS)
    rows = tables.read_changes()
    between(tables, monkeypatch, "changes", lambda: tables.delta("changes").delete("\"group\" = 'a'"))
    tables.append_changes(rows, replace(progress, batch_id=7, sequence=2), is_batch=True)
    assert tables.progress().batch_id == 7
    assert len(kept(tables)) == 1


def test_a_fold_is_done_once_although_its_table_is_rewritten_meanwhile(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        append(tables, set_offset(f"g{number}", number), now=NOW)
        tables.fold()
    append(tables, set_offset("g1", 100), now=NOW)
    between(tables, monkeypatch, "offsets", lambda: tables.delta("offsets").optimize.z_order(["group"]))
    assert tables.fold() == 1
    assert tables.read(["g1"]).offsets["committed_offset"].to_pylist() == [100]
    assert len(tables.delta("offsets").to_pyarrow_table()) == 5


@pytest.mark.parametrize("rewrite", ["compact", "z_order"])
def test_a_rewrite_is_refused_once_a_fold_has_replaced_its_files(tables: Tables, rewrite: str) -> None:
    for number in range(2):
        append(tables, set_offset("g", number), now=NOW)
        tables.fold()
    same_bucket = tables.delta("offsets").to_pyarrow_table().set_column(0, "group", pa.array(["other"]))
    write_deltalake(tables.delta("offsets"), same_bucket, mode="append")  # now there is something to join
    read_before = tables.delta("offsets")
    append(tables, set_offset("g", 7), now=NOW)
    assert tables.fold() == 1
    columns = [["group"]] if rewrite == "z_order" else []
    with pytest.raises(CommitFailedError):
        getattr(read_before.optimize, rewrite)(*columns)
    assert sorted(tables.delta("offsets").to_pyarrow_table()["group"].to_pylist()) == ["g", "other"]


def test_two_cannot_maintain_at_once(tables: Tables) -> None:
    filled(tables)
    with maintenance_lease(tables, lambda: NOW), pytest.raises(MaintenanceBusyError, match="13:00:00Z"):
        round_at(tables, NOW + 1)
    round_at(tables, NOW + 2)
    assert len(tables.read_changes()) == 25


def test_the_lease_of_a_killed_process_runs_out(tables: Tables) -> None:
    lease = maintenance_lease(tables, lambda: NOW)
    lease.__enter__()
    with pytest.raises(MaintenanceBusyError):
        round_at(tables, NOW + LEASE_MS - 1)
    round_at(tables, NOW + LEASE_MS)


def test_who_has_lost_the_lease_stops(tables: Tables) -> None:
    now = NOW
    with maintenance_lease(tables, lambda: now) as renew:
        now = NOW + 1
        renew()
        now = NOW + LEASE_MS // 2
        renew()
        with pytest.raises(MaintenanceBusyError):
            round_at(tables, NOW + LEASE_MS)
        now = NOW + 2 * LEASE_MS
        with maintenance_lease(tables, lambda: NOW + 2 * LEASE_MS), pytest.raises(MaintenanceBusyError):
            renew()


def test_two_compactions_double_every_row_which_is_why_there_is_a_lease(tables: Tables) -> None:
    """Once this fails, delta-rs has learned to tell them apart, and the lease may go."""
    for number in range(2):
        append(tables, set_offset("g", number), now=NOW)
    changes = [tables.delta("changes"), tables.delta("changes")]
    for table in changes:
        table.optimize.compact()
    assert len(tables.read_changes()) == 4


@pytest.mark.more
def test_nothing_fails_and_no_row_is_missing_while_all_happens_at_once(tables: Tables) -> None:
    """Each batch sets all groups to its number: a reader that sees two numbers saw half a batch."""
    groups, ended, failures = [f"g{number}" for number in range(20)], threading.Event(), list[BaseException]()
    append(tables, batch(*(set_offset(group, 0) for group in groups)), now=NOW)
    rounds = reads = 0

    def repeat(work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                while not ended.is_set():
                    work()
            except BaseException as error:
                failures.append(error)
                ended.set()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def do_round() -> None:
        nonlocal rounds
        round_at(tables, NOW, replace(KEPT, keep_unused_files_ms=60_000))
        rounds += 1

    def fold() -> None:
        tables.fold()

    def read() -> None:
        nonlocal reads
        newest = tables.progress().sequence
        offsets = tables.read().offsets
        assert sorted(offsets["group"].to_pylist()) == sorted(groups)
        assert len(set(offsets["committed_offset"].to_pylist())) == 1
        assert offsets["committed_offset"][0].as_py() >= newest - 1
        reads += 1

    threads = [repeat(work) for work in (fold, do_round, read)]
    appended = 1
    while not ended.is_set() and (
        appended < 16 or min(rounds, reads) < 2
    ):  # on a busy machine rounds take long
        append(tables, batch(*(set_offset(group, appended) for group in groups)), now=NOW)
        appended += 1
    ended.set()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    changes = tables.read_changes()
    assert len(changes) == appended * len(groups)
    assert len(tables.delta("changes").file_uris()) < appended


# --- in the job, and by hand -----------------------------------------------------------------------------


def maintainer(tables: Tables) -> Maintainer:
    quick = {"tables.maintain_every": "20ms", "tables.root": tables.root}
    return Maintainer(tables, read_settings(None, quick))


@pytest.mark.usefixtures("silent")
def test_the_job_compacts_on_schedule(tables: Tables) -> None:
    filled(tables)
    with maintainer(tables) as thread:
        while len(tables.delta("changes").file_uris()) > 1 and thread.is_alive():
            pass
    assert not thread.is_alive()


def test_a_round_that_fails_is_said_once_and_tried_again(tables: Tables, said: list[str]) -> None:
    lease = maintenance_lease(tables, now_ms)
    lease.__enter__()
    with maintainer(tables):
        wait_until(lambda: bool(said), "what is wrong")
        time.sleep(0.3)
        assert len(said) == 1
        lease.__exit__(None, None, None)
        wait_until(lambda: len(said) > 1, "the end of it")
    assert "another process is maintaining them" in said[0]
    assert said[1:] == ["maintenance of the tables works again"]


@pytest.mark.more
def test_a_step_that_fails_is_reported_and_keeps_no_other_from_its_work(tables: Tables) -> None:
    """Commits have room, compacted files have not."""
    filled(tables)
    with no_file_larger_than(8192), pytest.raises(MaintenanceError, match="Check free disk space"):
        round_at(tables, NOW)
    assert len(tables.delta("changes").file_uris()) == 13
    round_at(tables, NOW)
    assert len(tables.delta("changes").file_uris()) == 1


def test_maintain_prints_what_it_did(tables: Tables) -> None:
    filled(tables)
    before = {*Path(tables.root).rglob("*")}
    ran = CliRunner().invoke(cli, ["maintain", "--table-root", tables.root, "--output", "csv"])
    assert {path.stat().st_mode & 0o077 for path in {*Path(tables.root).rglob("*")} - before} == {0}
    assert ran.exit_code == 0, ran.output
    header, changes, *_ = ran.output.splitlines()
    assert header.startswith("table,files_before,files_after")
    assert changes.startswith("changes,13,1,")


def test_maintain_without_tables_says_so(tmp_path: Path) -> None:
    ran = CliRunner().invoke(cli, ["maintain", "--table-root", str(tmp_path)])
    assert isinstance(ran.exception, OffsetlakeError)
    assert "Check --table-root" in str(ran.exception)
