"""Members on the command line: one line each, and whose partitions are, as Kafka's own tool shows it."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from log_end_rows import of_topic, rows_of
from new_tables import new_tables
from table_batches import append, group, offset

from streaming.common.times import now_ms
from streaming.model.progress import PartitionEnds, PartitionProgress

IDENTITY = {"group_instance_id": None, "client_id": "app", "client_host": "/10.0.0.1"}
MEMBERS = [
    {
        **IDENTITY,
        "member_id": "m-1",
        "member_epoch": 6,
        "is_classic": False,
        "assignment": [{"topic": None, "topic_id": "id-1", "partitions": [1, 0]}],
        "target_assignment": [{"topic": None, "topic_id": "id-1", "partitions": [1]}],
    },
    {**IDENTITY, "member_id": "m-2", "member_epoch": 7, "assignment": [], "target_assignment": []},
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    tables = new_tables(tmp_path_factory.mktemp("members") / "tables")
    now = now_ms()
    loaded = PartitionProgress(position=12, loaded=True).with_ends(PartitionEnds(12, 12), now)
    batch = {
        "billing": group(type="consumer", members=MEMBERS, assignment_epoch=7),
        "idle": group(state="Empty"),
        ("billing", "orders", 0): offset(committed_offset=5),
        ("billing", "orders", 2): offset(committed_offset=6),
    }
    append(tables, batch, now=now, partitions={3: loaded})
    tables.append_log_ends(rows_of([of_topic(now - 1_000, "orders", "id-1")]))
    return tables.root


def lines(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines() if not line.startswith("as of")]


def test_members_are_one_line_each(offsetlake: Any, root: str) -> None:
    ended = offsetlake("groups", "billing", "--members", "--table-root", root)
    assert ended.code == 0
    assert lines(ended.out) == [
        ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"],
        ["billing", "m-1", "-", "/10.0.0.1", "app", "2"],
        ["billing", "m-2", "-", "/10.0.0.1", "app", "0"],
    ]


def test_members_in_full_have_epochs_and_assignments(offsetlake: Any, root: str) -> None:
    ended = offsetlake("groups", "--members", "--verbose", "--table-root", root)
    head, *rows = [line[5:] for line in lines(ended.out)]
    assert head == [
        *["#PARTITIONS", "CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"],
        *["UPGRADED", "RACK-ID"],
    ]
    assert rows == [
        ["2", "6", "orders:0,1", "7", "orders:1", "true", "-"],
        ["0", "7", "-", "7", "-", "-", "-"],
    ]


def test_a_group_without_members_is_reported_as_kafkas_tool_does(offsetlake: Any, root: str) -> None:
    ended = offsetlake("groups", "idle", "--members", "--table-root", root)
    about, said = ended.err.splitlines()
    assert (ended.code, about[:6], said) == (0, "as of ", "Consumer group 'idle' has no active members.")


def test_json_of_members_has_what_they_have_as_lists(offsetlake: Any, root: str) -> None:
    ended = offsetlake("groups", "billing", "--members", "--output", "json", "--table-root", root)
    first, second = json.loads(ended.out)
    [assigned] = first["current_assignment"]
    assert (assigned["topic"], assigned["topic_id"], assigned["partitions"]) == ("orders", "id-1", [1, 0])
    assert (first["partition_count"], second["current_assignment"]) == (2, [])


def test_groups_name_their_members_alone(offsetlake: Any, root: str) -> None:
    ended = offsetlake("groups", "billing", "--output", "json", "--table-root", root)
    [row] = json.loads(ended.out)
    assert row["members"] == [{**IDENTITY, "member_id": name} for name in ("m-1", "m-2")]
    assert row["assignment_epoch"] == 7


def test_offsets_say_whose_partitions_are(offsetlake: Any, root: str) -> None:
    ended = offsetlake("offsets", "billing", "--output", "csv", "--table-root", root)
    rows = [*csv.DictReader(io.StringIO(ended.out))]
    names = ("partition", "consumer_id", "host", "client_id")
    assert [[row[name] for name in names] for row in rows] == [
        ["0", "m-1", "/10.0.0.1", "app"],
        ["1", "m-1", "/10.0.0.1", "app"],  # nothing is committed for it
        ["2", "", "", ""],
    ]


@pytest.mark.parametrize(
    "options", [["--verbose"], ["--members", "--list"], ["--members", "--state", "Empty"]]
)
def test_options_that_contradict_are_misuse(offsetlake: Any, tmp_path: Path, options: list[str]) -> None:
    ended = offsetlake("groups", *options, "--table-root", str(tmp_path))
    assert (ended.code, ended.out) == (2, "")
    assert f"{options[0]}: expected" in ended.err
