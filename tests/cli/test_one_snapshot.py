"""Each output of a command is of one snapshot, while a job appends and folds between all that it opens."""

import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import click
import pytest
from deltalake import DeltaTable
from log_end_rows import Sample, of_topic, rows_of
from new_tables import new_tables
from table_batches import Batch, append, group, offset

from streaming.cli import watching
from streaming.cli.main import COMMANDS
from streaming.common.times import DAY_MS, MINUTE_MS, now_ms
from streaming.model.progress import PartitionEnds, PartitionProgress, Retention
from streaming.serve.memory.reading import Reading, _whole
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.tables.folding import ROWS
from streaming.tables.snapshot import OpenTables, Snapshot
from streaming.tables.tables import Tables

FIRST_OFFSET, LOG_END = 7_000_000, 9_000_000
OFFSET, OF_A_SAMPLE = re.compile(r"\b70\d{5}\b"), re.compile(r'"offset_as_of_ends": \d+')
SECOND_MS = 1_000
OTHERS = {
    "check",
    "run",
    "rebuild",
    "demo",
    "serve",
    "metrics",
    "maintain",
    "decode",
    "jars",
    "scram",
}
"""Commands that ask no question of the tables: `check` asks brokers, `serve` and `metrics` a snapshot."""

OF_NO_QUESTION = {"--output", "--wide", "--utc", "--config", "--table-root", "--cluster"}
OF_BROKERS = {"--bootstrap-server", "--command-config", "--evaluate"}
"""Options that are about no snapshot: brokers are asked after it, and alerts are written."""
OF_A_TEST_BELOW = {"--watch"}

PAST = ["--as-of", "-30s"]
CASES = [
    ["offsets"],
    ["offsets", "--all-groups", "-t", "t*"],
    ["offsets", "live", "--require-complete", "--max-age", "1h"],
    ["offsets", "-g", "l*", "-g", "nobody"],
    ["offsets", "live", *PAST],
    ["groups"],
    ["groups", "--list"],
    ["groups", "--state", "Stable", "--type", "classic"],
    ["groups", "live", "--require-complete", "--max-age", "1h"],
    ["groups", "-g", "l*", "--members"],
    ["groups", "live", "--members", "--verbose", *PAST],
    ["sql", "SELECT * FROM live_offsets", "--require-complete", "--max-age", "1h"],
    ["sql", 'SELECT l.*, g.members FROM lag l JOIN live_groups g USING ("group")'],
    ["sql", 'SELECT l.*, g.members FROM live_offsets l JOIN live_groups g USING ("group")', *PAST],
    ["status", "--require-complete", "--max-age", "1h"],
    ["status", "--totals"],
    ["status", *PAST],
    ["history", "live", "--require-complete", "--max-age", "1h"],
    ["history", "--all-groups", "-t", "t", "--since", "1h", "--event", "rewind,commit"],
    ["history", "-g", "l*", "--event", "rewind", "--until", "5s"],
    ["history", "live", "--since", "1m", "--every", "10s"],
    ["history", "live", *PAST],
    ["lag", "--require-complete", "--max-age", "1h"],
    ["lag", "l*"],
    ["lag", "--all-groups", "-t", "t", "--by", "topic", "--min-lag", "1"],
    ["lag", "-g", "live", "--min-time", "1s", *PAST],
    ["health", "live", "--require-complete", "--max-age", "1h"],
    ["health", "--all-groups", "-t", "t", "--status", "OK,UNKNOWN"],
    ["health", "-g", "l*", *PAST],
    ["health", "live", "--since", "2m", "--until", "5s"],
    ["alerts", "--all"],
    ["expiring", "live", "--within", "30d", "--require-complete", "--max-age", "1h"],
    ["expiring", "-g", "idle", "-t", "t", *PAST],
    ["leftovers", "--idle", "1ms", "--require-complete", "--max-age", "1h"],
    ["leftovers", "-g", "idle", "-t", "t", *PAST],
    ["leftovers", "-g", "l*", "--commands"],
    ["removed", "--require-complete", "--max-age", "1h"],
    ["removed", "-g", "gone", "-t", "t", "--since", "1h"],
    ["removed", "gone", "--output", "reset-csv", *PAST],
    ["restore", "live", *PAST],
    ["restore", "-g", "l*", "-t", "t", *PAST, "--require-complete", "--max-age", "1h"],
]


FIRST = [*{case[0]: case for case in reversed(CASES)}.values(), ["offsets", "live", *PAST]]
"""One case of each command, and a past one; `make test-more` tries the others."""


class World:
    """Tables in which batch n sets whatever it writes to a value that says n."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.live: Batch = {}

    def go_on(self, *, now: int | None = None, with_samples: bool = True, is_folded: bool = True) -> None:
        """Append a batch, perhaps samples of log ends, and perhaps fold."""
        now = now_ms() if now is None else now
        n = self.tables.progress().sequence + 1
        at = {"commit_timestamp": now, "source_timestamp": now, "source_partition": 0}
        committed = offset(committed_offset=FIRST_OFFSET + n, metadata=f"b{n}", **at)
        member = {"member_id": f"b{n}", "client_id": f"b{n}", "client_host": f"/b{n}"}
        has = {"assignment": [{"topic": "t", "topic_id": None, "partitions": [0]}]}
        batch: Batch = {
            ("live", "t", 0): committed,
            ("idle", "t", 0): committed,
            "live": group(source_partition=0, members=[member | has]),
            "idle": group(source_partition=0, state="Empty", state_timestamp=now),
            ("gone", "t", n): committed if n % 2 else None,
        }
        if n % 2 == 0:
            batch["gone", "t", n - 1] = None
        batch = {key: value for key, value in batch.items() if value is not None or key in self.live}
        read = PartitionProgress(position=n, loaded=True).with_ends(PartitionEnds(n, n), now)
        kept = Retention(
            retention_ms=7 * DAY_MS,
            check_interval_ms=10 * MINUTE_MS,
            source="broker",
            read_at=now,
            known_since=0,
        )
        append(self.tables, batch, live=self.live, now=now, partitions={0: read}, retention=kept)
        self.live |= batch
        if with_samples:
            ends = [Sample(now, "t", 0, LOG_END, "id"), of_topic(now, "t", "id")]
            self.tables.append_log_ends(rows_of(ends))
        if is_folded:
            self.tables.fold()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    tables = new_tables(tmp_path_factory.mktemp("changing") / "tables")
    world, now = World(tables), now_ms()
    for moment in range(now - 2 * MINUTE_MS, now, 20 * SECOND_MS):
        world.go_on(now=moment)
    return world


class Opened:
    """What a command opens: how many snapshots, and which tables."""

    def __init__(self) -> None:
        self.snapshots = 0
        self.tables = Counter[str]()


@pytest.fixture
def opened(world: World, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """What a command opens; before each table the world goes on."""
    found, goes_on, delta, open_all = Opened(), [False], Tables.delta, Tables._opened

    def delta_later(tables: Tables, name: str) -> DeltaTable:
        if not goes_on[0]:
            found.tables[name] += 1
            goes_on[0] = True
            world.go_on(with_samples=name == "log_ends", is_folded=name in ROWS)
            goes_on[0] = False
        return delta(tables, name)

    def open_counted(tables: Tables, *bases: Any, **named: Any) -> OpenTables:
        found.snapshots += 1
        return open_all(tables, *bases, **named)

    monkeypatch.setattr(Tables, "delta", delta_later)
    monkeypatch.setattr(Tables, "_opened", open_counted)
    return found


def batches_in(text: str) -> set[int]:
    """Return the batches that values of an output are of, those as of the last sample left out."""
    marks = re.findall(r"\bb(\d+)\b", text)
    offsets = [int(found) - FIRST_OFFSET for found in OFFSET.findall(OF_A_SAMPLE.sub("", text))]
    return {*map(int, marks), *offsets}


def sampled_batches_in(text: str) -> set[int]:
    """Return the batches that were the newest ones at the last sample, by the values as of it."""
    offsets = [int(found) - FIRST_OFFSET for found in OFFSET.findall("".join(OF_A_SAMPLE.findall(text)))]
    lags = [LOG_END - FIRST_OFFSET - int(found) for found in re.findall(r"\b19\d{5}\b", text)]
    return {*offsets, *lags}


@pytest.mark.parametrize(
    "case",
    [case if case in FIRST else pytest.param(case, marks=pytest.mark.more) for case in CASES],
    ids=" ".join,
)
def test_an_output_is_of_one_snapshot_though_the_world_goes_on(
    offsetlake: Any, world: World, opened: Opened, case: list[str]
) -> None:
    is_plain = case[0] == "restore" or {"--output", "--commands"}.intersection(case)
    form = [] if is_plain else ["--output", "document"]
    shown = offsetlake(*case, *form, "--table-root", world.tables.root)
    assert shown.code in (0, 1), shown.err
    assert opened.snapshots == 1
    assert set((opened.tables - Counter(changes=2)).values()) <= {1}  # again where a base is ahead of it
    found = batches_in(shown.out + shown.err)
    sampled = sampled_batches_in(shown.out)
    told = set(map(int, re.findall(r'(?:"batch":|as of batch) (\d+)', shown.out + shown.err))) or {max(found)}
    assert max(sampled, default=0) <= min(told)
    if case[0] in ("history", "removed", "health"):  # these have the past, too
        assert max(found, default=0) <= min(told)
    else:
        assert found <= told
        assert len(sampled) <= 1
    assert len(told) == 1
    assert min(told) < world.tables.progress().sequence


def test_every_command_that_asks_is_asked_with_all_of_its_options() -> None:
    commands = {str(one.name): one for some in COMMANDS.values() for one in some}
    assert set(commands) == OTHERS | {case[0] for case in CASES}
    for name in set(commands) - OTHERS:
        given = {word for case in CASES if case[0] == name for word in case}
        options = [one for one in commands[name].params if isinstance(one, click.Option)]
        lacking = {one.opts[-1] for one in options if not given.intersection(one.opts)}
        assert lacking <= OF_NO_QUESTION | OF_BROKERS | OF_A_TEST_BELOW, name


@pytest.mark.more
def test_each_refresh_of_a_watch_is_of_one_snapshot(
    offsetlake: Any, world: World, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = iter([None, None])

    def sleep(_: float) -> None:
        if next(pauses, KeyboardInterrupt) is KeyboardInterrupt:
            raise KeyboardInterrupt

    monkeypatch.setattr(watching, "time", SimpleNamespace(sleep=sleep))  # no other thread's
    shown = offsetlake("lag", "-g", "l*", "--watch", "--table-root", world.tables.root)
    batches = list(map(int, re.findall(r"as of batch (\d+)", shown.err)))
    assert len(batches) == opened.snapshots == 3
    for told, answer in zip(batches, shown.out.split("\n\n"), strict=True):
        assert batches_in(answer) <= {told}
        assert 0 < max(sampled_batches_in(answer)) <= told


def test_where_files_have_gone_all_of_it_is_asked_again(
    offsetlake: Any, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, delta, gone = World(tables), Tables.delta, list[str]()
    world.go_on(now=now_ms() - SECOND_MS)
    world.go_on(is_folded=False)

    def rewrite(tables: Tables, name: str) -> DeltaTable:
        if name == "log_ends" and not gone:  # some of it was read by then
            gone.append(name)
            world.go_on(is_folded=False)
            delta(tables, "changes").optimize.compact()
            gone.extend(delta(tables, "changes").vacuum(0, dry_run=False, enforce_retention_duration=False))
        return delta(tables, name)

    monkeypatch.setattr(Tables, "delta", rewrite)
    shown = offsetlake("offsets", "live", "--output", "document", "--table-root", tables.root)
    assert (shown.code, shown.err) == (0, "")
    assert len(gone) > 1
    assert batches_in(shown.out) == {3}
    assert shown.out.count('"batch": 3') == shown.out.count('"batch"') == 1


def test_a_past_snapshot_does_not_give_the_tables_of_now_away(world: World) -> None:
    then = now_ms() - 30 * SECOND_MS
    past = world.tables.ask_now(lambda present: present.as_of(then))
    assert type(past) is type(world.tables.ask(lambda at: at, as_of=then)) is Snapshot
    assert not hasattr(past, "bases")
    assert not hasattr(past, "changes")
    with pytest.raises(AttributeError):
        _whole(world.tables, Reading(snapshot=MemorySnapshot.none()), past)  # type: ignore[arg-type]
