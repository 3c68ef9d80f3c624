"""The command: exit code 0 for answers, 1 for failures, 2 for misuse; only answers go to standard output."""

import json
import os
import re
import shlex
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from new_tables import new_tables
from table_batches import append, group, heartbeat, offset

from streaming.cli.main import cli
from streaming.cli.output import FORMATS
from streaming.common.times import now_ms
from streaming.model.progress import PROGRESS_FORMAT, PartitionEnds, PartitionProgress, Progress
from streaming.model.schemas import CHANGES, CHANGES_IN_BATCH
from streaming.model.totals import Totals
from streaming.tables.commits import PROGRESS_KEY
from streaming.tables.rows import change_rows
from streaming.tables.tables import Tables

COMMAND = [sys.executable, "-m", "streaming.cli"]
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
ROOT = Path(__file__).parents[2]
ENDS = {0: PartitionEnds(5, 5), 1: PartitionEnds(9, 9)}
GROUP_TOMBSTONE = '{"key": "0002000167", "value": null}'


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Tables that a job writes to."""
    return fill(tmp_path_factory.mktemp("tables"), heartbeat=now_ms())


@pytest.fixture
def root(filled: str) -> str:
    """The same, with a heartbeat of now."""
    tables, now = Tables(filled), now_ms()
    heartbeat(tables, now, partitions=tables.progress().with_ends(ENDS, now).partitions)
    return filled


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same tables, to which no job has written for long."""
    return fill(tmp_path_factory.mktemp("tables"), heartbeat=1)


def fill(directory: Path, *, heartbeat: int) -> str:
    """Fill tables with the groups "" and shop, and billing in offsets partition 1, still being read."""
    tables = new_tables(directory)
    rows = [
        {
            "kind": kind,
            "op": "set",
            "group": group,
            "topic": "orders",
            "partition": 0,
            "source_partition": partition,
            **value,
        }
        for group, partition in {"billing": 1, "shop": 0, "": 0}.items()
        for kind, value in (
            ("offset", {"after": {"committed_offset": 5}}),
            ("group", {"group_after": {"type": "classic", "state": "Empty", "members": []}}),
        )
    ]
    changes = pa.Table.from_pylist(rows, CHANGES_IN_BATCH)
    progress = Progress(
        topic="__consumer_offsets", sequence=1, batch_time=1, heartbeat=heartbeat, totals=Totals(decoded=4)
    )
    progress = progress.with_positions({0: 5, 1: 0}).with_ends(ENDS, now=0)
    tables.append_changes(change_rows(changes, sequence=1, batch_time=0)[0], progress, is_batch=False)
    return tables.root


def create_loaded(directory: Path) -> None:
    """Create tables without rows, whose one offsets partition was read to its end."""
    tables = new_tables(directory)
    now = now_ms()
    progress = Progress(topic="__consumer_offsets", heartbeat=now).with_ends({0: PartitionEnds(0, 0)}, now)
    tables.append_changes(CHANGES.empty_table(), progress, is_batch=False, is_observation=False)


# --- answers ---------------------------------------------------------------------------------------------

LOADING = "COORDINATOR_LOAD_IN_PROGRESS"
IS_READ = "offsets partitions 1 are still being read"
FOOTERS = ("as of ", "lag: ", "one line per group, topic partition ")
"""How the lines begin that stand below a table."""
NOT_READ = "group 'billing': COORDINATOR_LOAD_IN_PROGRESS"
SO_FAR = ", as far as has been read"
NO_PARTITION = (
    f"topic partition 'orders:1' is not there: the lowest known partition is 0, the highest 0{SO_FAR}"
)
NO_TOPIC = f"topic 'order' is not there (no group has committed offsets of it){SO_FAR}. Did you mean orders?"
NO_OFFSETS = ["group 'shop' has no committed offsets of these topics"]
ANSWERS: dict[str, tuple[list[str], list[str]]] = {
    "offsets": (["", "shop"], [IS_READ]),
    "offsets --all-groups": (["", "shop"], [IS_READ]),
    "offsets --group billing": ([], [IS_READ, NOT_READ]),
    "offsets --group shop --group billing": (["shop"], [IS_READ, NOT_READ]),
    "offsets --group '' --group none": ([""], ["group 'none' is not there"]),
    "offsets shop ''": (["", "shop"], []),
    "offsets shop -g billing": (["shop"], [IS_READ, NOT_READ]),
    "offsets -g 'sh*' -t 'ord?rs'": (["shop"], [IS_READ]),
    "offsets --group sohp": ([], ["group 'sohp' is not there. Did you mean shop?"]),
    "offsets --group 'x*'": ([], [IS_READ, f"no group matches 'x*'{SO_FAR}"]),
    "offsets --group shop --topic orders:0,1": (["shop"], [NO_PARTITION]),
    "offsets --group shop --topic orders:1": ([], [*NO_OFFSETS, NO_PARTITION]),
    "offsets --group shop --topic order": ([], [*NO_OFFSETS, NO_TOPIC]),
    "groups": (["", "shop"], [IS_READ]),
    "groups --list": (["", "shop"], [IS_READ]),
    "groups --state stable,EMPTY --type classic": (["", "shop"], [IS_READ]),
    "groups --state Stable": ([], [IS_READ]),
    "groups --type share": ([], [IS_READ]),
    "groups --state dead": ([], [IS_READ, "brokers do not log the state Dead"]),
    "groups --group shop": (["shop"], []),
    "groups shop": (["shop"], []),
    "groups --group '?hop'": (["shop"], [IS_READ]),
    "groups --group shop --group none": (["shop"], ["group 'none' is not there"]),
    "groups --group billing": ([], [IS_READ, NOT_READ]),
    "history --group shop": (["shop"], []),
    "history --group billing": (["billing"], [IS_READ, NOT_READ]),
    "history 'sh*'": (["shop"], [IS_READ]),
    "history": (["", "billing", "shop"], [IS_READ]),
    "history --all-groups --event First": (["", "billing", "shop"], [IS_READ]),
    "history --event rewind": ([], [IS_READ]),
    "history -g shop ''": (["", "shop"], []),
    "history shop --event rewind": ([], ["group 'shop' has no rewind events"]),
    "history shop --until 2h": (["shop"], []),
    "history shop --since 2h": ([], ["group 'shop' has no changes of committed offsets in that time"]),
    "history --group hsop": ([], ["group 'hsop' is not there. Did you mean shop?"]),
    "sql 'SELECT * FROM live_offsets ORDER BY 1'": (["", "billing", "shop"], [IS_READ]),
    "sql 'SELECT * FROM offsets'": ([], [IS_READ]),
}


@pytest.mark.parametrize(("line", "expected"), ANSWERS.items())
def test_query_answers_in_json_and_names_what_is_missing(
    offsetlake: Any, root: str, line: str, expected: tuple[list[str], list[str]]
) -> None:
    groups, complaints = expected
    code, out, err = offsetlake(*shlex.split(line), "--table-root", root, "--output", "json")
    is_told = {one for one in complaints if one.startswith("group 'shop' has no ")}  # it is there
    is_failure = bool({*complaints} - is_told) and "sql" not in line  # which is about the tables as they are
    assert (code, [row["group"] for row in json.loads(out)]) == (int(is_failure), groups)
    assert [re.sub(r"^offsetlake: (COORDINATOR_\w+: )?", "", line) for line in err.splitlines()] == complaints


def test_tables_are_read_from_within_their_folder_and_the_job_alone_refuses_a_checkpoint_there(
    offsetlake: Any, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    code, out, _ = offsetlake("offsets", "shop", "--table-root", ".", "--output", "json")
    assert (code, len(json.loads(out))) == (0, 1)
    code, _, err = offsetlake("run", "--table-root", ".", "--bootstrap-server", "127.0.0.1:1")
    assert (code, "tables.root (.) and job.checkpoint (checkpoints/offsetlake) overlap" in err) == (2, True)


@pytest.mark.timeout(60)
def test_the_job_looks_at_its_tables_before_it_waits_for_brokers(offsetlake: Any, tmp_path: Path) -> None:
    root = tmp_path / "tables"
    root.write_text("a file")
    code, _, err = offsetlake("run", "--table-root", str(root), "--bootstrap-server", "127.0.0.1:1")
    assert (code, f"expected a folder at {root}, found a file" in err) == (1, True), err


def test_a_list_of_groups_is_their_names_alone_as_kafkas_own_tool_prints_it(
    offsetlake: Any, root: str
) -> None:
    code, out, err = offsetlake("groups", "--list", "--table-root", root)
    assert (code, out) == (1, "\nshop\n")  # the empty group id is a name, too
    assert "as of batch 1" in err
    assert IS_READ in err


@pytest.mark.parametrize(
    "line",
    [
        "offsets --group shop --group billing",
        "groups",
        "history --group shop",
        "sql 'SELECT 1 AS n'",
        "status",
    ],
)
def test_document_says_what_the_rows_reflect(offsetlake: Any, left: str, line: str) -> None:
    arguments = [*shlex.split(line), "--table-root", left, "--output"]
    document = json.loads(offsetlake(*arguments, "document").out)
    assert document["rows"] == json.loads(offsetlake(*arguments, "json").out)
    assert document["errors"] == ({"billing": "COORDINATOR_LOAD_IN_PROGRESS"} if "billing" in line else {})
    about = document["as_of"]
    written = "1970-01-01T00:00:00.001Z"
    assert (about["batch"], about["written"], about["last_heartbeat"]) == (1, written, written)
    read = {"state": "current", "position": 5, "last_stable_offset": 5, "high_watermark": 5}
    assert about["partitions"]["0"] == read
    assert about["is_last_known"]
    complaints = [text for text in about["warnings"] if not text.startswith("the job's last heartbeat was ")]
    assert bool(complaints) is ("1" in about["partitions"])
    assert len(about["warnings"]) == len(complaints) + 1


def test_document_says_what_was_asked_for_and_is_not_there(offsetlake: Any, root: str) -> None:
    arguments = ["shop", "-g", "sohp", "-t", "orders:0,7", "-t", "order", "--table-root", root]
    for command in ("offsets", "history", "removed"):
        code, out, _ = offsetlake(command, *arguments, "--output", "document")
        missing = {"groups": ["sohp"], "topics": ["orders:7", "order"]}
        assert (code, json.loads(out)["missing"]) == (1, missing)


@pytest.mark.parametrize("command", ["offsets", "groups", "history", "removed"])
def test_a_pattern_is_not_answered_in_full_before_all_is_read(
    offsetlake: Any, root: str, command: str
) -> None:
    code, out, err = offsetlake(command, "sh*", "--require-complete", "--table-root", root)
    assert (code, out, "offsets partitions 1 are still being read" in err) == (1, "", True)


@pytest.mark.parametrize("command", ["history", "removed"])
def test_nothing_lies_between_a_moment_and_an_earlier_one(offsetlake: Any, root: str, command: str) -> None:
    code, out, err = offsetlake(command, "--since", "1h", "--as-of", "3h", "--table-root", root)
    assert (code, out) == (2, "")
    assert err == "offsetlake: --since: expected a time before --as-of, found 1h, which is after it.\n"
    assert offsetlake(command, "--since", "3h", "--as-of", "3h", "--table-root", root)[0] == 1  # is loading


@pytest.mark.parametrize(
    "line", ["offsets --group shop", "groups --group shop", "history shop", "sql 'SELECT 1 AS n'", "status"]
)
def test_the_age_of_an_answer_is_said_once_the_job_is_silent(offsetlake: Any, left: str, line: str) -> None:
    _, out, err = offsetlake(*shlex.split(line), "--table-root", left)
    heard = re.findall(r"the job's last heartbeat was \d+ d( \d+ h)? ago \(1970-01-01T00:00:00Z\)", err)
    assert len(heard) == 1
    assert "states: last known" in out if line == "status" else "last known state of " in err
    _, out, err = offsetlake(*shlex.split(line), "--table-root", left, "--as-of", "1970-01-01T00:00:30Z")
    assert "heartbeat was" not in err  # of the past, gaps are said
    assert "last known" not in out + err


def test_offsets_for_people_have_the_columns_of_kafka_s_tool(offsetlake: Any, root: str) -> None:
    ended = offsetlake("offsets", "--group", "shop", "--table-root", root)
    title, row = ended.out.splitlines()
    about, of_lag, _ = ended.err.splitlines()
    assert title.split()[:6] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert row.split()[:6] == ["shop", "orders", "0", "5", "-", "-"]
    assert of_lag == "lag: not known, because no log end offsets of these topics have been sampled"
    assert about == "as of batch 1, written 1970-01-01T00:00:00.001Z; offsets partitions: 1 current"


def test_named_groups_without_members_are_reported_as_kafka_s_tool_does(
    offsetlake: Any, tables: Tables
) -> None:
    groups = {
        "idle": group(state="Empty"),
        "at work": group(state="Stable"),
        "moving": group(type="consumer", state="Reconciling"),
        "new\nline": group(type="consumer", state="Assigning"),
        "shared": group(type="share", state="Empty"),
    }
    append(tables, groups, now=now_ms(), partitions={3: PartitionProgress(loaded=True)})
    names = [word for name in groups for word in ("--group", name)]
    ended = offsetlake("offsets", *names, "--table-root", tables.root)
    about, *lines = ended.err.splitlines()
    said = [line for line in lines if "has no committed offsets" not in line]
    assert about.startswith("as of batch 1")
    assert (ended.code, said) == (
        0,
        [
            "Consumer group 'idle' has no active members.",
            "Warning: Consumer group 'moving' is rebalancing.",
            "Warning: Consumer group 'new\\nline' is rebalancing.",
            "Share group 'shared' has no active members.",
        ],
    )
    assert offsetlake("offsets", "--table-root", tables.root).err == f"{about}\n"
    assert "members" not in offsetlake("offsets", *names, "--table-root", tables.root, "--output", "json").err


@pytest.mark.parametrize("line", ["offsets", "groups", "history --group shop"])
def test_past_moments_can_be_asked_about(offsetlake: Any, left: str, line: str) -> None:
    arguments = [*shlex.split(line), "--table-root", left, "--output", "json", "--as-of"]
    code, out, err = offsetlake(*arguments, "1970-01-01T00:00:00.000Z")
    assert (code, out) == (1, "")
    assert (
        "as of 1970-01-01T00:00:00.000Z: history starts at 1970-01-01T00:00:00.001Z, because the tables "
        "are no" in err
    )
    assert [row["group"] for row in json.loads(offsetlake(*arguments, "-1s").out)][-1] == "shop"


def test_a_group_that_came_later_was_not_there_then(offsetlake: Any, tables: Tables) -> None:
    loaded = PartitionProgress(loaded=True)
    append(tables, {"early": group(), ("early", "t", 0): offset()}, now=1_000, partitions={3: loaded})
    append(tables, {("late", "u", 0): offset()}, now=5_000)
    append(tables, {("late", "u", 0): offset(committed_offset=9), "other": group()}, now=7_000)

    def said(*arguments: str) -> list[str]:
        moment = "1970-01-01T00:00:03Z"
        ended = offsetlake("offsets", *arguments, "--table-root", tables.root, "--as-of", moment)
        assert ended.code == 1
        return [line.removeprefix("offsetlake: ") for line in ended.err.splitlines() if "was" in line]

    then = "as of 1970-01-01T00:00:03.000Z"
    assert said("late", "other", "earl") == [
        f"group 'late' was not there {then}: it appears at 1970-01-01T00:00:05.000Z",
        f"group 'other' was not there {then}: it appears at 1970-01-01T00:00:07.000Z",
        f"group 'earl' was not there {then}. Did you mean early?",
    ]
    assert said("early", "--topic", "u") == [
        f"topic 'u' was not there {then} (no group had committed offsets of it)"
    ]
    assert (
        "no group matched 'la*' " + then
        in offsetlake("offsets", "la*", "--table-root", tables.root, "--as-of", "1970-01-01T00:00:03Z").err
    )
    gone = offsetlake("offsets", "late", "--table-root", tables.root, "--as-of", "1970-01-01T00:00:05Z")
    assert (gone.code, "was not there" in gone.err) == (0, False)


def test_times_without_a_zone_are_said_to_be_utc(offsetlake: Any, left: str) -> None:
    arguments = [
        "history",
        "shop",
        "--table-root",
        left,
        "--since",
        "1970-01-02",
        "--until",
        "1970-01-02T01:00:00",
    ]
    err = offsetlake(*arguments).err
    assert err.startswith(
        "offsetlake: --since 1970-01-02: 1970-01-02T00:00:00Z (UTC)\n"
        "offsetlake: --until 1970-01-02T01:00:00: 1970-01-02T01:00:00Z (UTC)\n"
    )
    assert "(UTC)" not in offsetlake(*arguments[:-4], "--since", "1970-01-02T00:00:00Z").err


def test_status_of_a_past_moment(offsetlake: Any, left: str) -> None:
    out = offsetlake("status", "--table-root", left, "--as-of", "1970-01-01T01:00:00Z").out
    assert "decoded" not in out
    assert out.endswith("topic __consumer_offsets; not observed from 1970-01-01T00:00:00.001Z to now\n")


@pytest.mark.parametrize("line", ["offsets --group shop", "groups", "history --group shop"])
def test_answers_can_be_required_to_be_fresh_and_complete(offsetlake: Any, left: str, line: str) -> None:
    arguments = [*shlex.split(line), "--table-root", left, "--output", "json"]
    code, out, err = offsetlake(*arguments, "--max-age", "30s")
    assert (code, out) == (1, "")
    assert "--max-age: expected a heartbeat of the job within 30 s" in err
    old = ["--max-age", "600000h"]  # the job has been silent for as long
    code, out, err = offsetlake(*arguments, "--require-complete", *old)
    assert (code == 1) is (line == "groups")  # only they touch the partition that is still being read
    assert ("--require-complete: expected a complete answer" in err) is (code == 1)


def test_a_heartbeat_far_ahead_is_not_fresh(offsetlake: Any, tmp_path: Path) -> None:
    tables, ahead = new_tables(tmp_path), now_ms() + 3_600_000
    append(tables, {("g", "t", 0): offset()}, now=ahead)
    arguments = ["offsets", "g", "--table-root", tables.root, "--output", "json"]
    for options in (["--require-complete", "--max-age", "30s"], ["--max-age", "30s"]):
        code, out, err = offsetlake(*arguments, *options)
        assert (code, out) == (1, "")
        assert "--max-age: expected a heartbeat of the job within 30 s, found the last one " in err
        assert "ahead of this machine's clock: one of the clocks is wrong" in err
    assert offsetlake(*arguments, "--require-complete", "--max-age", "2h").code == 0


def test_query_says_when_nothing_has_been_read_yet(offsetlake: Any, tmp_path: Path) -> None:
    Tables(str(tmp_path)).create()
    err = offsetlake("offsets", "--group", "billing", "--table-root", str(tmp_path)).err
    assert err.splitlines() == [
        "as of the start: no changes yet; offsets partitions: none known",
        "offsetlake: COORDINATOR_LOAD_IN_PROGRESS: nothing has been read yet",
        "offsetlake: group 'billing': COORDINATOR_LOAD_IN_PROGRESS",
    ]


@pytest.mark.parametrize("output", FORMATS)
@pytest.mark.parametrize(
    "command",
    [
        "offsets --group shop",
        "groups --group shop",
        "history --group shop",
        "sql 'SELECT * FROM changes'",
        "status",
        "status --totals",
    ],
)
def test_every_query_takes_every_format(offsetlake: Any, root: str, command: str, output: str) -> None:
    code, out, err = offsetlake(*shlex.split(command), "--table-root", root, "--output", output)
    told = {
        "sql": f"offsetlake: {LOADING}: {IS_READ}\n",
        "offsets": "Consumer group 'shop' has no active members.\n" if output == "table" else "",
    }
    footers = [line for line in err.splitlines(keepends=True) if line.startswith(FOOTERS)]
    assert bool(footers) == (output == "table" and "status" not in command)
    assert (code, err) == (0, "".join(footers) + told.get(command.split()[0], ""))
    assert out
    assert not any(line.startswith(FOOTERS) for line in out.splitlines())


def test_status_tells_partitions_and_totals(offsetlake: Any, root: str) -> None:
    out = offsetlake("status", "--table-root", root, "--output", "json").out
    states = [(row["partition"], row["state"], row["behind"]) for row in json.loads(out)]
    assert states == [(0, "current", 0), (1, "loading", 9)]
    out = offsetlake("status", "--totals", "--table-root", root, "--output", "json").out
    assert json.loads(out)[0] == {"counter": "decoded", "count": 4} | dict.fromkeys(
        list(json.loads(out)[0])[2:]
    )


def test_status_for_people_ends_with_the_last_heartbeat(offsetlake: Any, root: str, tmp_path: Path) -> None:
    out = offsetlake("status", "--table-root", root).out
    assert re.search(r"topic __consumer_offsets; last heartbeat 0 s ago\n$", out)
    Tables(str(tmp_path)).create()
    assert offsetlake("status", "--table-root", str(tmp_path)).out.endswith("no data recorded yet\n")


def test_nothing_is_said_when_everything_is_loaded(offsetlake: Any, tmp_path: Path) -> None:
    create_loaded(tmp_path)
    assert offsetlake("offsets", "--table-root", str(tmp_path), "--output", "json") == (0, "[]\n", "")


def test_config_names_the_tables_and_an_option_wins(offsetlake: Any, root: str, tmp_path: Path) -> None:
    config = tmp_path / "mine.toml"
    config.write_text(f'[tables]\nroot = "{root}"\n')
    arguments = ["groups", "--config", str(config), "--output", "json"]
    assert len(json.loads(offsetlake(*arguments).out)) == 2  # the groups that are not loading
    assert offsetlake(*arguments, "--table-root", str(tmp_path)).code == 1


# --- decode ----------------------------------------------------------------------------------------------


def test_decode_prints_a_line_for_each_record(offsetlake: Any, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text(f'{GROUP_TOMBSTONE}\n\n{{"key": "0002", "value": null}}\n')
    code, out, err = offsetlake("decode", str(file))
    good, bad = map(json.loads, out.splitlines())
    assert (code, err) == (0, "")
    assert good == {"key": {"type": 2, "data": {"group": "g"}}, "value": None}
    assert bad["error"].keys() == {"reason", "field", "at_byte"}


@pytest.mark.parametrize("line", [b"no json", b"\xff\xfe", b'{"key": 5}'])
def test_decode_names_a_line_of_another_form_and_goes_on(
    offsetlake: Any, tmp_path: Path, line: bytes
) -> None:
    file = tmp_path / "records.jsonl"
    good = GROUP_TOMBSTONE.encode()
    file.write_bytes(b"\n".join([good, line, good, line, b""]))
    code, out, err = offsetlake("decode", str(file))
    assert code == 1
    assert len(out.splitlines()) == 2
    expected = ' expected {"key": hex or null, "value": hex or null}, found '
    assert [one.partition(expected)[0] for one in err.splitlines()] == [
        "offsetlake: line 2:",
        "offsetlake: line 4:",
    ]


def test_decode_reads_standard_input_line_by_line() -> None:
    with subprocess.Popen(
        [*COMMAND, "decode"], cwd=ROOT, env=BUFFERED, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{GROUP_TOMBSTONE}\n".encode())
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["value"] is None  # before standard input has ended


# --- mistakes and failures -------------------------------------------------------------------------------

MISUSE = {
    "--nope": "No such option",
    "lag --since -2h": "No such option '--since'. It shows one moment: use --as-of.",
    "status --group shop": "For a group: `offsetlake groups`, `offsets` or `health`.",
    "nope": "No such command",
    "offsets --output xml": "'xml' is not one of 'table', 'json', 'csv'",
    "offsets --group": "requires an argument",
    "offsets --topic orders:x": "expected a topic, or topic:partition,partition",
    "offsets --group a --all-groups": "--group and --all-groups: expected one of them",
    "offsets --as-of -2h --bootstrap-server b:1": "--as-of and --bootstrap-server: expected one of them",
    "offsets --as-of noon": "--as-of: expected a time, found 'noon'. Write now, 2h (ago), 02:34,",
    "offsets --as-of 1700000000": "append 000",
    "offsets --as-of 2999-01-01": "which is in the future",
    "offsets --as-of -99999999999d": "--as-of: expected a time after 1970-01-01",
    "offsets --group \udcff": "expected text in UTF-8, found '\\udcff'",
    "offsets --max-age soon": "--max-age: expected a duration",
    "groups --group a --state Empty": "--group: expected no --state or --type beside it",
    "groups --state stabel": "--state: expected one of Empty, Stable, Assigning, Reconciling, NotReady, "
    "PreparingRebalance, CompletingRebalance, Dead; found 'stabel'. Did you mean Stable?",
    "groups --state Stable,": "found ''",
    "groups --type clasic": "--type: expected one of classic, consumer, share, streams; found 'clasic'",
    "status --totals --as-of -1h": "--totals and --as-of: expected one of them",
    "history --event rewound": "--event: expected one of first, commit, rewind, removed; found 'rewound'",
    "history --group a --all-groups": "--group and --all-groups: expected one of them",
    "history --group a --since noon": "--since: expected a time, found 'noon'",
    "history --since 1h --until 2h": "--until: expected a time after --since 1h, found 2h",
    "removed --since yesterday": "--since: expected a time",
    "expiring --as-of 2h --bootstrap-server b:1": "--as-of and --bootstrap-server: expected one of them",
    "sql": "Missing argument 'QUERY'",
    "offsets --config {tmp}/none.toml": "none.toml: cannot be read",
    "offsets --config {tmp}/bad.toml": "unknown setting 'tables.rot'",
    "offsets --table-root ''": "'tables.root' expects text that is not empty",
    "offsets --bootstrap-server ''": "--bootstrap-server: expected host:port, or several separated by commas",
    "expiring --bootstrap-server kafka:port": "--bootstrap-server: expected host:port",
    "run --bootstrap-server kafka:65536": "--bootstrap-server: expected host:port",
    "run --command-config {tmp}/mistaken.properties": "mistaken.properties: expected names of Kafka's",
    "run --log-format xml": "'xml' is not one of 'text', 'json'",
    "run --trigger soon": "job.trigger: expected a duration such as 500ms",
    "run --config {tmp}/bad.toml": "unknown setting 'tables.rot'",
    "run --command-config {tmp}/none.properties": "none.properties: cannot be read",
    "demo --for long": "--for: expected a duration",
    "decode {tmp}/none.jsonl": "No such file",
}


@pytest.mark.parametrize(("line", "message"), MISUSE.items())
def test_misuse_ends_with_code_2(offsetlake: Any, tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "bad.toml").write_text('[tables]\nrot = "warehouse"\n')
    (tmp_path / "mistaken.properties").write_text("securty.protocol=SSL\n")
    code, out, err = offsetlake(*shlex.split(line.format(tmp=tmp_path)))
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize("command", ["offsets", "groups", "history --group g", "sql 'SELECT 1'", "status"])
def test_missing_tables_end_with_code_1(offsetlake: Any, tmp_path: Path, command: str) -> None:
    code, out, err = offsetlake(*shlex.split(command), "--table-root", str(tmp_path / "none"))
    assert (code, out) == (1, "")
    assert re.fullmatch(r"offsetlake: reading tables: .*/none/\w+, found none. Check --table-root.*\n", err)
    assert str(tmp_path) in err


def test_missing_tables_are_named_by_their_whole_path(
    offsetlake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"expected a Delta table at {tmp_path}/warehouse/" in offsetlake("offsets").err


def test_a_file_in_place_of_tables_is_called_one(offsetlake: Any, tmp_path: Path) -> None:
    (tmp_path / "lake").touch()
    code, out, err = offsetlake("offsets", "--table-root", str(tmp_path / "lake"))
    assert (code, out) == (1, "")
    assert f"expected a folder at {tmp_path}/lake, found a file. Check --table-root." in err


def test_tables_of_a_newer_release_end_with_code_2(offsetlake: Any, tmp_path: Path) -> None:
    tables = new_tables(tmp_path)
    newer = CommitProperties(custom_metadata={PROGRESS_KEY: json.dumps({"format": PROGRESS_FORMAT + 1})})
    write_deltalake(tables.delta("changes"), CHANGES.empty_table(), mode="append", commit_properties=newer)
    code, _, err = offsetlake("status", "--table-root", str(tmp_path))
    assert code == 2
    assert f"expected format {PROGRESS_FORMAT}, found format {PROGRESS_FORMAT + 1}" in err


@pytest.mark.parametrize("count", [1, 20_000], ids=["small answer", "large answer"])
def test_reader_of_records_may_leave_early(count: int) -> None:
    assert_quiet_without_a_reader("decode", text=f"{GROUP_TOMBSTONE}\n" * count)


@pytest.mark.parametrize("output", FORMATS)
def test_reader_of_an_answer_may_leave_early(tmp_path: Path, output: str) -> None:
    create_loaded(tmp_path)
    assert_quiet_without_a_reader("offsets", "--table-root", str(tmp_path), "--output", output)


def test_unbuffered_output_comes_in_the_order_in_which_it_is_said(tmp_path: Path) -> None:
    create_loaded(tmp_path)
    ended = subprocess.run(
        [*COMMAND, "offsets", "nosuch", "--table-root", str(tmp_path)],
        cwd=ROOT,
        env={**BUFFERED, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    head, *_, last = ended.stdout.decode().splitlines()
    assert head.startswith("GROUP")
    assert last.startswith("offsetlake: group 'nosuch' is not there")


def assert_quiet_without_a_reader(*arguments: str, text: str = "") -> None:
    with subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=ROOT,
        env=BUFFERED,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, err = process.communicate(text.encode())
    assert (process.returncode, err) == (0, b"")


# --- help ------------------------------------------------------------------------------------------------

NAMES = [None, *sorted(cli.commands)]


@pytest.mark.parametrize("name", NAMES)
def test_help_shows_examples_that_parse(offsetlake: Any, name: str | None) -> None:
    code, out, err = offsetlake(*([] if name is None else [name]), "--help")
    assert (code, err) == (0, "")
    examples = re.findall(r"(?m)^ .*?\b(offsetlake(?: [^\s|#]+)+)", out)
    assert examples
    for example in examples:
        _, command, *arguments = takewhile(lambda word: word != ">", shlex.split(example))
        context = cli.commands[command].make_context(command, arguments)
        context.close()
        assert name in (None, command)


def test_no_command_shows_the_help(offsetlake: Any) -> None:
    code, _, err = offsetlake()
    assert code == 2
    assert "Usage: offsetlake" in err


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_option_has_a_help_text(name: str) -> None:
    options = [option for option in cli.commands[name].params if isinstance(option, click.Option)]
    assert [option.name for option in options if not option.help] == []


def test_every_table_can_be_had_wide_and_with_times_in_full() -> None:
    options = {name: {one.opts[0] for one in command.params} for name, command in cli.commands.items()}
    views = {"--wide", "--utc"}
    lines = {"check"}  # printed as they are found, without columns that could be left out
    assert {name for name, own in options.items() if "--output" in own} - lines == {
        name for name, own in options.items() if views <= own
    }


def test_commands_describe_the_options_they_share_alike() -> None:
    described: dict[tuple[str, str | None], set[str]] = {}
    for command in cli.commands.values():
        for option in command.params:
            if isinstance(option, click.Option) and option.help:
                text = option.help.partition(";")[0].rstrip(".")  # --output: the formats differ
                described.setdefault((option.opts[0], option.name), set()).add(text)
    assert {option for option, texts in described.items() if len(texts) > 1} == set()


def test_help_lists_every_command(offsetlake: Any) -> None:
    listed = re.findall(r"(?m)^  (\w+)  +[A-Z]", offsetlake("--help").out)
    assert sorted(listed) == sorted(cli.commands)


def test_version_is_reported(offsetlake: Any) -> None:
    assert re.fullmatch(r"offsetlake, version \d+\.\d+\.\d+\n", offsetlake("--version").out)
