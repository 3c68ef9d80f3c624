"""`expiring` and `removed`: what goes soonest, what went and why, and how it is put back."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka_clients import create_topics, produce_raw
from log_end_rows import Sample, rows_of
from new_tables import new_tables

from streaming.common.times import iso, now_ms
from streaming.demo.local_broker import LocalBroker
from streaming.model import schemas
from streaming.model.completeness import COMPLETE_WITHIN_MS
from streaming.model.progress import (
    PartitionEnds,
    Progress,
    Reached,
    Retention,
)
from streaming.model.schemas import CHANGES_IN_BATCH
from streaming.queries.expiring import EXPIRING, Listing, RetentionUnknownError, list_expiring
from streaming.queries.removed import list_removed, restorable
from streaming.queries.reset_csv import reset_lines
from streaming.settings.reading import read_settings
from streaming.tables.rows import change_rows

HOUR, DAY = 3_600_000, 86_400_000
RETENTION = Retention(
    retention_ms=7 * DAY, check_interval_ms=600_000, source="broker", read_at=0, known_since=0
)
SETTINGS = read_settings().expiry

Row = dict[str, Any]


class History:
    """Tables that are filled batch by batch; `now` is when all of them were written."""

    def __init__(self, root: Path) -> None:
        self.tables = new_tables(root)
        self.now = now_ms()
        ends = {number: PartitionEnds(10, 10) for number in range(3)}
        fresh = Progress(topic="__consumer_offsets", heartbeat=self.now, retention=RETENTION)
        self.progress = fresh.with_positions(dict.fromkeys(range(3), 10)).with_ends(ends, self.now)

    def write(self, *changes: Row, **progress: Any) -> None:
        schema = CHANGES_IN_BATCH
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
    return {"kind": "group", "op": "set", "group": name, "group_after": value, "source_partition": 0}


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
        history.commit("unknown", "t", 4, at, unreadable_source_offset=7),
        history.commit("never", "t", 5, at),
    )
    return history


def caveats(listing: Listing) -> list[str]:
    """What is said beside a listing, where a heartbeat comes every 10 s."""
    return [*listing.about.caveats(), *listing.all_remarks()]


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
    old = Reached(as_of=history.now - COMPLETE_WITHIN_MS - 1)
    partitions[1] = replace(partitions[1], open_transaction_since=history.now - HOUR, whole=old)
    partitions[2] = replace(partitions[2], last_stable_offset=11, whole=old)
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
    listing = list_expiring(history.tables, settings=SETTINGS, now=history.now)
    assert [caveat.split(":")[0] for caveat in caveats(listing)] == [
        "COORDINATOR_LOAD_IN_PROGRESS",
        "offsets partitions 2 are behind",
        "offsets partitions 1 are stalled",
    ]


def test_a_job_that_has_gone_quiet_is_spoken_of(soon: History) -> None:
    def said(now: int) -> list[str]:
        return caveats(list_expiring(soon.tables, settings=SETTINGS, now=now))

    assert said(soon.now + COMPLETE_WITHIN_MS) == []
    [sentence] = said(soon.now + COMPLETE_WITHIN_MS + 1)
    assert sentence.startswith("the job's last heartbeat was 3 min ago (")
    [sentence] = said(soon.now + 2 * HOUR + 300_000)
    assert sentence.startswith("the job's last heartbeat was 2 h 5 min ago (")


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
    assert (code, out) == (1, "[]\n")
    assert err == "offsetlake: COORDINATOR_LOAD_IN_PROGRESS: nothing has been read yet\n"


def test_the_command_prints_what_expires(soon: History, offsetlake: Any) -> None:
    ended = offsetlake("expiring", "--within", "24h", "--group", "soon", "--output", "json")
    assert (ended.code, ended.err) == (0, "")
    [row] = json.loads(ended.out)
    assert list(row) == EXPIRING.names
    assert (row["group"], row["committed_offset"], row["rule"]) == ("soon", 2, "simple")
    assert offsetlake("expiring", "--within", "soon").code == 2


@pytest.mark.parametrize("command", ["expiring", "removed"])
def test_a_document_says_what_the_rows_reflect(history: History, offsetlake: Any, command: str) -> None:
    history.write(history.commit("soon", "t", 2, history.now))
    ended = offsetlake(command, "--output", "document")
    document = json.loads(ended.out)
    assert list(document) == ["as_of", "errors", "missing", "rows"]
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
    ended = offsetlake("offsets", "--topic", "stakes", *options)
    assert ended.code == 0
    assert re.search(r"\nlag: commits up to \S+Z, log end offsets of \S+Z\n$", ended.err)
    long_ago = Reached(as_of=history.now - HOUR)
    stale = replace(history.progress.partitions[0], stable=long_ago, whole=long_ago)
    history.write(partitions={**history.progress.partitions, 0: stale})
    for command in ("offsets", "expiring"):
        assert (
            "offsetlake: the lag shown is not the present lag of the groups: "
            in offsetlake(command, *options).err
        )


# --- removed ---------------------------------------------------------------------------------------------


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
    history.tables.append_log_ends(rows_of([Sample(history.now, "t", 0, 1_000, "id")]))
    return history


def test_what_went_is_listed_newest_first_and_says_what_came_back(gone: History) -> None:
    rows = list_removed(gone.tables, now=gone.now).rows
    names = ["group", "removed_offset", "cause", "committed_offset"]
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


def test_removed_may_be_narrowed_down(gone: History) -> None:
    assert list_removed(gone.tables, groups=["", "back"], now=gone.now).rows["group"].to_pylist() == [
        "",
        "back",
    ]
    newest = gone.now - 9 * DAY
    assert list_removed(gone.tables, now=gone.now, since=newest).rows["group"].to_pylist() == ["twice"]
    assert len(list_removed(gone.tables, now=gone.now, since=newest + 1).rows) == 0


def test_reset_lines_hold_the_last_position_of_what_is_lost(gone: History) -> None:
    lost = restorable(list_removed(gone.tables, now=gone.now).rows)
    assert list(reset_lines(lost, one_group=False)) == [
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
    rows = list_removed(history.tables, now=history.now, since=since and at + since).rows
    assert rows["removed_offset"].to_pylist() == ([1, 2] if since is None else [1])
    lines = list(reset_lines(restorable(rows), one_group=True))
    assert lines == (["t,0,2\n"] if since is None else [])


def test_the_command_prints_what_went(gone: History, offsetlake: Any) -> None:
    ended = offsetlake("removed", "--since", "9d", "--group", "twice", "--output", "json")
    remarks = [f"history starts at {iso(gone.now)}", "group 'twice' has no removed offsets in that time"]
    told = "".join(f"offsetlake: {remark}\n" for remark in remarks)
    assert (ended.code, ended.err, json.loads(ended.out)) == (0, told, [])
    ended = offsetlake("removed", "--since", "30d", "--group", "twice", "--output", "csv")
    assert ended.out.startswith(
        "group,topic,partition,removed_offset,removed_at,cause,committed_offset\ntwice,t,0,5,"
    )
    assert offsetlake("removed", "--group", "twice", "--output", "reset-csv").out == "t,0,5\n"
    assert offsetlake("removed", "twi*", "--output", "reset-csv").out == "twice,t,0,5\n"
    assert offsetlake("removed", "--since", "yesterday").code == 2


# --- topics, past moments, and names that are not there --------------------------------------------------


def test_topics_may_be_chosen(soon: History, gone: History, offsetlake: Any) -> None:
    """Both fixtures fill the same tables."""

    def groups(*arguments: str) -> list[str]:
        return [row["group"] for row in json.loads(offsetlake(*arguments, "--output", "json").out)]

    assert groups("removed", "--topic", "u") == ["topic"]
    assert groups("removed", "-t", "?:0,1", "twice", "to*") == ["twice", "topic", "twice"]
    assert groups("expiring", "--topic", "t") == ["overdue", "soon", "later", "unknown"]
    assert groups("expiring", "--topic", "t:0", "soon") == ["soon"]
    assert groups("expiring", "--topic", "u") == groups("expiring", "--topic", "t:7") == []


def test_what_expires_is_given_as_of_a_past_moment(history: History, offsetlake: Any) -> None:
    history.now -= HOUR
    then, at = history.now, history.now - 7 * DAY + HOUR
    history.write(group("g"), history.commit("g", "t", 1, at), heartbeat=then)
    history.now += 60_000
    history.write(history.commit("g", "t", 2, at + DAY), heartbeat=history.now)
    history.write(history.removal("g", "t", 2, at + DAY, "deleted"), heartbeat=history.now + 1)

    def listed_as_of(moment: int) -> list[tuple[int, str]]:
        rows = list_expiring(history.tables, settings=SETTINGS, now=history.now + 1, as_of=moment).rows
        return [(row["committed_offset"], row["time_left"]) for row in rows.to_pylist()]

    assert listed_as_of(then) == [(1, "01:00:00")]
    assert listed_as_of(then + 59_000) == [(1, "00:59:01")]
    assert listed_as_of(history.now) == [(2, "1d 00:59:00")]
    assert listed_as_of(history.now + 1) == []
    since = replace(RETENTION, known_since=history.now)
    history.write(retention=since, heartbeat=history.now + 2)
    listing = list_expiring(history.tables, settings=SETTINGS, now=history.now, as_of=then)
    assert listing.all_remarks()[0].startswith(
        f"how long the brokers keep offsets is known since {iso(history.now)}"
    )
    before = offsetlake("removed", "--as-of", str(history.now), "--output", "json")
    after = offsetlake("removed", "--output", "json")
    assert (before.out, len(json.loads(after.out))) == ("[]\n", 1)


@pytest.mark.parametrize("command", ["expiring", "removed"])
def test_an_answer_can_be_required_to_be_fresh(history: History, offsetlake: Any, command: str) -> None:
    history.write(heartbeat=history.now - HOUR)
    ended = offsetlake(command, "--max-age", "1m")
    assert (ended.code, ended.out) == (1, "")
    assert "--max-age: expected a heartbeat of the job within 60 s" in ended.err
    assert offsetlake(command, "--max-age", "2h", "--require-complete").code == 0


@pytest.mark.parametrize("arguments", [["expiring"], ["removed"], ["removed", "--output", "reset-csv"]])
def test_a_mistyped_name_is_named(soon: History, offsetlake: Any, arguments: list[str]) -> None:
    ended = offsetlake(*arguments, "--group", "neverr", "--topic", "tt", "never")
    assert ended.code == 1
    assert "offsetlake: group 'neverr' is not there. Did you mean never?\n" in ended.err
    assert "topic 'tt' is not there (no group has committed offsets of it)" in ended.err
    ended = offsetlake(*arguments, "never", "--topic", "t:3")
    assert (ended.code, "topic partition 't:3' is not there" in ended.err) == (1, True)


def test_what_is_committed_again_is_not_lost_though_nobody_can_read_it(
    gone: History, offsetlake: Any
) -> None:
    again = gone.commit("twice", "t", 1, gone.now)
    again["after"] |= {"committed_offset": None, "unreadable_source_offset": 7}
    gone.write(again)
    assert offsetlake("removed", "twice", "--output", "reset-csv").out == ""


def test_the_reset_file_of_a_past_moment_leaves_out_what_came_back_or_went_again_since(
    gone: History, offsetlake: Any
) -> None:
    odd = 'odd "name", really'
    then, gone.now = gone.now, gone.now + 60_000
    again = [gone.commit(name, "t", 7_000, gone.now) for name in ("twice", odd)]
    gone.write(*again, heartbeat=gone.now)
    gone.write(gone.removal(odd, "t", 7_000, gone.now, "deleted"), heartbeat=gone.now)
    past = ["--as-of", str(then)]
    assert offsetlake("removed", "--output", "reset-csv", *past).out == '"",t,0,6\n'
    rows = json.loads(offsetlake("removed", "twice", "--output", "json", *past).out)
    assert [(row["removed_offset"], row["committed_offset"]) for row in rows] == [(5, None), (1, None)]


def test_offsets_whose_last_removal_is_outside_the_time_asked_for_are_not_said_to_be_there(
    history: History, offsetlake: Any
) -> None:
    """They went after the moment asked for; or before, by the clock of the broker, which was behind."""
    history.now -= 90_000
    day_ago, then = history.now - DAY, history.now
    names = ["later", "late too"]
    history.write(
        *(history.removal(name, "t", 1, day_ago, "deleted") for name in names), heartbeat=history.now
    )
    history.now += 60_000
    history.write(*(history.commit(name, "t", 2, history.now) for name in names), heartbeat=history.now)
    history.write(history.removal("later", "t", 2, history.now, "deleted"), heartbeat=history.now)
    history.write(history.removal("late too", "t", 2, day_ago - HOUR, "deleted"), heartbeat=history.now)
    told = "its last removal is outside the time asked for: the file does not contain it"
    said = {name: f"offsetlake: group {name!r}: t:0: {told}\n" for name in names}
    ended = offsetlake("removed", *names, "--output", "reset-csv", "--as-of", str(then))
    assert ended == (1, "", said["late too"] + said["later"])
    ended = offsetlake("removed", "late too", "--output", "reset-csv", "--since", iso(day_ago))
    assert (ended.code, ended.out, ended.err.splitlines(keepends=True)[1:]) == (1, "", [said["late too"]])
    ended = offsetlake("removed", *names, "--output", "reset-csv", "--since", iso(day_ago))
    assert (ended.code, ended.out) == (1, "later,t,0,2\n")
    ended = offsetlake("removed", "late too", "--output", "reset-csv")
    assert (ended.code, ended.out, told in ended.err) == (0, "t,0,2\n", False)
    ended = offsetlake("removed", "later", "--output", "reset-csv", "--since", iso(history.now + 1))
    assert "no offset of those that were removed in that time is lost: there is nothing" in ended.err


def test_a_group_that_a_reset_file_cannot_hold_is_named(gone: History, offsetlake: Any) -> None:
    ended = offsetlake("removed", "two\nlines", "twice", "--output", "reset-csv")
    told = "offsetlake: group 'two\\nlines' is left out: the file cannot hold a line end in a name\n"
    assert ended == (1, "twice,t,0,5\n", told)


def test_removed_offsets_that_nobody_could_read_are_counted_and_the_first_are_named(
    gone: History, offsetlake: Any
) -> None:
    lost = gone.removal("unread", "t", None, gone.now, "unknown")
    unread = ({**lost, "partition": number} for number in range(1, 7))
    gone.write(*unread, gone.removal("unread", "u", 8, gone.now, "unknown"))
    ended = offsetlake("removed", "unread", "--output", "reset-csv")
    first = "; ".join(f"t:{number}" for number in range(1, 6))  # the newest
    reason = "none of its commits could be read: there is no offset to put back"
    assert (ended.code, ended.out) == (1, "u,0,8\n")
    assert f"offsetlake: group 'unread': {first}; and 2 more: {reason}\n" in ended.err
    assert offsetlake("removed", "unread", "--output", "json").err == ""


def test_a_group_that_has_members_is_named_beside_its_reset_file(gone: History, offsetlake: Any) -> None:
    running = group("twice", "t")
    member = dict.fromkeys(schemas.MEMBER.names) | {"member_id": "m", "client_id": "c", "client_host": "/h"}
    running["group_after"]["members"] = [member]
    gone.write(running)
    ended = offsetlake("removed", "twice", "--output", "reset-csv")
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (0, "t,0,5\n", 1)
    assert ended.err.startswith("offsetlake: group 'twice' has a member (as of ")
    assert offsetlake("removed", "twice", "--output", "json").err == ""
    assert offsetlake("removed", "", "--output", "reset-csv").err == ""


def test_a_group_of_which_nothing_is_gone_is_no_error(soon: History, offsetlake: Any) -> None:
    ended = offsetlake("removed", "soon", "--output", "reset-csv")
    remarks = ["no offset is lost: there is nothing to restore", "group 'soon' has no removed offsets"]
    assert ended == (0, "", "".join(f"offsetlake: {remark}\n" for remark in remarks))
    nothing = "offsetlake: group 'never' has no expiring offsets\n"
    assert offsetlake("expiring", "never", "--output", "json") == (0, "[]\n", nothing)
    ended = offsetlake("expiring", "soo*", "-t", "t", "--within", "1s", "--output", "json")
    assert (
        ended.err
        == "offsetlake: no group that matches 'soo*' has expiring offsets of these topics within 1s\n"
    )


def test_a_group_that_is_gone_is_known_to_its_history(gone: History, offsetlake: Any) -> None:
    nothing = "offsetlake: group 'twice' has no removed offsets in that time\n"
    assert offsetlake("removed", "twice", "--since", iso(gone.now), "--output", "json") == (
        0,
        "[]\n",
        nothing,
    )
    assert offsetlake("offsets", "twice", "--output", "json").code == 1
    assert offsetlake("history", "twice", "--event", "rewind").code == 0


@pytest.mark.parametrize("output", ["json", "reset-csv"])
def test_groups_that_are_still_being_read_have_an_error(
    history: History, offsetlake: Any, output: str
) -> None:
    partitions = {number: replace(one, loaded=False) for number, one in history.progress.partitions.items()}
    history.write(history.commit("g", "t", 1, history.now), partitions=partitions)
    ended = offsetlake("removed", "g", "none", "--output", output)
    assert (ended.code, "is not there" in ended.err) == (1, False)
    assert "group 'none': COORDINATOR_LOAD_IN_PROGRESS" in ended.err
