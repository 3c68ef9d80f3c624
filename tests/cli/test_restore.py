"""`restore`: where a group was, as a file for Kafka's own tool, and what its logs have lost since."""

import re
from pathlib import Path
from typing import Any

import kafka_clients as kafka
import pytest
from consumer_groups_tool import told_by
from java_lines import JavaLines
from lag_tables import SOURCE, LagTables
from table_batches import Batch, append, group, heartbeat, offset

from streaming.common.times import MINUTE_MS, iso, now_ms
from streaming.demo.local_broker import LocalBroker
from streaming.model import schemas

REFUSED = (
    r"offsetlake: group {} \(as of \S+Z\): kafka-consumer-groups will refuse it until its consumers are "
    "stopped, or their sessions time out"
)
MEMBER = dict.fromkeys(schemas.MEMBER.names) | {"client_id": "c", "client_host": "/10.0.0.1"}


@pytest.fixture
def world(tmp_path: Path) -> LagTables:
    return LagTables(tmp_path / "tables", now_ms() - 5_000)


@pytest.fixture
def restore(world: LagTables, offsetlake: Any) -> Any:
    return lambda *arguments: offsetlake("restore", *arguments, "--table-root", world.tables.root)


def test_positions_are_those_of_the_moment(world: LagTables, restore: Any) -> None:
    moment = iso(world.start + 3 * MINUTE_MS + 30_000)
    ended = restore("dead", "--group", "live", "--as-of", moment)
    position = world.end_at(3) - 10
    assert (ended.code, ended.out) == (0, f"dead,orders,0,{position}\nlive,orders,0,{position}\n")
    assert ended.err.startswith("offsetlake: as of batch 4, written ")
    assert len(ended.err.splitlines()) == 1
    assert restore("dead", "--as-of", moment, "--topic", "orders:1").code == 1


def test_what_the_log_has_lost_since_is_said(world: LagTables, restore: Any) -> None:
    world.sample(world.log, range(world.now + 1, world.now + 2), log_start=world.end_at(0))
    ended = restore("old", "--as-of", "1m")
    committed = world.end_at(0) - 3_600
    said = (
        f"group 'old': orders:0, offset {committed}: the log starts after the offset: the records to read "
        "next were deleted"
    )
    assert (ended.code, ended.err.splitlines()[1]) == (0, f"offsetlake: {said}")
    assert ended.out == f"orders,0,{committed}\n"
    world.make_anew()
    assert "orders:0, offset" in (err := restore("live", "--as-of", "2m").err)
    assert ": the topic was recreated after the commit: the offset belongs to another log" in err
    assert "its topic is gone, or was not sampled" in restore("lost", "--as-of", "2m").err


def test_lost_offsets_that_may_be_wrong_by_now_are_named_as_restore_names_them(
    world: LagTables, offsetlake: Any
) -> None:
    commit = {"commit_timestamp": world.now - MINUTE_MS, "source_partition": SOURCE}
    live: Batch = {
        ("former", "orders", 0): offset(committed_offset=100, topic_id="former", **commit),
        ("passed", "orders", 0): offset(committed_offset=50, topic_id="first", **commit),
        ("beyond", "orders", 0): offset(committed_offset=10**9, topic_id="first", **commit),
        ("later", "orders", 0): offset(committed_offset=7_000, unreadable_source_offset=7, **commit),
        ("unseen", "pay", 0): offset(committed_offset=5, **commit),
        ("fine", "orders", 0): offset(committed_offset=7_100, topic_id="first", **commit),
    }
    groups = sorted(str(key[0]) for key in live)
    append(world.tables, live, now=world.now + 100)
    then = iso(world.now + 500)
    heartbeat(world.tables, world.now + 500)
    append(world.tables, dict.fromkeys(live), live=live, now=world.now + 1_000)
    topic = {"partition": None, "log_start": None, "log_end": None}
    world.sample(world.log, range(world.start, world.now + 1, world.now - world.start), **topic)
    world.sample(world.log, range(world.now + 1, world.now + 2), log_start=60)

    def asked(*arguments: str) -> Any:
        return offsetlake(*arguments, *groups, "--table-root", world.tables.root)

    lost, positions = asked("removed", "--output", "reset-csv"), asked("restore", "--as-of", then)
    assert lost.code == positions.code == 0
    assert sorted(lost.out.splitlines()) == sorted(positions.out.splitlines())
    told = lost.err.splitlines()
    assert told == [line for line in positions.err.splitlines() if "orders:0" in line or "pay:0" in line]
    assert [line.split(": ")[1] for line in told] == [f"group {name!r}" for name in groups if name != "fine"]


def test_now_includes_the_newest_batch_of_a_job_whose_clock_is_ahead(
    world: LagTables, restore: Any, offsetlake: Any
) -> None:
    ahead = now_ms() + 90_000
    before = int(restore("live", "--as-of", "now").out.rsplit(",", 1)[1])
    commit = offset(committed_offset=before + 7, commit_timestamp=world.now, source_partition=SOURCE)
    append(world.tables, {("live", "orders", 0): commit}, now=ahead)
    ended = restore("live", "--as-of", " NOW", "--require-complete")
    assert (ended.code, ended.out) == (0, f"orders,0,{before + 7}\n")
    rows = offsetlake(
        *("history", "live", "--since", "1m", "--until", "now", "--output", "csv"),
        *("--table-root", world.tables.root),
    ).out
    assert f"live,orders,0,{before + 7}," in rows


def test_a_group_that_the_file_cannot_hold_is_named(world: LagTables, restore: Any) -> None:
    commit = offset(
        committed_offset=5, source_offset=900, commit_timestamp=world.now, source_partition=SOURCE
    )
    keys = [("two\nlines", "orders", 0), ("nu\0l", "orders", 0), ("live", "or\nders", 0), ("live", "\0", 0)]
    append(world.tables, dict.fromkeys(keys, commit), now=world.now)
    ended = restore("two*", "nu*", "live", "--as-of", "now")
    assert (ended.code, ended.out.startswith("live,orders,0,"), ended.out.count("\n")) == (1, True, 1)
    assert [line for line in ended.err.splitlines() if "left out" in line] == [
        "offsetlake: group 'nu\\x00l' is left out: the file cannot hold NUL in a name",
        "offsetlake: group 'two\\nlines' is left out: the file cannot hold a line end in a name",
        "offsetlake: topic '\\x00' is left out: the file cannot hold NUL in a name",
        "offsetlake: topic 'or\\nders' is left out: the file cannot hold a line end in a name",
    ]
    ended = restore("live", "--as-of", "now")
    assert (ended.code, ended.out.count("\n"), ended.err.count("left out")) == (1, 1, 2)
    assert restore("two\nlines", "--as-of", "now").out == "orders,0,5\n"


def test_negative_offsets_are_left_out_and_named(world: LagTables, restore: Any, offsetlake: Any) -> None:
    commit = {"commit_timestamp": world.now, "source_partition": SOURCE}
    batch: Batch = {("odd", "orders", n): offset(committed_offset=n - 1, **commit) for n in (0, 1)}
    append(world.tables, batch, now=world.now)
    left_out = "group 'odd': orders:0, offset -1: it is left out, because kafka-consumer-groups refuses"
    ended = restore("odd", "--as-of", "now")
    assert (ended.code, ended.out, left_out in ended.err) == (1, "orders,1,0\n", True)
    append(world.tables, dict.fromkeys(batch), live=batch, now=world.now + 1)
    ended = offsetlake("removed", "odd", "--output", "reset-csv", "--table-root", world.tables.root)
    assert (ended.code, ended.out, left_out in ended.err) == (1, "orders,1,0\n", True)


def test_positions_that_could_never_be_read_are_named(world: LagTables, restore: Any) -> None:
    source = {"source_partition": SOURCE, "commit_timestamp": world.now}
    batch: Batch = {
        ("dark", "orders", number): offset(
            committed_offset=committed, unreadable_source_offset=900 + number, source_offset=900 + number
        )
        | source
        for number, committed in enumerate([None, 7, None])
    }
    append(world.tables, batch, now=world.now)
    ended = restore("dark", "--as-of", "now")
    assert (ended.code, ended.out) == (1, "orders,1,7\n")
    none = "orders:0; orders:2: none of its commits could be read: there is no offset to put back"
    newer = "orders:1, offset 7: a newer commit could not be read: the group may have been elsewhere"
    assert ended.err.splitlines()[1:] == [f"offsetlake: group 'dark': {said}" for said in (newer, none)]
    assert restore("dark", "--topic", "orders:0", "--as-of", "now").out == ""


def test_a_group_that_has_members_is_named_since_the_tool_refuses_it(world: LagTables, restore: Any) -> None:
    members = [MEMBER | {"member_id": name} for name in ("one", "two")]
    numbers = range(8)
    batch: Batch = {("live", "orders", 0): offset(committed_offset=1)}
    batch |= {f"many-{n}": group(members=members[:1], source_partition=SOURCE) for n in numbers}
    batch |= {(f"many-{n}", "orders", 0): offset(source_partition=SOURCE) for n in numbers}
    append(world.tables, batch | {"live": group(members=members, source_partition=SOURCE)}, now=world.now)
    for moment in ("now", "2m"):  # members are those of now
        ended = restore("live", "dead", "--as-of", moment)
        told = [line for line in ended.err.splitlines() if " has " in line]
        assert ended.code == 0
        assert len(told) == 1
        assert re.fullmatch(REFUSED.format("'live' has 2 members"), told[0])
    told = restore("many*", "--as-of", "now").err.splitlines()[-6:]
    assert all(f"'many-{n}' has a member (" in line for n, line in enumerate(told[:5]))
    assert told[5] == "offsetlake: and 3 more groups"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--as-of", "1m"], "restore: expected a group, found none"),
        (["live"], "restore: expected --as-of, found none"),
    ],
)
def test_a_group_and_a_moment_are_needed(restore: Any, arguments: list[str], message: str) -> None:
    ended = restore(*arguments)
    assert (ended.code, ended.out, message in ended.err) == (2, "", True)


@pytest.mark.broker
@pytest.mark.slow
def test_kafka_s_own_tool_takes_the_file_dry_and_in_earnest(
    tmp_path: Path, offsetlake: Any, broker: LocalBroker, consumer_groups: JavaLines
) -> None:
    bootstrap, group = broker.bootstrap_servers, 'put "back", restore'
    kafka.create_topics(bootstrap, {"restored": 2})
    for number in (0, 1):  # the tool sets no offset beyond the end of a log
        kafka.produce_raw(bootstrap, "restored", [(b"key", b"value")] * 40, partition=number)
    world = LagTables(tmp_path / "tables", now_ms() - 5_000)
    positions = {("restored", 0): 3, ("restored", 1): 1}
    commits = {
        (group, topic, number): offset(
            committed_offset=committed, source_offset=900 + number, source_partition=SOURCE
        )
        for (topic, number), committed in positions.items()
    }
    append(world.tables, commits, now=world.now)
    kafka.commit_offsets(bootstrap, group, dict.fromkeys(positions, 7))  # it has moved on since

    ended = offsetlake("restore", group, "--as-of", "now", "--table-root", world.tables.root)
    assert (ended.code, ended.out.count("\n")) == (0, 2)
    file = tmp_path / "positions.csv"
    file.write_text(ended.out)
    reset = ["--group", group, "--reset-offsets", "--from-file", str(file)]

    def committed() -> dict[tuple[str, int], int]:
        found = kafka.broker_offsets(bootstrap)
        return {(key.topic, key.partition): one.offset for key, one in found.items() if key.group == group}

    said = told_by(consumer_groups, bootstrap, *reset, "--dry-run")
    assert said.count(" restored ") == 2
    assert committed() == dict.fromkeys(positions, 7)
    told_by(consumer_groups, bootstrap, *reset, "--execute")
    assert committed() == positions
