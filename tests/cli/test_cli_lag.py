"""`lag`, `health`, and the lag in `offsets` and `history`: from the tables, as of every moment."""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lag_tables import MINUTES, LagTables
from new_tables import new_tables
from rich.text import Text
from table_batches import Batch, append, group, heartbeat, offset

from streaming.cli.answering import recreated_topics
from streaming.cli.watching import fitting
from streaming.common.times import MINUTE_MS, from_ms, iso, now_ms
from streaming.queries.lag import LagQueries

BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
RECREATED = "the topic was recreated after the commit: the offset belongs to another log"
COLUMNS = ["offset_as_of_ends", "log_end_offset", "lag", "lag_seconds", "lag_is_at_least", "ends_as_of"]
Json = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> LagTables:
    return LagTables(tmp_path_factory.mktemp("lag"), now_ms() - 5_000)


@pytest.fixture
def ask(world: LagTables, offsetlake: Any) -> Any:
    """A function that runs the command on the tables, in this process."""
    return lambda *arguments: offsetlake(*arguments, "--table-root", world.tables.root)


@pytest.fixture
def rows(ask: Any) -> Json:
    return lambda *arguments: json.loads(ask(*arguments, "--output", "json").out)  # type: ignore[no-any-return]


# --- offsets ---------------------------------------------------------------------------------------------


def test_offsets_have_the_lag_without_a_broker(world: LagTables, rows: Json) -> None:
    found = {row["group"]: row for row in rows("offsets")}
    assert list(found["live"])[4:10] == COLUMNS
    live, dead, old, lost = (found[name] for name in ("live", "dead", "old", "lost"))
    assert (live["log_end_offset"], live["lag"]) == (world.end_at(MINUTES), 30)
    assert live["lag_seconds"] == pytest.approx(29, abs=1.1)
    assert live["ends_as_of"] == iso(world.now)
    assert (dead["lag"], dead["lag_is_at_least"]) == (30 + 20 * 60, False)
    assert dead["lag_seconds"] == pytest.approx(20 * 60 + 29, abs=1.1)
    assert (old["lag_seconds"], old["lag_is_at_least"]) == (MINUTES * 60, True)
    assert [lost[name] for name in COLUMNS] == [None] * 6


def test_offsets_in_csv_have_the_same_columns(ask: Any) -> None:
    title, row = ask("offsets", "old", "--output", "csv").out.splitlines()
    assert title.split(",")[4:10] == COLUMNS
    assert row.split(",")[7:9] == [f"{MINUTES * 60:.1f}", "true"]


def test_people_see_lag_times_and_as_of_when_the_ends_are(world: LagTables, ask: Any) -> None:
    ended = ask("offsets", "old", "dead")
    lines = ended.out.splitlines()
    assert lines[0].split()[4:7] == ["LOG-END-OFFSET", "LAG", "LAG-TIME"]
    assert re.search(r" 1230 +00:20:(29|30) ", lines[1])
    assert ">= 00:25:00" in lines[3]
    moment = iso(world.now, "seconds")
    assert ended.err.splitlines()[1] == f"lag: committed offsets and log end offsets of {moment}"
    document = json.loads(ask("offsets", "old", "--output", "document").out)
    assert document["as_of"]["log_ends_at"] == iso(world.now)


@pytest.mark.more
def test_offsets_of_a_recreated_topic_are_reported(tmp_path: Path, offsetlake: Any) -> None:
    world = LagTables(tmp_path / "tables", now_ms() - 5_000)
    config = tmp_path / "mine.toml"
    config.write_text('[expiry]\nretention = "1d"\n')
    asked = ["--table-root", world.tables.root, "--config", str(config)]
    empty = group(state="Empty", members=[], state_timestamp=world.now, source_offset=800)
    append(world.tables, {"old": empty, "lost": empty}, now=world.now)

    def found(command: str) -> dict[str, Any]:
        rows = json.loads(offsetlake(command, *asked, "--output", "json").out)
        return {row["group"]: row["of_recreated_topic"] for row in rows}

    assert set(found("offsets").values()) == {None}  # no topic has been seen by its id
    world.make_anew()
    assert found("offsets") == {"dead": True, "live": True, "lost": None, "old": True}
    assert found("expiring") == {"lost": None, "old": True}
    ended = offsetlake("offsets", "old", "lost", *asked)
    where = f"group 'old': orders:0, offset {world.end_at(0) - 3_600}"
    said = f"offsetlake: {where}: {RECREATED}\n"
    assert (ended.code, ended.err.count(said), ended.err.count("recreated")) == (0, 1, 1)
    assert said in offsetlake("expiring", *asked).err
    title, *_, row = offsetlake("offsets", "old", *asked, "--output", "csv").out.splitlines()
    assert dict(zip(title.split(","), row.split(","), strict=True))["of_recreated_topic"] == "true"
    before = offsetlake("offsets", *asked, "--as-of", iso(world.now), "--output", "json")
    assert {row["of_recreated_topic"] for row in json.loads(before.out)} == {None, False}


def test_many_offsets_of_a_recreated_topic_are_reported_in_a_few_lines() -> None:
    names = ["group", "topic", "partition", "committed_offset", "of_recreated_topic"]
    rows = [(f"g{number}", "t", place, 5, number != 2) for number in range(8) for place in range(6)]
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
    told = list(recreated_topics(table))
    assert told[0].startswith("group 'g0': t:0, offset 5; t:1, offset 5; t:2, ")
    assert told[0].endswith(f"; and 1 more: {RECREATED}")
    assert (len(told), told[-1]) == (6, "and 12 more offsets")
    assert list(recreated_topics(table.slice(0, 0))) == []


def test_the_past_has_the_ends_of_the_past(world: LagTables, rows: Json) -> None:
    moment = iso(world.start + 4 * MINUTE_MS + 30_000)
    [row] = rows("offsets", "dead", "--as-of", moment)
    assert (row["log_end_offset"], row["lag"]) == (world.end_at(4), 10)
    assert row["ends_as_of"] == iso(world.start + 4 * MINUTE_MS)


def test_samples_that_are_too_old_say_nothing_and_that_is_said(tmp_path: Path, offsetlake: Any) -> None:
    world = LagTables(tmp_path, now_ms() - 10 * MINUTE_MS)
    heartbeat(world.tables, now_ms())
    ended = offsetlake("offsets", "live", "--table-root", world.tables.root)
    lines = ended.out.splitlines()
    assert lines[1].split()[4:7] == ["-", "-", "-"]
    because = f"the newest log end offsets are of {iso(world.now, 'seconds')}, 10 min"
    assert ended.err.splitlines()[1].startswith(f"lag: not known, because {because}")
    ended = offsetlake("lag", "live", "--table-root", world.tables.root, "--output", "json")
    assert (ended.code, json.loads(ended.out)[0]["lag"]) == (0, None)
    assert f"offsetlake: the lag is not known, because {because}" in ended.err


@pytest.mark.parametrize("has_table", [True, pytest.param(False, marks=pytest.mark.more)])
def test_tables_without_samples_answer_with_a_remark(
    tmp_path: Path, offsetlake: Any, has_table: bool
) -> None:
    world = LagTables(tmp_path, now_ms(), with_samples=False)
    if not has_table:  # an older release wrote them
        shutil.rmtree(tmp_path / "log_ends")
    because = "lag: not known, because no log end offsets of these topics have been sampled"
    for command in ("offsets", "lag"):
        ended = offsetlake(command, "--table-root", world.tables.root)
        assert (ended.code, ended.err.splitlines()[1:]) == (0, [because])
    assert [row["group"] for row in json.loads(ended_json(offsetlake, world, "health"))] == [
        "dead",
        "live",
        "lost",
        "old",
    ]
    answered = json.loads(ended_json(offsetlake, world, "offsets", "live"))
    assert [answered[0][name] for name in COLUMNS] == [None] * 6
    assert json.loads(ended_json(offsetlake, world, "history", "live"))[0]["lag"] is None
    assert "orders,0," in offsetlake("restore", "live", "--as-of", "now", "--table-root", str(tmp_path)).out


def ended_json(offsetlake: Any, world: LagTables, *arguments: str) -> str:
    ended = offsetlake(*arguments, "--table-root", world.tables.root, "--output", "json")
    assert ended.code == 0
    return str(ended.out)


def heed_ctrl_c() -> None:
    """Let a process be interrupted, also where that of the tests is not (in the background of a shell)."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


OFTEN = """
from streaming.cli.commands import lag
from streaming.cli.main import main

lag._WATCH_S = 0.2
main()
"""
"""The command, which repeats what it prints sooner than after five seconds."""


# --- lag -------------------------------------------------------------------------------------------------


def test_who_is_furthest_behind_comes_first(rows: Json) -> None:
    found = rows("lag")
    assert [row["group"] for row in found] == ["old", "dead", "live", "lost"]
    assert [row["lag_is_at_least"] for row in found] == [True, False, False, True]
    assert [(row["partitions_behind"], row["partitions_unknown"]) for row in found] == [(1, 0)] * 3 + [(0, 1)]


def test_a_lag_time_of_at_least_nothing_is_not_told(tmp_path: Path, offsetlake: Any) -> None:
    """One partition is caught up, of the other nothing is known."""
    world = LagTables(tmp_path, now_ms() - 5_000)
    end = offset(committed_offset=world.end_at(MINUTES), commit_timestamp=world.now)
    append(world.tables, {("half", "orders", 0): end, ("half", "gone", 0): offset()}, now=world.now)
    command = ("lag", "half", "--table-root", world.tables.root)
    (row,) = json.loads(offsetlake(*command, "--output", "json").out)
    assert (row["lag"], row["lag_seconds"], row["lag_is_at_least"]) == (0, 0.0, True)
    heads, line = (one.split() for one in offsetlake(*command, "--wide").out.splitlines()[:2])
    assert dict(zip(heads, line, strict=True))["LAG-TIME"] == "-"


def test_lag_may_be_asked_for_by_topic_and_narrowed_down(ask: Any, rows: Json) -> None:
    by_topic = rows("lag", "--by", "topic")
    assert [(row["topic"], row["worst_group"], row["partitions"]) for row in by_topic] == [
        ("orders", "old", 3),
        ("gone", "lost", 1),
    ]
    assert [row["group"] for row in rows("lag", "--min-time", "22m")] == ["old"]
    assert [row["group"] for row in rows("lag", "--min-lag", "31", "-t", "orders")] == ["old", "dead"]
    assert [row["group"] for row in rows("lag", "li*", "dead")] == ["dead", "live"]
    assert [row["group"] for row in rows("lag", "--min-time", "26m")] == [], "that of old is at least 25m"
    for option, least, number in (("--min-lag", "1", 1), ("--min-time", "22m", 1), ("--min-time", "26m", 2)):
        ended = ask("lag", option, least)
        left_out = (
            f"offsetlake: {number} groups whose lag or lag time is not known, or only a lower bound (>=), "
        )
        assert (ended.code, f"{left_out}are left out\n" in ended.err) == (0, True), ended.err
    assert "left out" not in ask("lag", "--min-lag", "0", "-t", "orders").err
    assert ask("lag", "--min-lag", "9" * 20).code == 2
    ended = ask("lag", "deat", "-t", "orders:4")
    assert (ended.code, "group 'deat' is not there. Did you mean dead?" in ended.err) == (1, True)


def test_lag_of_a_past_moment(world: LagTables, rows: Json) -> None:
    moment = iso(world.start + 4 * MINUTE_MS + 30_000)
    found = {row["group"]: row["lag"] for row in rows("lag", "--as-of", moment)}
    assert (found["dead"], found["live"]) == (10, 10)


def test_watching_prints_again_until_it_is_stopped(world: LagTables) -> None:
    command = [sys.executable, "-c", OFTEN, "lag", "--watch", "--table-root", world.tables.root]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=BUFFERED, preexec_fn=heed_ctrl_c
    ) as process:
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in range(7)]  # a head, four groups, a blank one, the head
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    assert (seen[0].split()[0], seen[1].split()[0], seen[5]) == ("GROUP", "old", "\n")
    assert seen[6] == seen[0]


def test_watching_on_a_terminal_draws_a_screen_that_is_gone_at_the_end(
    world: LagTables,
) -> None:
    command = [sys.executable, "-m", "streaming.cli", "lag", "--watch", "--table-root", world.tables.root]
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    with subprocess.Popen(
        command, stdin=slave, stdout=slave, env={**BUFFERED, "TERM": "xterm"}, preexec_fn=heed_ctrl_c
    ) as process:
        os.close(slave)
        seen = b""
        while b"Ctrl-C ends it" not in seen:
            seen += os.read(master, 65_536)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    with suppress(OSError):  # Linux: no one has the other end any more
        seen += os.read(master, 65_536)
    os.close(master)
    text = seen.decode()
    assert text.startswith("\x1b[?1049h")  # to another screen, and back
    assert text.endswith("\x1b[?1049l")
    frames = text.split("\x1b[2J")[1:]  # one, unless the job's silence has become worth a line meanwhile
    for frame in frames:
        assert re.findall(r"H(old|dead|live|lost) ", frame) == ["old", "dead", "live", "lost"]
        assert "LAG-TIME" in frame
    shapes = [set(re.findall(r"\x1b\[(\d+);1H", frame)) for frame in frames]  # a line may take two rows, too
    assert shapes
    assert all(one != other for one, other in pairwise(shapes)), text  # drawn anew for a reason


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        *(pytest.param(number, marks=pytest.mark.more) for number in (signal.SIGHUP, signal.SIGTSTP)),
    ],
)
def test_a_signal_gives_the_terminal_its_screen_back(world: LagTables, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "streaming.cli", "lag", "--watch", "--table-root", world.tables.root]
    master, slave = pty.openpty()
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env={**BUFFERED, "TERM": "xterm"}, process_group=0
    )
    os.close(slave)
    try:
        assert seen_until(master, b"Ctrl-C ends it").startswith(b"\x1b[?1049h")
        process.send_signal(number)
        assert seen_until(master, b"\x1b[?1049l").endswith(b"\x1b[?25h\x1b[?1049l")
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if number != signal.SIGTSTP:
            assert os.waitstatus_to_exitcode(status) == -number
            return
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)  # and it goes on where it was
        again = seen_until(master, b"Ctrl-C ends it")
        assert (again.startswith(b"\x1b[?1049h"), b"GROUP" in again) == (True, True)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait(20)
        os.close(master)


def seen_until(master: int, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        assert select.select([master], [], [], 30)[0], f"waited in vain for {wanted!r} after {seen!r}"
        seen += os.read(master, 65_536)
    return seen


def test_what_is_said_stays_on_a_screen_that_has_no_room_for_all_groups() -> None:
    lines, below = [Text(f"group {number}") for number in range(30)], [Text("w" * 50), Text("note")]
    shown = fitting(lines, below, os.terminal_size((40, 10)))
    assert [line.plain for line in shown] == [
        *(f"group {number}" for number in range(6)),
        "... 24 more lines",
    ]
    assert fitting(lines[:7], below, os.terminal_size((40, 10))) == lines[:7]
    assert len(fitting(lines, below, os.terminal_size((40, 2)))) == 1


@pytest.mark.parametrize("more", [["--output", "json"], ["--as-of", "1m"]])
def test_watching_is_for_the_present_and_for_people(ask: Any, more: list[str]) -> None:
    ended = ask("lag", "--watch", *more)
    assert (ended.code, "--watch: expected neither --as-of nor --output" in ended.err) == (2, True)


# --- history ---------------------------------------------------------------------------------------------


def test_the_history_of_a_group_has_the_lag_of_every_step(ask: Any, rows: Json) -> None:
    found = rows("history", "dead")
    assert [row["lag"] for row in found] == [30, 10, 10, 10, 10, 30]
    assert [row["lag_seconds"] for row in found] == pytest.approx([0, 9, 9, 9, 9, 29], abs=1.1)
    assert [row["lag_is_at_least"] for row in found] == [True, *[False] * 5]  # it was so at the first sample
    assert "LAG-TIME" in ask("history", "dead").out
    assert [row for row in rows("history") if row["group"] == "dead"] == found


def test_a_series_has_positions_and_lag_at_regular_moments(world: LagTables, ask: Any, rows: Json) -> None:
    since, until = (iso(world.start + minute * MINUTE_MS) for minute in (5, 20))
    found = rows("history", "dead", "--since", since, "--until", until, "--every", "5m")
    assert [row["at"] for row in found] == [iso(world.start + m * MINUTE_MS) for m in (5, 10, 15, 20)]
    assert [row["lag"] for row in found] == [30, 330, 630, 930]
    assert len({row["at"] for row in rows("history", "live", "--since", "10m", "--every", "1m")}) == 11
    ended = ask("history", "dead", "--every", "5m")
    assert (ended.code, "--every: expected --since" in ended.err) == (2, True)


def test_a_rewind_says_who_can_have_done_it(tmp_path: Path, offsetlake: Any) -> None:
    world = LagTables(tmp_path, now_ms() - 60_000)
    member = {"member_id": "m", "group_instance_id": None, "client_id": "app", "client_host": "/10.0.0.1"}
    steps: list[Batch] = [
        {"live": group(source_offset=1_000, members=[member])},
        {("live", "orders", 0): offset(committed_offset=9, source_offset=1_001)},
        {"live": group(source_offset=1_002, state="Empty", members=[])},
        {("live", "orders", 0): offset(committed_offset=5, source_offset=1_003)},
    ]
    live: Batch = {("live", "orders", 0): offset(committed_offset=world.end_at(MINUTES) - 30)}
    for number, batch in enumerate(steps):
        append(world.tables, batch, live=live, now=world.now + 1_000 * number)
        live |= batch
    asked = ["history", "--table-root", world.tables.root, "--event"]
    found = json.loads(offsetlake(*asked, "rewind", "--output", "json").out)
    assert [(row["committed_offset"], row["by"]) for row in found] == [
        (9, "app/10.0.0.1"),
        (5, "while no member was there"),
    ]
    assert "by" not in json.loads(offsetlake(*asked, "commit", "--output", "json").out)[0]
    assert offsetlake(*asked, "rewind", "dead", "--output", "json").out == "[]\n"


# --- health ----------------------------------------------------------------------------------------------


def test_health_has_the_worst_first_and_why(rows: Json) -> None:
    found = rows("health")
    assert (found[0]["group"], found[0]["status"]) == ("dead", "STOPPED")
    by_group = {row["group"]: row for row in found}
    assert (by_group["live"]["status"], by_group["lost"]["status"]) == ("OK", "UNKNOWN")
    assert by_group["lost"]["reason"] == "log end unknown"
    assert (by_group["dead"]["topic"], by_group["dead"]["partition"], by_group["dead"]["lag"]) == (
        "orders",
        0,
        1230,
    )


@pytest.mark.parametrize("command", ["offsets", "lag", "health", "health --since 1s"])
@pytest.mark.parametrize("topic", ["new*", "new-one", "new-one:1"])
def test_a_topic_that_is_only_assigned_is_found(
    tmp_path: Path, offsetlake: Any, command: str, topic: str
) -> None:
    tables = new_tables(tmp_path)
    assigned = [{"topic": "new-one", "topic_id": None, "subtopology": None, "partitions": [1]}]
    member = {"member_id": "m", "client_id": "c", "client_host": "/h", "assignment": assigned}
    append(tables, {("g", "t", 0): offset(), "g": group(members=[member])}, now=now_ms())
    arguments = ("--topic", topic, "--table-root", tables.root, "--output", "json")
    ended = offsetlake(*command.split(), *arguments)
    assert (ended.code, {row["group"] for row in json.loads(ended.out)}) == (0, {"g"})
    assert "new" not in ended.err


def test_partitions_that_are_only_assigned_are_not_said_to_have_committed_offsets(
    tmp_path: Path, offsetlake: Any
) -> None:
    tables = new_tables(tmp_path)
    assigned = [{"topic": "t", "topic_id": None, "subtopology": None, "partitions": [1, 2]}]
    member = {"member_id": "m", "client_id": "c", "client_host": "/h", "assignment": assigned}
    append(tables, {"g": group(members=[member])}, now=now_ms())
    ended = offsetlake("offsets", "--topic", "t:7", "--table-root", tables.root, "--output", "json")
    assert (ended.code, json.loads(ended.out)) == (1, [])
    said = "offsetlake: topic partition 't:7' is not there: the lowest known partition is 1, the highest 2"
    assert said in ended.err.splitlines()


def test_a_history_that_begins_later_is_said(tmp_path: Path, offsetlake: Any) -> None:
    tables, minute = new_tables(tmp_path), 60_000
    first = now_ms() - 30 * minute
    there: Batch = {("brief", "t", 0): offset(commit_timestamp=first)}
    append(tables, there | {"brief": group(type="classic")}, now=first)
    append(tables, dict.fromkeys(there), live=there, now=first + minute)
    heartbeat(tables, now_ms())
    asked = ["brief", "--table-root", tables.root, "--output", "json", "--since"]
    remark = f"offsetlake: history starts at {iso(first)}"
    for more in (["history", *asked, "1d", "--every", "1h"], ["health", *asked, "1d"]):
        assert remark in offsetlake(*more).err.splitlines(), more
    ended = offsetlake("history", *asked, "10m", "--every", "5m")
    nothing = "offsetlake: group 'brief' has no committed offsets at these moments"
    assert (ended.code, ended.err.splitlines()) == (0, [nothing])


@pytest.mark.parametrize("until", [[], ["--until", "now"]], ids=["by default", "now"])
def test_until_now_includes_the_newest_batch_of_a_job_whose_clock_is_ahead(
    tmp_path: Path, offsetlake: Any, until: list[str]
) -> None:
    tables, ahead = new_tables(tmp_path), now_ms() + 10 * MINUTE_MS
    append(tables, {("g", "t", 0): offset(commit_timestamp=ahead), "g": group()}, now=ahead)
    asked = ("g", "--since", "1h", *until, "--table-root", tables.root, "--output", "json")
    for more in (["history"], ["history", "--every", "5m"], ["health"]):
        ended = offsetlake(*more, *asked)
        found = ended.code, len(json.loads(ended.out)), "has no committed" in ended.err
        assert found == (0, 1, False), more
    queries, since = LagQueries(tables), from_ms(ahead - MINUTE_MS)
    assert len(queries.lag_over_time(["g"], since=since, every_ms=1_000_000).rows) == 1
    assert len(queries.health_changes(["g"], since=since).rows) == 1


def test_a_topic_whose_offset_went_before_is_said_to_have_none(tmp_path: Path, offsetlake: Any) -> None:
    tables, now = new_tables(tmp_path), now_ms()
    there: Batch = {
        ("g", topic, 0): offset(commit_timestamp=now - 100 * MINUTE_MS) for topic in ("gone", "there")
    }
    append(tables, there, now=now - 100 * MINUTE_MS)
    append(tables, {("g", "gone", 0): None}, live=there, now=now - 90 * MINUTE_MS)
    heartbeat(tables, now)
    asked = ["-t", "gone", "-t", "there", "--since", "40m", "--table-root", tables.root, "--output", "json"]
    nothing = "offsetlake: topic 'gone' has no committed offsets of these groups at these moments"
    for more in (["health", "g", *asked], ["history", "g", *asked, "--every", "10m"]):
        ended = offsetlake(*more)
        assert (ended.code, json.loads(ended.out)[0]["topic"]) == (0, "there")
        assert nothing in ended.err.splitlines(), more


@pytest.mark.parametrize("since", [[], ["--since", "3s"]], ids=["now", "since"])
def test_topics_that_determine_no_status_are_there(tmp_path: Path, offsetlake: Any, since: list[str]) -> None:
    tables, now = new_tables(tmp_path), now_ms() - 5_000
    keys = [("g", "t", 0), ("g", "t", 1), ("g", "u", 0)]
    append(tables, {"g": group()} | {key: offset(commit_timestamp=now) for key in keys}, now=now)
    heartbeat(tables, now + 4_000)
    asked = ["health", "g", *since, "-t", "t:0,1", "-t", "u", "--table-root", tables.root]
    ended = offsetlake(*asked, "--output", "json")
    assert (ended.code, len(json.loads(ended.out)), "has no committed" in ended.err) == (0, 1, False)
    ended = offsetlake(*asked, "-t", "u:7", "-t", "nowhere", "--output", "json")
    assert (ended.code, "'u:7' is not there" in ended.err, "'nowhere' is not there" in ended.err) == (
        1,
        True,
        True,
    )


def test_health_may_be_narrowed_down_by_status(ask: Any, rows: Json) -> None:
    assert [row["group"] for row in rows("health", "--status", "stopped,stalled")] == ["dead"]
    assert [row["group"] for row in rows("health", "live", "--status", "STOPPED")] == []
    ended = ask("health", "--status", "stoped")
    assert (ended.code, "expected one of OK, UNKNOWN," in ended.err) == (2, True)
    assert "Did you mean STOPPED or" in ended.err
    assert ask("health", "nobody").code == 1


def test_health_of_a_past_moment_and_its_changes(world: LagTables, ask: Any, rows: Json) -> None:
    moment = iso(world.start + 6 * MINUTE_MS)
    assert {row["group"]: row["status"] for row in rows("health", "--as-of", moment)}["dead"] == "OK"
    changes = rows("health", "dead", "--since", iso(world.start + 3 * MINUTE_MS))
    assert [(row["status_before"], row["status"]) for row in changes][-1] == ("OK", "STOPPED")
    stopped = rows("health", "dead", "--since", iso(world.start), "--status", "STOPPED")
    assert [row["status"] for row in stopped] == ["STOPPED"]
    ended = ask("health", "--since", "1h", "--as-of", "1m")
    assert (ended.code, "--since and --until: expected without --as-of" in ended.err) == (2, True)


def test_settings_are_those_of_the_rules(ask: Any, tmp_path: Path) -> None:
    config = tmp_path / "mine.toml"
    config.write_text('[health]\nwindow = "1h"\nmin_lag = 5000\n')
    ended = ask("health", "dead", "--config", str(config), "--output", "json")
    assert json.loads(ended.out)[0]["reason"] == "caught up"
    config.write_text('[health]\nwindow = "30s"\n')
    ended = ask("health", "--config", str(config))
    assert (ended.code, "health.window is 30 s" in ended.err) == (2, True)
