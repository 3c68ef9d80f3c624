"""`leftovers`: the table, and lines for a shell that remove what is left over."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import kafka_clients as kafka
import pytest
from consumer_groups_tool import told_by
from hostile_names import NAMES
from hypothesis import given
from hypothesis import strategies as st
from java_lines import JavaLines
from log_end_rows import gone, of_topic, rows_of
from new_tables import new_tables
from served_clusters import settings_naming
from table_batches import Batch, append, group, offset

from streaming.common.times import DAY_MS, HOUR_MS, now_ms
from streaming.demo.local_broker import LocalBroker
from streaming.model.progress import PartitionEnds, PartitionProgress, Retention
from streaming.queries.leftovers import IDLE, UNSUBSCRIBED
from streaming.queries.removal_lines import UnquotableError, shell_word

SHELLS = ["dash", "bash"]
MEMBER = {"member_id": "m", "client_id": "c", "client_host": "/h"}
TOOL = "kafka-consumer-groups --bootstrap-server kafka:9092"


class World:
    """Tables as a job left them just now, with a group that is idle, and one that has left a topic."""

    def __init__(self, root: Path, now: int) -> None:
        self.tables, self.now = new_tables(root), now
        self.old = now - 30 * DAY_MS
        self.write(
            {
                "idle": self.empty(),
                ("idle", "orders", 0): self.at(self.old),
                ("idle", "orders", 1): self.at(self.old),
                ("idle", "clicks", 0): self.at(self.old - DAY_MS),
                "moved on": group(members=[MEMBER], subscribed_topics=["orders"], source_partition=3),
                ("moved on", "orders", 0): self.at(now),
                ("moved on", "clicks", 7): self.at(now - HOUR_MS),
            }
        )

    def write(self, batch: Batch, **states: PartitionProgress) -> None:
        kept = Retention(
            retention_ms=40 * DAY_MS, check_interval_ms=1, source="broker", read_at=0, known_since=0
        )
        read = PartitionProgress(position=9, loaded=True).with_ends(PartitionEnds(9, 9), self.now)
        partitions = {3: read, 4: states.get("fourth", read)}
        append(self.tables, batch, now=self.now, records_at=self.old, partitions=partitions, retention=kept)

    def at(self, moment: int, **more: Any) -> dict[str, Any]:
        return offset(commit_timestamp=moment, **more)

    def empty(self, **more: Any) -> dict[str, Any]:
        return group(state="Empty", state_timestamp=self.old, subscribed_topics=[], **more)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "tables", now_ms() - 1_000)


@pytest.fixture
def leftovers(world: World, offsetlake: Any) -> Any:
    return lambda *arguments: offsetlake("leftovers", *arguments, "--table-root", world.tables.root)


@pytest.fixture
def lines(leftovers: Any) -> Any:
    """A function that returns the exit code, the lines and the remarks of `--commands`."""

    def ask(*arguments: str) -> tuple[int, list[str], list[str]]:
        ended = leftovers("--commands", "--bootstrap-server", "kafka:9092", *arguments)
        return ended.code, ended.out.splitlines(), ended.err.splitlines()[1:]

    return ask


# --- rows ------------------------------------------------------------------------------------------------


def test_groups_and_topics_are_listed_with_reason_and_expiry(leftovers: Any) -> None:
    ended = leftovers("--output", "json")
    found = [(row["group"], row["topic"], row["partitions"], row["reason"]) for row in json.loads(ended.out)]
    assert (ended.code, found) == (
        0,
        [
            ("idle", "clicks", [0], IDLE),
            ("idle", "orders", [0, 1], IDLE),
            ("moved on", "clicks", [7], UNSUBSCRIBED),
        ],
    )
    head, *rows = leftovers().out.splitlines()
    assert head.split()[:4] == ["GROUP", "TOPIC", "PARTITIONS", "REASON"]
    assert len(rows) == 3
    assert "expires_at" in leftovers("--output", "csv").out.splitlines()[0]


def test_names_time_and_topics_choose(leftovers: Any) -> None:
    def found(*arguments: str) -> list[tuple[str, str]]:
        ended = leftovers(*arguments, "--output", "json")
        return [(row["group"], row["topic"]) for row in json.loads(ended.out)]

    assert found("mov*") == [("moved on", "clicks")]
    assert found("--topic", "orders:1") == [("idle", "orders")]
    assert found("--idle", "31d") == [("moved on", "clicks")]
    assert found("idle", "--idle", "31d") == []
    assert leftovers("idle", "--idle", "31d").err.splitlines()[1:] == [
        "offsetlake: group 'idle' has no left-over offsets"
    ]
    assert leftovers("nobody").code == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--idle", "soon"], "--idle: expected a duration"),
        (["--commands", "--as-of", "1m"], "--commands: expected no --as-of"),
        (["--commands", "--output", "json"], "--commands: expected neither --output, --wide nor --utc"),
        (["--commands", "--wide"], "--commands: expected neither --output, --wide nor --utc"),
        (["--bootstrap-server", "a:1"], "--bootstrap-server: expected --commands beside it"),
        (["--command-config", "f"], "--command-config: expected --commands beside it"),
        (["--commands", "--command-config", "a\n"], "a shell drops line ends"),
    ],
)
def test_misuse_is_refused(leftovers: Any, arguments: list[str], said: str) -> None:
    ended = leftovers(*arguments)
    assert (ended.code, ended.out, said in ended.err) == (2, "", True)


# --- lines -----------------------------------------------------------------------------------------------


def test_lines_look_first_then_delete_a_group_or_offsets_of_topics(world: World, lines: Any) -> None:
    code, found, remarks = lines()
    since = re.search(r"since (\S+Z)", found[0])
    assert since is not None
    assert (code, remarks) == (0, [])
    assert found == [
        f"# group idle: no members, no commits since {since[1]}: clicks, orders",
        f"{TOOL} --describe --group idle",
        f"{TOOL} --delete --group idle",
        "# group moved on: topic no longer subscribed: clicks",
        f"{TOOL} --describe --group 'moved on'",
        f"{TOOL} --delete-offsets --group 'moved on' --topic clicks:7",
    ]


def test_of_an_idle_group_no_more_is_deleted_than_was_asked_for(lines: Any) -> None:
    assert lines("idle", "--topic", "orders")[1][1:] == [
        f"{TOOL} --describe --group idle",
        f"{TOOL} --delete-offsets --group idle --topic orders:0,1",
    ]


def test_settings_of_the_tool_are_passed_on(tmp_path: Path, leftovers: Any) -> None:
    config = tmp_path / "settings.toml"
    config.write_text('[source]\nbootstrap_servers = "one:1,two:2"\n')
    asked = ["idle", "--commands", "--config", str(config), "--command-config", "for admins.properties"]
    assert leftovers(*asked).out.splitlines()[2] == (
        "kafka-consumer-groups --bootstrap-server one:1,two:2 --command-config 'for admins.properties' "
        "--delete --group idle"
    )


def test_lines_for_a_named_cluster_do_not_name_the_brokers_of_another(
    world: World, tmp_path: Path, offsetlake: Any
) -> None:
    roots = {"shop": tmp_path / "none", "bank": Path(world.tables.root)}
    source = '[source]\nbootstrap_servers = "shop:1"'
    config = settings_naming(roots, tmp_path / "settings.toml", source)
    asked = ["leftovers", "idle", "--commands", "--config", str(config), "--cluster", "bank"]
    ended = offsetlake(*asked)
    assert ended.out.splitlines()[2] == (
        "kafka-consumer-groups --bootstrap-server BROKERS-OF-bank:PORT --delete --group idle"
    )
    assert "replace BROKERS-OF-bank:PORT" in ended.err
    ended = offsetlake(*asked, "--bootstrap-server", "bank:2")
    assert (ended.code, "bank:2 --delete" in ended.out, "replace" in ended.err) == (0, True, False)


def test_groups_that_are_not_completely_known_have_no_lines(world: World, lines: Any, leftovers: Any) -> None:
    ended, since = PartitionEnds(9, 9), world.now - HOUR_MS
    late = PartitionProgress(position=5).with_ends(PartitionEnds(5, 5), since)
    late = late.with_ends(ended, since).with_ends(ended, world.now)
    world.write(
        {
            "behind": world.empty(source_partition=4),
            ("behind", "t", 0): world.at(world.old, source_partition=4),
        },
        fourth=late,
    )
    assert "behind" in leftovers().out
    code, found, remarks = lines()
    assert code == 1
    assert len(found) == 6
    assert not any("behind" in line for line in found)
    said = "no lines for groups whose offsets partition is not completely known: 'behind'"
    assert f"offsetlake: {said}" in remarks


def test_what_brokers_would_refuse_is_a_comment(world: World, lines: Any) -> None:
    reads = group(members=[MEMBER], subscribed_topics=["gone", "anew"])
    tasks = group(members=[MEMBER], subscribed_topics=[], type="streams")
    world.write(
        {
            "reads": reads,
            ("reads", "gone", 0): world.at(world.old),
            ("reads", "anew", 0): world.at(world.old),
            ("reads", "no topic\n", 0): world.at(world.now),
            "stopped": group(state="Empty", state_timestamp=world.now, subscribed_topics=[]),
            ("stopped", "anew", 0): world.at(world.old),
            "tasks": tasks,
            ("tasks", "left", 0): world.at(world.now),
        }
    )
    ends = [of_topic(world.old + 1, topic, f"{topic}-1") for topic in ("gone", "anew")]
    ends += [gone(world.now - 1, "gone"), of_topic(world.now - 1, "anew", "anew-2")]
    world.tables.append_log_ends(rows_of(ends))
    code, found, remarks = lines("reads", "stopped", "tasks")
    assert code == 1
    assert remarks == ["offsetlake: 4 topics of groups have no line that removes them: comments say why"]
    assert [line for line in found if "no line" in line or "--delete" in line] == [
        "# no line for topic anew: the group has members: brokers delete no offsets of topics that they read",
        "# no line for topic gone: brokers delete only offsets of topics that they have",
        "# no line for topic no topic\\n: brokers have no topic of such a name, and delete only offsets of "
        "topics that they have",
        f"{TOOL} --delete-offsets --group stopped --topic anew:0",
        "# no line: a streams group; kafka-streams-groups describes and deletes these",
    ]


def test_an_idle_group_has_no_line_for_offsets_of_a_deleted_topic(world: World, lines: Any) -> None:
    world.tables.append_log_ends(rows_of([of_topic(world.old, "clicks", "1"), gone(world.now - 1, "clicks")]))
    code, found, _ = lines("idle", "--topic", "clicks", "--topic", "orders")
    assert (code, found[2:]) == (
        1,
        [
            "# no line for topic clicks: brokers delete only offsets of topics that they have",
            f"{TOOL} --delete-offsets --group idle --topic orders:0,1",
        ],
    )
    assert lines("idle")[1][2:] == [f"{TOOL} --delete --group idle"]


# --- names -----------------------------------------------------------------------------------------------


def read_back(shell: str, words: list[str]) -> list[str]:
    """Return the arguments that a shell makes of words."""
    script = f"printf '%s\\0' {' '.join(words)}"
    ran = subprocess.run([shell], input=script.encode(), capture_output=True, check=True)
    assert ran.stderr == b""
    return ran.stdout.decode().split("\0")[:-1]


def quotable(names: list[str]) -> dict[str, str]:
    words = {}
    for name in names:
        try:
            words[name] = shell_word(name)
        except UnquotableError:
            assert "\0" in name or name.endswith("\n")
    return words


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_reads_hostile_names_back(shell: str) -> None:
    words = quotable([*NAMES, "-n", "-\t", "%s\t\\", "'\x1b[2J", "$(id)\x01`id`", "a\n\nb", "\t1"])
    assert all(word.isprintable() for word in words.values())
    assert read_back(shell, list(words.values())) == list(words)


@given(names=st.lists(st.text(), min_size=1))
def test_a_shell_reads_any_name_back(names: list[str]) -> None:
    words = quotable(names)
    if words:
        assert read_back("sh", list(words.values())) == list(words)


def test_lines_are_one_for_each_command_whatever_the_names(world: World, lines: Any, tmp_path: Path) -> None:
    batch: Batch = {name: world.empty() for name in NAMES}
    world.write(batch | {(name, "t", 0): world.at(world.old) for name in NAMES})
    _, found, remarks = lines("--topic", "t")
    assert all(line.isprintable() for line in found)
    assert all(line.startswith((f"{TOOL} --de", "# group ", "# no line: ")) for line in found)
    fake = tmp_path / "bin" / "kafka-consumer-groups"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\ntest "$3" = --describe || printf "%s\\0" "$5" >> "$0.out"\n')
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{fake.parent}:{os.environ['PATH']}"}
    subprocess.run(["sh"], input="\n".join(found).encode(), check=True, env=environment)
    asked = Path(f"{fake}.out").read_bytes().decode().split("\0")[:-1]
    assert sorted(asked) == sorted(quotable(NAMES))
    lacking = len(NAMES) - len(asked)
    assert remarks[-1].startswith(f"offsetlake: {lacking} topics of groups") == bool(lacking)


@pytest.mark.broker
@pytest.mark.slow
def test_kafka_s_own_tool_deletes_what_the_lines_say(
    tmp_path: Path, offsetlake: Any, broker: LocalBroker, consumer_groups: JavaLines
) -> None:
    bootstrap = broker.bootstrap_servers
    kafka.create_topics(bootstrap, {"left-over": 2, "still-read": 1})
    world = World(tmp_path / "tables", now_ms() - 1_000)
    names = ["-left, 'over'", "left\tover\x1b"]
    batch: Batch = {name: world.empty() for name in names}
    keys = [(name, topic, 0) for name in names for topic in ("left-over", "still-read")]
    world.write(batch | {key: world.at(world.old) for key in keys})
    for name in names:
        kafka.commit_offsets(
            bootstrap, name, {("left-over", 0): 1, ("left-over", 1): 1, ("still-read", 0): 1}
        )

    def committed() -> set[tuple[str, str, int]]:
        return {(key.group, key.topic, key.partition) for key in kafka.broker_offsets(bootstrap)} & {
            (name, topic, number) for name in names for topic, number in PARTITIONS
        }

    def run(*asked: str) -> None:
        named = [word for name in names for word in ("--group", name)]
        ended = offsetlake("leftovers", *named, *asked, "--commands", "--table-root", world.tables.root)
        for line in ended.out.splitlines():
            if not line.startswith("#"):
                _tool, _option, _server, *arguments = read_back("sh", [line])
                told_by(consumer_groups, bootstrap, *arguments)

    assert len(committed()) == 6
    run("--topic", "left-over")
    assert committed() == {(name, *place) for name in names for place in PARTITIONS[1:]}
    run()
    assert committed() == set()


PARTITIONS = [("left-over", 0), ("left-over", 1), ("still-read", 0)]
