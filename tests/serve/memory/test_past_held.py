"""Which past snapshots are held, in which order they are read, and what happens if they cannot be."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from kafka_clients import wait_until
from maintenance_rounds import KEPT
from memory_snapshots import offsets_in
from table_batches import append, group, heartbeat, live_on, offset

from streaming.common.times import DAY_MS, MINUTE_MS, iso, now_ms
from streaming.maintenance.maintenance import maintain
from streaming.serve.memory import past
from streaming.serve.memory.past import PastLimits, PastSnapshots, Unavailable
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.tables.tables import Tables

QUICK = PastLimits(in_use_s=0.0, gone_s=60.0)
HELD_LONG = PastLimits(in_use_s=3_600.0, turn_s=3_600.0, gone_s=60.0)
T0 = now_ms() // MINUTE_MS * MINUTE_MS - 20 * MINUTE_MS
MOMENTS = [T0 + number * MINUTE_MS for number in range(6)]


@pytest.fixture
def minutes(tables: Tables) -> Tables:
    """Tables with a batch in each of six minutes."""
    live = {}
    for number, now in enumerate(MOMENTS):
        batch = {("g", "t", 0): offset(committed_offset=number), "g": group(generation_or_epoch=number)}
        append(tables, batch, live=live, now=now)
        live = batch
    return tables


@contextmanager
def past_snapshots(limits: PastLimits = QUICK, **more: Any) -> Iterator[PastSnapshots]:
    with PastSnapshots(limits, **more) as running:
        yield running


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The moments of which snapshots were read."""
    read, real = list[int](), past.read_as_of

    def counted(tables: Tables, moment: int) -> MemorySnapshot:
        read.append(moment)
        return real(tables, moment)

    monkeypatch.setattr(past, "read_as_of", counted)
    return read


def found(
    running: PastSnapshots, tables: Tables, moment: int, client: int = 1
) -> MemorySnapshot | Unavailable:
    """Ask as a client does that retries."""
    answers = list[MemorySnapshot | Unavailable | None]()

    def is_found() -> bool:
        answers.append(running.get(tables, moment, client))
        return answers[-1] is not None

    wait_until(is_found, "the snapshot")
    assert answers[-1] is not None
    return answers[-1]


def committed(snapshot: MemorySnapshot | Unavailable) -> list[int]:
    assert isinstance(snapshot, MemorySnapshot), snapshot
    return [row["committed_offset"] for row in offsets_in(snapshot)]


def test_three_are_held_and_the_one_not_asked_for_the_longest_goes(minutes: Tables, reads: list[int]) -> None:
    with past_snapshots() as running:
        for number in (0, 1, 2, 0, 3, 0, 2, 1):
            assert committed(found(running, minutes, MOMENTS[number])) == [number]
            assert running.counts(minutes.root).held <= 3
        assert running.counts(minutes.root) == (3, 5)
    assert reads == [MOMENTS[number] for number in (0, 1, 2, 3, 1)]


def test_one_in_use_stays_until_its_turn_is_over(minutes: Tables, reads: list[int]) -> None:
    with past_snapshots(HELD_LONG) as running:
        for number in range(3):
            found(running, minutes, MOMENTS[number])
        assert running.get(minutes, MOMENTS[3], 2) is None
        assert isinstance(found(running, minutes, MOMENTS[0]), MemorySnapshot)
        assert running.counts(minutes.root) == (3, 3)
    with past_snapshots(PastLimits(in_use_s=3_600.0, turn_s=0.0)) as running:
        for number in range(4):
            assert committed(found(running, minutes, MOMENTS[number])) == [number]


def test_what_cannot_be_held_yet_does_not_delay_a_refusal(minutes: Tables) -> None:
    with past_snapshots(HELD_LONG) as running:
        for number in range(3):
            found(running, minutes, MOMENTS[number])
        assert running.get(minutes, MOMENTS[3], 2) is None
        assert isinstance(found(running, minutes, T0 - 1, 3), Unavailable)


def test_a_client_that_asks_for_many_moments_has_one_place_in_the_queue(
    minutes: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, read, real = threading.Event(), threading.Event(), list[int](), past.read_as_of

    def slowly(tables: Tables, moment: int) -> MemorySnapshot:
        begun.set()
        assert go_on.wait(10)
        read.append(moment)
        return real(tables, moment)

    monkeypatch.setattr(past, "read_as_of", slowly)
    with past_snapshots(PastLimits(gone_s=60.0, places=2)) as running:
        running.get(minutes, MOMENTS[0], 1)
        assert begun.wait(10)
        for moment in range(T0 + 1, T0 + 2_000):  # of a hostile client, and an honest one
            assert running.get(minutes, moment, 1) is None
            assert running.get(minutes, MOMENTS[4], 2) is None
        assert running.get(minutes, MOMENTS[5], 3) is None  # the queue is full
        go_on.set()
        found(running, minutes, MOMENTS[4], 2)
    assert len(read) <= 3
    assert read[0] == MOMENTS[0]


def test_askers_take_turns_however_many_clients_each_has(
    minutes: Tables, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, real = threading.Event(), threading.Event(), past.read_as_of

    def waiting(tables: Tables, moment: int) -> MemorySnapshot:
        begun.set()
        assert go_on.wait(10)
        return real(tables, moment)

    monkeypatch.setattr(past, "read_as_of", waiting)
    asked = [(0, "many"), (1, "many"), (2, "many"), (3, "many"), (4, "one"), (5, "another")]
    with past_snapshots() as running:
        running.get(minutes, MOMENTS[0], 0, "many")
        assert begun.wait(10)
        for number, asker in asked[1:]:
            assert running.get(minutes, MOMENTS[number], number, asker) is None
        go_on.set()
        wait_until(lambda: len(reads) == len(asked), "all to be read")
    assert reads == [MOMENTS[number] for number in (0, 4, 5, 1, 2, 3)]


def test_clients_that_have_gone_lose_their_place(minutes: Tables, reads: list[int]) -> None:
    with past_snapshots(PastLimits(in_use_s=3_600.0, turn_s=3_600.0, gone_s=0.2)) as running:
        for number in range(3):
            found(running, minutes, MOMENTS[number])
        for client in range(100):
            assert running.get(minutes, MOMENTS[3] + client, client) is None
        wait_until(lambda: running.wait_s() > 100, "the queue to be empty")
    assert len(reads) == 3


# --- what there is no snapshot of --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "why"),
    [
        (T0 - 1, f"as of {iso(T0 - 1)}: history starts at {iso(T0)}, because the tables are not older"),
        (
            MOMENTS[-1] + 2 * MINUTE_MS,
            f"not observed from {iso(MOMENTS[-1])} to {iso(MOMENTS[-1] + 10 * MINUTE_MS)}. Ask for a time",
        ),
        (
            MOMENTS[-1] + 15 * MINUTE_MS,
            f"not observed from {iso(MOMENTS[-1] + 10 * MINUTE_MS)} to now. Ask for a time when",
        ),
    ],
)
def test_moments_that_the_tables_lack_are_refused(
    minutes: Tables, said: list[str], moment: int, why: str
) -> None:
    heartbeat(minutes, MOMENTS[-1] + 10 * MINUTE_MS)
    with past_snapshots() as running:
        refused = found(running, minutes, moment)
    assert isinstance(refused, Unavailable)
    assert (why in refused.why, refused.is_refused) == (True, True), refused
    assert [sentence for sentence in said if why in sentence]


def test_a_moment_before_anything_was_read_is_refused(tables: Tables) -> None:
    heartbeat(tables, T0, partitions={})
    heartbeat(tables, T0 + MINUTE_MS)
    with past_snapshots() as running:
        refused = found(running, tables, T0)
    assert isinstance(refused, Unavailable)
    assert "nothing had been read yet" in refused.why


def test_a_moment_that_the_job_has_not_passed_is_waited_for(minutes: Tables) -> None:
    last = MOMENTS[-1]
    with past_snapshots(clock=lambda: last + 2_000) as running:
        assert running.get(minutes, last + 1_000, 1) is None
        with suppress(AssertionError):
            wait_until(lambda: running.get(minutes, last + 1_000, 1) is not None, "it", timeout_s=1.5)
        assert running.counts(minutes.root).built == 0
        changed = {("g", "t", 0): offset(committed_offset=77)}
        append(minutes, changed, live={("g", "t", 0): offset(committed_offset=5)}, now=last + 900)
        heartbeat(minutes, last + 2_000)
        assert committed(found(running, minutes, last + 1_000)) == [77]


def test_a_moment_that_a_dead_job_did_not_pass_is_answered_from_its_last_batch(minutes: Tables) -> None:
    with past_snapshots(clock=lambda: MOMENTS[-1] + DAY_MS) as running:
        assert committed(found(running, minutes, MOMENTS[-1] + 1_000)) == [5]


def test_a_failure_is_said_and_not_repeated_at_once(
    minutes: Tables, reads: list[int], said: list[str]
) -> None:
    root = Path(minutes.root)
    with past_snapshots(PastLimits(failed_s=2.0)) as running:
        root.rename(root.with_name("elsewhere"))
        failed = found(running, minutes, MOMENTS[0])
        assert isinstance(failed, Unavailable)
        assert not failed.is_refused
        assert "expected a Delta table" in failed.why
        root.with_name("elsewhere").rename(root)
        assert running.get(minutes, MOMENTS[0], 1) == failed
        assert reads == []
        wait_until(lambda: not isinstance(running.get(minutes, MOMENTS[0], 1), Unavailable), "another try")
        assert committed(found(running, minutes, MOMENTS[0])) == [0]
    assert len([sentence for sentence in said if "could not be read" in sentence]) == 1


def test_a_panic_does_not_end_the_thread(minutes: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicError(BaseException):
        pass

    def panic(tables: Tables, moment: int) -> MemorySnapshot:
        raise PanicError("panicked")

    with past_snapshots() as running:
        with monkeypatch.context() as patch:
            patch.setattr(past, "read_as_of", panic)
            assert isinstance(found(running, minutes, MOMENTS[0]), Unavailable)
        assert committed(found(running, minutes, MOMENTS[1])) == [1]


def trim(tables: Tables) -> None:
    """Delete the history, which is old."""
    later = MOMENTS[-1] + 9 * DAY_MS
    live_on(tables, MOMENTS[-1] + DAY_MS, later)
    maintain(tables, KEPT, clock=lambda: later)


WORK: list[Callable[[Tables], object]] = [
    Tables.fold,
    lambda tables: maintain(tables, KEPT, clock=now_ms),
    trim,
]


def test_what_is_held_stays_as_it_is_while_the_tables_move_on(minutes: Tables) -> None:
    with past_snapshots() as running:
        held = found(running, minutes, MOMENTS[2])
        for work in WORK:
            work(minutes)
            assert found(running, minutes, MOMENTS[2]) is held
        assert committed(held) == [2]
        trimmed = found(running, minutes, MOMENTS[1])
        assert isinstance(trimmed, Unavailable)
        assert "what is older was deleted ([tables] history)" in trimmed.why
