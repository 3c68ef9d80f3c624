"""`expiring` and `retired`: what goes soonest, what went and why, and how it is put back."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka_clients import create_topics, produce_raw

from streaming.cli.expiry import reset_lines
from streaming.common.times import now_ms
from streaming.demo.local_broker import LocalBroker
from streaming.model.errors import MisuseError
from streaming.model.progress import (
    BEHIND_AFTER_MS,
    STALLED_AFTER_MS,
    PartitionEnds,
    Progress,
    Reached,
    Retention,
)
from streaming.model.schemas import CHANGES_IN_BATCH
from streaming.queries.completeness import QUIET_AFTER_MS
from streaming.queries.expiring import RetentionUnknownError, list_expiring
from streaming.queries.retired import list_retired, parse_since
from streaming.settings.reading import read_settings
from streaming.tables.rows import change_rows
from streaming.tables.tables import Tables

HOUR, DAY = 3_600_000, 86_400_000
RETENTION = Retention(
    retention_ms=7 * DAY, check_interval_ms=600_000, source="broker", read_at=0, known_since=0
)
SETTINGS = read_settings().expiry

Row = dict[str, Any]


class History:
    """Tables that are filled batch by batch; `now` is when all of them were written."""

    def __init__(self, root: Path) -> None:
        self.tables = Tables(str(root))
        self.tables.create()
        self.now = now_ms()
        ends = {number: PartitionEnds(10, 10) for number in range(3)}
        fresh = Progress(topic="__consumer_offsets", heartbeat=self.now, retention=RETENTION)
        self.progress = fresh.with_positions(dict.fromkeys(range(3), 10)).with_ends(ends, self.now)

    def write(self, *changes: Row, **progress: Any) -> None:
        schema = CHANGES_IN_BATCH.append(pa.field("source_partition", pa.int32()))
        sequence = self.progress.sequence + 1
        rows, _ = change_rows(
            pa.Table.from_pylist(list(changes), schema), sequence=sequence, batch_time=self.now
        )
        self.progress = replace(self.progress, sequence=sequence, **progress)
        self.tables.append_changes(rows, self.progress, is_batch=False)

    def commit(
        self, group: str, topic: str, committed_offset: int, at: int, *, source: int = 0, **more: Any
    ) -> Row:
        value = {"committed_offset": committed_offset, "commit_timestamp": at, **more}
        return key(group, topic, source) | {"op": "set", "after": value, "source_timestamp": at}

    def removal(self, group: str, topic: str, committed_offset: int | None, at: int, cause: str) -> Row:
        before = {"committed_offset": committed_offset}
        change = {"op": "remove", "before": before, "cause": cause, "source_timestamp": at}
        return key(group, topic, 0) | change


def key(group: str, topic: str, source: int) -> Row:
    return {"kind": "offset", "group": group, "topic": topic, "partition": 0, "source_partition": source}


def group(name: str, *topics: str) -> Row:
    value = {"type": "classic", "protocol_type": "consumer" if topics else "", "members": []}
    value |= {"state": "Stable" if topics else "Empty", "subscribed_topics": list(topics)}
    return {"kind": "group", "op": "set", "group": name, "after": value, "source_partition": 0}


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "tables")


@pytest.fixture
def offsetlake(history: History, offsetlake: Any) -> Any:
    """A function that runs the command on the tables, in this process."""
    return partial(_on_tables, offsetlake, history)


def _on_tables(offsetlake: Any, history: History, *arguments: str) -> Any:
    return offsetlake(*arguments, "--table-root", history.tables.root)


# --- expiring --------------------------------------------------------------------------------------------


@pytest.fixture
def soon(history: History) -> History:
    """Offsets that are overdue, go in an hour, in two days, never, and nobody knows when."""
    at = history.now - 7 * DAY
    history.write(
        *(group(name) for name in ("later", "soon", "overdue", "", "unknown")),
        group("never", "t"),
        history.commit("later", "t", 3, at + 2 * DAY),
        history.commit("soon", "t", 2, at + HOUR),
        history.commit("overdue", "t", 1, at - 90_061_000),
        history.commit("", "t", 9, at + HOUR),
        history.commit("unknown", "t", 4, at, unreadable_since=7),
        history.commit("never", "t", 5, at),
    )
    return history


def listed(
    history: History, groups: Sequence[str] = (), within_ms: int | None = None
) -> list[tuple[Any, ...]]:
    listing = list_expiring(history.tables, groups, settings=SETTINGS, now=history.now, within_ms=within_ms)
    names = ["group", "committed_offset", "rule", "time_left"]
    return list(zip(*(listing.rows[name].to_pylist() for name in names), strict=True))


OVERDUE = ("overdue", 1, "simple", "-1d 01:01:01")
IN_AN_HOUR = [("", 9, "simple", "01:00:00"), ("soon", 2, "simple", "01:00:00")]
LATER = ("later", 3, "simple", "2d 00:00:00")
UNKNOWN = ("unknown", 4, "unknown (unreadable)", None)


def test_what_expires_is_listed_soonest_first_and_the_unknown_last(soon: History) -> None:
    assert listed(soon) == [OVERDUE, *IN_AN_HOUR, LATER, UNKNOWN]


def test_within_leaves_out_what_is_due_later_and_keeps_the_unknown(soon: History) -> None:
    assert listed(soon, within_ms=HOUR) == [OVERDUE, *IN_AN_HOUR, UNKNOWN]
    assert listed(soon, within_ms=HOUR - 1) == [OVERDUE, UNKNOWN]
    assert listed(soon, within_ms=10**18) == listed(soon)


def test_groups_may_be_chosen(soon: History) -> None:
    assert listed(soon, ["soon", "later"]) == [IN_AN_HOUR[1], LATER]
    assert listed(soon, [""]) == [IN_AN_HOUR[0]]


def test_what_is_not_loaded_is_left_out_and_what_is_stalled_is_unknown(history: History) -> None:
    at = history.now - DAY
    partitions = dict(history.progress.partitions)
    partitions[0] = replace(partitions[0], loaded=False)
    partitions[1] = replace(partitions[1], held_back_since=history.now - STALLED_AFTER_MS)
    read_until = Reached(as_of=history.now - BEHIND_AFTER_MS - 1)
    partitions[2] = replace(partitions[2], last_stable_offset=11, stable=read_until)
    names = ["loading", "stalled", "behind"]
    history.write(
        *map(group, names),
        *(history.commit(name, "t", 1, at, source=number) for number, name in enumerate(names)),
        partitions=partitions,
    )
    assert listed(history) == [
        ("behind", 1, "simple", "6d 00:00:00"),
        ("stalled", 1, "unknown (stalled)", None),
    ]
    complaints = list_expiring(history.tables, settings=SETTINGS, now=history.now).complaints()
    assert [complaint.split(":")[0] for complaint in complaints] == [
        "COORDINATOR_LOAD_IN_PROGRESS",
        "offsets partitions 1 are stalled",
        "offsets partitions 2 are not current",
    ]


def test_a_job_that_has_gone_quiet_is_spoken_of(soon: History) -> None:
    def complaints(now: int) -> list[str]:
        return list_expiring(soon.tables, settings=SETTINGS, now=now).complaints()

    assert complaints(soon.now + QUIET_AFTER_MS) == []
    [complaint] = complaints(soon.now + QUIET_AFTER_MS + 1_000)
    assert complaint.startswith("the job's last heartbeat was 61 s ago")


def test_without_a_retention_the_error_says_how_to_give_it(soon: History, offsetlake: Any) -> None:
    soon.write(retention=None)
    with pytest.raises(RetentionUnknownError, match=r"on the cluster\) nor in the settings\.$"):
        listed(soon)
    ended = offsetlake("expiring")
    assert (ended.code, ended.out) == (2, "")
    assert "nor in the settings. Use --config with [expiry] retention =" in ended.err
    settings = read_settings(options={"expiry.retention": "8d"}).expiry
    rows = list_expiring(soon.tables, ["soon"], settings=settings, now=soon.now).rows
    assert rows["time_left"].to_pylist() == ["1d 01:00:00"]


def test_where_nothing_was_read_yet_nobody_need_know_the_retention(offsetlake: Any) -> None:
    code, out, err = offsetlake("expiring", "--output", "json")
    assert (code, out) == (0, "[]\n")
    assert err == "offsetlake: COORDINATOR_LOAD_IN_PROGRESS: nothing has been read yet\n"


def test_the_command_prints_what_expires(soon: History, offsetlake: Any) -> None:
    ended = offsetlake("expiring", "--within", "24h", "--group", "soon", "--output", "json")
    assert (ended.code, ended.err) == (0, "")
    [row] = json.loads(ended.out)
    assert list(row) == ["group", "topic", "partition", "committed_offset", "rule", "expires_at", "time_left"]
    assert (row["group"], row["committed_offset"], row["rule"]) == ("soon", 2, "simple")
    assert offsetlake("expiring", "--within", "soon").code == 2


@pytest.mark.parametrize("command", ["expiring", "retired"])
def test_a_document_says_what_the_rows_reflect(history: History, offsetlake: Any, command: str) -> None:
    history.write(history.commit("soon", "t", 2, history.now))
    ended = offsetlake(command, "--output", "document")
    document = json.loads(ended.out)
    assert list(document) == ["as_of", "errors", "rows"]
    assert document["as_of"]["batch"] == history.progress.sequence
    assert document["as_of"]["partitions"]["0"]["state"] == "current"
    assert document["rows"] == json.loads(offsetlake(command, "--output", "json").out)


@pytest.mark.broker
def test_the_command_asks_the_brokers_what_is_at_stake(
    history: History, offsetlake: Any, broker: LocalBroker, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    create_topics(bootstrap, {"stakes": 1})
    produce_raw(bootstrap, "stakes", [(b"key", b"value")] * 10)
    history.write(
        group("g"),
        history.commit("g", "stakes", 4, history.now),
        history.commit("g", "deleted-long-ago", 4, history.now),
    )
    (tmp_path / "client.properties").write_text("client.id=offsetlake-tests\n")
    options = ["--bootstrap-server", bootstrap, "--command-config", str(tmp_path / "client.properties")]
    ended = offsetlake("expiring", *options, "--output", "json")
    assert (ended.code, ended.err) == (0, "")
    names = ["topic", "log_start_offset", "log_end_offset", "lag", "earliest_replays", "latest_skips"]
    assert [tuple(row[name] for name in names) for row in json.loads(ended.out)] == [
        ("deleted-long-ago", None, None, None, None, None),
        ("stakes", 0, 10, 6, 4, 6),
    ]


# --- retired ---------------------------------------------------------------------------------------------


@pytest.fixture
def gone(history: History) -> History:
    """Offsets that went: one came back, one went twice, one with its topic, and one nobody could read."""
    at = history.now - 10 * DAY
    history.write(
        history.removal("twice", "t", 1, at, "deleted"),
        history.removal("back", "t", 2, at + 1, "deleted"),
        history.removal("unread", "t", None, at + 2, "unknown"),
        history.removal("topic", "u", 3, at + 3, "topic deleted (probable)"),
        history.removal('odd "name", really', "t", 4, at + 4, "unknown"),
        history.removal("two\nlines", "t", 4, at + 5, "unknown"),
        history.removal("", "t", 6, at + 6, "expired (probable)"),
        {**history.removal("unheld", "t", 0, at + 7, "unknown"), "before": None},
    )
    history.write(
        history.commit("back", "t", 20, at + DAY),
        history.removal("twice", "t", 5, at + DAY, "expired (probable)"),
    )
    return history


def test_what_went_is_listed_newest_first_and_says_what_came_back(gone: History) -> None:
    rows = list_retired(gone.tables, now=gone.now).rows
    names = ["group", "removed_offset", "cause", "committed_since"]
    assert list(zip(*(rows[name].to_pylist() for name in names), strict=True)) == [
        ("twice", 5, "expired (probable)", None),
        ("", 6, "expired (probable)", None),
        ("two\nlines", 4, "unknown", None),
        ('odd "name", really', 4, "unknown", None),
        ("topic", 3, "topic deleted (probable)", None),
        ("unread", None, "unknown", None),
        ("back", 2, "deleted", 20),
        ("twice", 1, "deleted", None),
    ]


def test_retired_may_be_narrowed_down(gone: History) -> None:
    assert list_retired(gone.tables, groups=["", "back"], now=gone.now).rows["group"].to_pylist() == [
        "",
        "back",
    ]
    newest = gone.now - 9 * DAY
    assert list_retired(gone.tables, now=gone.now, since=newest).rows["group"].to_pylist() == ["twice"]
    assert len(list_retired(gone.tables, now=gone.now, since=newest + 1).rows) == 0


def test_reset_lines_hold_the_last_position_of_what_is_lost(gone: History) -> None:
    assert list(reset_lines(list_retired(gone.tables, now=gone.now).rows)) == [
        "twice,t,0,5\n",
        '"",t,0,6\n',
        '"odd ""name"", really",t,0,4\n',
    ]


@pytest.mark.parametrize("since", [None, 15_000], ids=["of all time", "since a time between the two"])
def test_the_last_removal_is_that_of_the_last_batch_whatever_the_clocks_say(
    history: History, since: int | None
) -> None:
    """The clock of the broker that wrote the first tombstone was ahead."""
    at = history.now - DAY
    history.write(history.removal("g", "t", 1, at + 20_000, "deleted"))
    history.write(history.commit("g", "t", 2, at + 5_000))
    history.write(history.removal("g", "t", 2, at + 10_000, "deleted"))
    rows = list_retired(history.tables, now=history.now, since=since and at + since).rows
    assert rows["removed_offset"].to_pylist() == ([1, 2] if since is None else [1])
    assert list(reset_lines(rows)) == (["g,t,0,2\n"] if since is None else [])


def test_the_command_prints_what_went(gone: History, offsetlake: Any) -> None:
    ended = offsetlake("retired", "--since", "9d", "--group", "twice", "--output", "json")
    assert (ended.code, ended.err, json.loads(ended.out)) == (0, "", [])
    ended = offsetlake("retired", "--since", "30d", "--group", "twice", "--output", "csv")
    assert ended.out.startswith(
        "group,topic,partition,removed_offset,removed_at,cause,committed_since\ntwice,t,0,5,"
    )
    assert offsetlake("retired", "--group", "twice", "--output", "reset-csv").out == "twice,t,0,5\n"
    assert offsetlake("retired", "--since", "yesterday").code == 2


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("7d", 10 * DAY - 7 * DAY),
        ("-7d", 10 * DAY - 7 * DAY),
        ("500ms", 10 * DAY - 500),
        ("1970-01-02", DAY),
        ("1970-01-02T01:00:00Z", DAY + HOUR),
        ("1970-01-02T01:00:00+01:00", DAY),
        ("1970-01-02T01:00:00", DAY + HOUR),
    ],
)
def test_since_is_a_duration_or_a_time(text: str, milliseconds: int) -> None:
    assert parse_since(text, 10 * DAY, name="--since") == milliseconds


@pytest.mark.parametrize("text", ["", "yesterday", "7 parsecs", "2026"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(MisuseError, match="--since: expected a "):
        parse_since(text, 0, name="--since")
