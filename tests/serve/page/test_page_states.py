"""What pages say while tables are missing, empty, being read, rebuilt, or no longer written."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pyarrow as pa
import pytest
from alert_tables import EMPTY, RETENTION, Lake, alert_settings
from html_read import HtmlPage, check_harmless
from http_endpoint import Opened, opened
from kafka_clients import wait_until
from log_end_rows import Sample, gone, of_topic, rows_of
from new_tables import new_tables
from table_batches import Batch, append, group, heartbeat, offset

from streaming.common.times import DAY_MS, HOUR_MS, MINUTE_MS, iso, now_ms
from streaming.common.timestamps import to_timestamps
from streaming.expiry.cause_names import CAUSES
from streaming.model.progress import PartitionProgress, Progress, Reached, Rebuild, Retention
from streaming.serve.page.assessed import group_topic_rows
from streaming.serve.page.pages import VIEWS
from streaming.serve.page.views.expiring import _within
from streaming.tables.log_ends import SampleFiles
from streaming.tables.tables import Tables

BATCH: Batch = {("g", "t", 0): offset(source_partition=0), "g": group(source_partition=0)}
LISTS = ["/", "/events", "/groups", "/topics", "/leftovers", "/expiring", "/removed", "/alerts", "/status"]
OF_ONE = ["/group?group=g", "/group/history?group=g", "/offset?group=g&topic=t&partition=0", "/topic?topic=t"]


def fill(tables: Tables, *, at: int | None = None, **changed: object) -> Progress:
    now = now_ms() if at is None else at
    partition = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    return append(tables, BATCH, now=now, **{"partitions": {0: partition}, **changed})


@pytest.fixture
def endpoint(tables: Tables) -> Iterator[Opened]:
    with opened(tables) as endpoint:
        yield endpoint


def said(endpoint: Opened, address: str, status: int = 200) -> str:
    answer = endpoint.ask(address)
    assert answer.status == status, (address, answer.body[-300:])
    check_harmless(answer.body)
    return HtmlPage.of(answer.body).said()


def shows(endpoint: Opened, address: str, text: str) -> None:
    """Wait until a page has a text; until the first assessment it may be an error."""

    def is_shown() -> bool:
        answer = endpoint.ask(address)
        check_harmless(answer.body)
        return answer.status == 200 and text in HtmlPage.of(answer.body).said()

    wait_until(is_shown, f"{text!r} on {address}")


def check_lists(endpoint: Opened) -> None:
    """See that every list and its files are there."""
    for address in LISTS:
        said(endpoint, address)
        for ending in ("json", "csv"):
            path = "/overview" if address == "/" else address
            assert endpoint.ask(f"{path}.{ending}").status == 200, (address, ending)


def test_empty_tables_say_that_nothing_was_read(endpoint: Opened) -> None:
    check_lists(endpoint)
    for address in ("/", "/groups", "/topics", "/status"):
        assert "COORDINATOR_LOAD_IN_PROGRESS: nothing has been read yet" in said(endpoint, address)
    assert "Nothing has been read yet. Is" in said(endpoint, "/status")
    for address in OF_ONE:
        assert endpoint.ask(address).status == 404, address


def test_missing_tables_are_an_error_that_names_them_and_lists_from_memory_remain(tables: Tables) -> None:
    shutil.rmtree(tables.root)
    with opened(tables) as endpoint:
        for address in LISTS:
            answer = endpoint.ask(address)
            assert answer.status in (200, 503), address
            check_harmless(answer.body)
        assert "nothing has been read yet" in said(endpoint, "/groups")
        tables.create()
        fill(tables)
        shows(endpoint, "/groups", "Groups 1")
        shows(endpoint, "/groups", "Complete.")
        for address in OF_ONE:
            said(endpoint, address)
        shutil.rmtree(tables.root)
        wait_until(lambda: "Complete." not in said(endpoint, "/groups"), "the failure")
        assert "Groups 1" in said(endpoint, "/groups")
        assert said(endpoint, "/group?group=g").startswith("As of")
        lost = said(endpoint, "/group/history?group=g", 503)
        assert lost.startswith("Not available now")
        assert Path(tables.root).name in lost


def test_the_first_reading_is_said_to_go_on(tables: Tables, endpoint: Opened) -> None:
    append(tables, {}, now=now_ms(), partitions={0: PartitionProgress(loaded=False)})
    shows(endpoint, "/", "offsets partitions 0 are still being read")
    shows(endpoint, "/", "The offsets topic is being read for the first time.")
    shows(endpoint, "/groups", "Groups appear once it has been read.")
    assert "COORDINATOR_LOAD_IN_PROGRESS" in said(endpoint, "/group?group=g", 404)
    fill(tables, partitions={0: PartitionProgress(loaded=False)})
    [cluster] = endpoint.telling.pages.clusters
    wait_until(lambda: len(cluster.snapshot().groups) == 1, "the group")
    shows(endpoint, "/status", "Groups0")
    fill(tables)
    shows(endpoint, "/groups", "Complete.")
    shows(endpoint, "/status", "Groups1")


def test_a_rebuild_is_said_with_its_reason(tables: Tables, endpoint: Opened) -> None:
    fill(tables, rebuild=Rebuild(since=now_ms() - MINUTE_MS, reason="the topic <b>was</b> recreated"))
    for address in ("/", "/groups", "/group?group=g", "/status"):
        shows(endpoint, address, "because the topic <b>was</b> recreated; the tables do not change")


def test_a_silent_job_is_said_to_be_silent(tables: Tables, endpoint: Opened) -> None:
    fill(tables, at=now_ms() - HOUR_MS)
    for address in (
        "/",
        "/groups",
        "/group?group=g",
        "/topics",
        "/expiring",
        "/status",
        "/offset?group=g&topic=t",
    ):
        shows(endpoint, address, "the job's last heartbeat was 1 h ago")
        assert "Complete." not in said(endpoint, address), address
    for address in ("/groups?as_of=-10m", "/status?as_of=now"):
        assert "as_of: expected for a group or an offset only" in said(endpoint, address, 400)


def test_a_stalled_partition_and_one_behind_are_named(tables: Tables, endpoint: Opened) -> None:
    now = now_ms()
    since = now - HOUR_MS
    whole = PartitionProgress(loaded=True, position=5, whole=Reached(as_of=now), stable=Reached(as_of=now))
    stalled = replace(
        whole,
        last_stable_offset=5,
        high_watermark=9,
        open_transaction_since=since,
        stable=Reached(as_of=now),
        whole=Reached(as_of=since, target=9, target_at=now),
    )
    behind = replace(stalled, last_stable_offset=9, open_transaction_since=None, stable=stalled.whole)
    append(tables, BATCH, now=now, partitions={0: whole, 1: stalled, 2: behind})
    shows(
        endpoint, "/groups", "offsets partitions 1 are stalled: an open transaction holds back newer commits"
    )
    assert "offsets partitions 2 are behind" in said(endpoint, "/groups")
    found = HtmlPage.of(endpoint.ask("/status?sort=state&order=rising").body).tables()["Offsets partitions"]
    assert [(row[0].text, row[1].text) for row in found] == [
        ("2", "behind"),
        ("0", "current"),
        ("1", "stalled"),
    ]


def test_a_group_whose_partition_is_not_complete_is_marked(tables: Tables, endpoint: Opened) -> None:
    now = now_ms()
    whole = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    since = Reached(as_of=now - HOUR_MS, target=9, target_at=now - HOUR_MS)
    behind = replace(whole, last_stable_offset=9, high_watermark=9, whole=since, stable=since)
    other: Batch = {"other": group(source_partition=1)}
    append(tables, {**BATCH, **other}, now=now, partitions={0: whole, 1: behind})
    shows(endpoint, "/groups", "offsets partitions 1 are behind")
    shows(endpoint, "/groups", "Groups 2")
    rows = HtmlPage.of(endpoint.ask("/groups").body).tables()["Groups"]
    assert [row[0].text for row in rows] == ["g", "other not complete"]


def test_etags_change_with_the_completeness_and_not_otherwise(tables: Tables) -> None:
    fill(tables)
    with opened(tables, every_s=600) as endpoint:
        shows(endpoint, "/groups", "Complete.")
        endpoint.ask("/groups")
        tag = endpoint.ask("/groups").headers["etag"]
        assert endpoint.ask("/groups", if_none_match=tag).status == 304
        progress = tables.progress()
        since = Reached(as_of=progress.heartbeat - HOUR_MS, target=9, target_at=progress.heartbeat - HOUR_MS)
        behind = replace(
            progress.partitions[0], last_stable_offset=9, high_watermark=9, whole=since, stable=since
        )
        heartbeat(tables, progress.heartbeat, partitions={0: behind})
        wait_until(lambda: endpoint.ask("/groups", if_none_match=tag).status == 200, "newer records")
        shows(endpoint, "/groups", "offsets partitions 0 are behind")


def test_files_of_what_is_there_may_be_empty_and_those_of_what_is_not_yet_read_say_so(
    tables: Tables, endpoint: Opened
) -> None:
    """An offset without a step within the time, a group without offsets; then a partition that is loading."""
    key = "group=g&topic=t&partition=0"
    now = now_ms()
    fill(tables, at=now - 2 * HOUR_MS)
    append(tables, {"bare": group(source_partition=0)}, now=now, partitions=tables.progress().partitions)
    shows(endpoint, "/groups", "Groups 2")
    for address in ("/group.json?group=bare", f"/offset.json?{key}&span=hour", "/groups.json?q=nobody"):
        answer = endpoint.ask(address)
        assert (answer.status, json.loads(answer.body)["rows"]) == (200, []), address
    assert len(json.loads(endpoint.ask(f"/offset.json?{key}&span=day").body)["rows"]) == 1
    append(tables, {}, now=now_ms(), partitions={0: PartitionProgress(loaded=False)})
    for path in ("/group", "/offset"):
        for ending in ("json", "csv"):
            answer = endpoint.ask(f"{path}.{ending}?{key}&span=hour")
            assert (answer.status, b"COORDINATOR_LOAD_IN_PROGRESS" in answer.body) == (404, True), path


def test_patterns_count_what_their_links_find(tables: Tables, endpoint: Opened) -> None:
    """Also groups whose rest is no number, with other filters, and within a search."""
    many: Batch = {f"run-{number:03}": group(source_partition=0) for number in range(25)}
    others: Batch = {
        f"run-{word}": group(source_partition=0, state="Empty") for word in ("a", "b", "old-001")
    }
    now = now_ms()
    partition = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    append(
        tables, {**many, **others, "x-run-003": group(source_partition=0)}, now=now, partitions={0: partition}
    )
    shows(endpoint, "/groups", "Groups 29")
    for address, count in (("/groups", 28), ("/groups?state=Stable", 25), ("/groups?q=run-0", 28)):
        found = HtmlPage.of(endpoint.ask(address).body)
        assert f"Alike: run-* {count}" in found.said(), address
        assert f"Groups {count} of 29" in said(endpoint, found.links()["run-*"]), address


def test_topics_that_are_gone_or_recreated_are_marked_with_the_time(tables: Tables, endpoint: Opened) -> None:
    """Where groups have offsets on them; one that came again has no mark."""
    now = now_ms()
    keys = [("g", topic, 0) for topic in ("stays", "gone", "again", "returned")]
    batch: Batch = {key: offset(source_partition=0, topic_id=f"first-{key[1]}") for key in keys}
    partition = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    append(tables, {**batch, "g": group(source_partition=0)}, now=now, partitions={0: partition})
    at = [now - 3 * DAY_MS, now - 2 * DAY_MS, now - 1_000]
    first, second, third = (
        [of_topic(at[0], topic, f"first-{topic}") for _, topic, _ in keys],
        [
            gone(at[1], "gone"),
            gone(at[1], "returned"),
            of_topic(at[1], "again", "second"),
        ],
        [of_topic(at[2], "stays", "first-stays"), of_topic(at[2], "returned", "first-returned")],
    )
    tables.append_log_ends(rows_of([*first, *second, *third]))
    then = f"{iso(at[1])[:10]} {iso(at[1])[11:16]}"
    shows(endpoint, "/topics", f"gone deleted {then}")
    shows(endpoint, "/topics", f"again recreated {then}")
    found = HtmlPage.of(endpoint.ask("/topics").body)
    texts = [" ".join(row[0].text.split()) for row in found.tables()["Topics"]]
    assert texts == [f"again recreated {then}", f"gone deleted {then}", "returned", "stays"]
    assert "The topic did not exist when the job last asked" in found.said()
    assert f"Topic gone deleted {then}" in said(endpoint, "/topic?topic=gone")
    assert "The topic was deleted and created again" in said(endpoint, "/topic?topic=again")
    assert "deleted" not in said(endpoint, "/topic?topic=stays")


def test_a_batch_that_is_not_assessed_yet_is_no_other_page_of_the_assessment(tables: Tables) -> None:
    """Except by the part of the ETag that the clock changes; the rows of the same address may be newer."""
    fill(tables)
    with opened(tables, every_s=600) as endpoint:
        shows(endpoint, "/groups", "Complete.")

        def states() -> list[str]:
            addresses = ("/groups", "/group?group=g", "/groups.json", "/", "/status")
            return [endpoint.ask(address).headers["etag"].split("-", 2)[2] for address in addresses]

        before = states()
        fill(tables, live=BATCH)
        wait_until(lambda: states()[-1] != before[-1], "the batch")
        after = states()
        assert after[:2] == before[:2]
        assert not {*after[2:]} & {*before[2:]}


def test_a_newer_assessment_of_the_same_batch_is_another_page(tables: Tables) -> None:
    """Apart from the part of the ETag that the clock changes."""
    fill(tables)
    with opened(tables, every_s=0.1) as endpoint:
        shows(endpoint, "/groups", "Complete.")

        def state() -> str:
            return endpoint.ask("/groups").headers["etag"].split("-", 2)[2]

        first = state()
        wait_until(lambda: state() != first, "another assessment")


def test_a_commit_after_the_log_ends_were_sampled_is_shown_as_of_that_sample(
    tables: Tables, endpoint: Opened
) -> None:
    """So that committed offset, log end and lag belong together."""
    now = now_ms()
    whole = {0: PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))}
    live: Batch = {}
    for at, committed in ((now - 120_000, 80), (now - 60_000, 100), (now, 160)):
        row = offset(source_partition=0, committed_offset=committed, commit_timestamp=at, source_timestamp=at)
        batch: Batch = {("g", "t", 0): row, "g": group(source_partition=0)}
        append(tables, batch, live=live, now=at, partitions=whole)
        live = batch
    ends = [Sample(now - 90_000, "t", 0, 90, None), Sample(now - 30_000, "t", 0, 110, None)]
    tables.append_log_ends(rows_of(ends))

    def row_of_page() -> list[str]:
        found = HtmlPage.of(endpoint.ask("/group?group=g").body).tables()["Topics and partitions"][0]
        return [cell.text for cell in found[1:4]]

    wait_until(lambda: endpoint.ask("/group?group=g").status == 200, "the group")
    wait_until(lambda: row_of_page() == ["100", "110", "10"], "the three numbers")
    shows(endpoint, "/offset?group=g&topic=t", "(batch 3)")
    assert "Committed offset100 Log end offset110" in said(endpoint, "/offset?group=g&topic=t")


def test_rewinds_of_a_job_whose_clock_is_ahead_are_on_their_page_and_in_its_file(
    tables: Tables, endpoint: Opened
) -> None:
    ahead = now_ms() + 10 * MINUTE_MS
    fill(tables)
    again = offset(source_partition=0, committed_offset=3, commit_timestamp=ahead)
    append(tables, {("g", "t", 0): again}, live=BATCH, now=ahead)
    assert "rewound t:0 from 7 to 3" in said(endpoint, "/events")
    rows = json.loads(endpoint.ask("/events.json").body)["rows"]
    assert [(row["offset_before"], row["committed_offset"]) for row in rows] == [(7, 3)]
    assert "rewound from 7 to 3" in said(endpoint, "/group/history?group=g")


LARGEST = 2**63 - 1


def committed(offsets: dict[str, int]) -> Batch:
    """Offsets of groups in one topic partition."""
    return {
        (name, "t", 0): offset(source_partition=0, committed_offset=one, commit_timestamp=now_ms())
        for name, one in offsets.items()
    }


def fill_sampled(tables: Tables, batch: Batch, end: int) -> None:
    """Write a batch of a minute ago, and later samples of the log end of its topic partition.

    The samples are written first: a page that shows the group has read them.
    """
    now = now_ms()
    samples = [Sample(now - ago, "t", 0, end, None, min(end, 5)) for ago in (40_000, 20_000)]
    tables.append_log_ends(rows_of(samples))
    partition = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    append(tables, batch, now=now - MINUTE_MS, partitions={0: partition})
    heartbeat(tables, now)


def test_each_lag_is_unknown_on_every_page_from_when_its_sample_is_too_old(tables: Tables) -> None:
    now = now_ms()
    partition = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    names = "ab"
    batch: Batch = {
        (name, f"t-{name}", 0): offset(source_partition=0, commit_timestamp=now) for name in names
    }
    append(tables, batch, now=now - 5 * MINUTE_MS, partitions={0: partition})
    ages = {"a": 200_000, "b": 100_000}
    tables.append_log_ends(rows_of([Sample(now - ages[one], f"t-{one}", 0, 500, None, 5) for one in names]))
    heartbeat(tables, now)
    with opened(tables, every_s=600) as endpoint:
        shows(endpoint, "/groups", "Groups 2")
        pages = endpoint.telling.pages

        def lags(path: str, at: int, **asked: str) -> list[str]:
            answer = pages.respond(path, asked, at)
            return [row["lag"] for row in json.loads(b"".join(answer.pieces))["rows"]]

        def lag_of(name: str, at: int) -> str:
            body = b"".join(pages.respond("/group", {"group": name}, at).pieces)
            return HtmlPage.of(body).tables()["Topics and partitions"][0][3].text

        for later, known in ((0, "ab"), (110_000, "b"), (210_000, "")):
            listed = lags("/groups.json", now + later)
            assert [lag is not None for lag in listed] == [name in known for name in names], later
            of_each = [lag_of(name, now + later) for name in names]
            assert [lag != "\u2013" for lag in of_each] == [name in known for name in names], later


def test_a_lag_of_a_topic_that_no_number_holds_is_the_largest_one(tables: Tables, endpoint: Opened) -> None:
    fill_sampled(tables, committed({"a": -(2**63), "b": -(2**63)}), end=1_000)
    shows(endpoint, "/topics", "Topics 1")
    (row,) = HtmlPage.of(endpoint.ask("/topics").body).tables()["Topics"]
    assert row[4].text == f"{LARGEST:,}"


def test_the_log_end_of_the_largest_lag_is_that_of_the_sample(tables: Tables, endpoint: Opened) -> None:
    fill_sampled(tables, committed({"a": -(2**63) + 50}), end=100)
    shows(endpoint, "/groups", "Groups 1")
    (row,) = HtmlPage.of(endpoint.ask("/group?group=a").body).tables()["Topics and partitions"]
    assert [cell.text for cell in row[2:4]] == ["100", f"{LARGEST:,}"]


def test_the_chart_of_an_offset_says_large_numbers_exactly(tables: Tables, endpoint: Opened) -> None:
    fill_sampled(tables, committed({"a": 2**62 + 1}), end=2**62 + 3)
    wait_until(lambda: endpoint.ask("/group?group=a").status == 200, "the group")
    (chart,) = HtmlPage.of(endpoint.ask("/offset/history?group=a&topic=t&span=hour").body).all("svg")
    for label, value in (("log end", 2**62 + 3), ("committed", 2**62 + 1)):
        assert f"{label} offset {value:,}" in str(chart.attributes["aria-label"])


def test_a_group_with_an_assigned_partition_besides_its_commits_lags_at_least(
    tables: Tables, endpoint: Opened
) -> None:
    topics = [{"topic": "t", "topic_id": None, "partitions": [0, 1]}]
    member = {"member_id": "m", "client_id": "c", "client_host": "/h", "assignment": topics}
    fill_sampled(tables, {**committed({"a": 90}), "a": group(source_partition=0, members=[member])}, end=90)
    shows(endpoint, "/groups", "Groups 1")
    assessed = endpoint.telling._clusters[0].refresher.current()
    _, rows = group_topic_rows(assessed, assessed.snapshot.topics.names.places["t"])
    assert rows["lag"].to_pylist() == [0]
    assert rows["lag_is_at_least"].to_pylist() == [True]


def test_offsets_with_an_unknown_expiry_are_counted_when_their_partition_is_loaded(
    tables: Tables, endpoint: Opened
) -> None:
    now = now_ms()
    whole = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    kept = Retention(
        retention_ms=DAY_MS, check_interval_ms=MINUTE_MS, source="broker", read_at=now, known_since=now
    )
    batch: Batch = {
        (name, "t", 0): offset(source_partition=number, committed_offset=None, unreadable_source_offset=3)
        for number, name in enumerate("ab")
    }
    of_groups: Batch = {name: group(source_partition=number) for number, name in enumerate("ab")}
    partitions = {0: whole, 1: PartitionProgress(loaded=False)}
    append(tables, {**batch, **of_groups}, now=now, partitions=partitions, retention=kept)
    shows(endpoint, "/expiring", "The expiry of 1 offset is not known.")


def test_a_page_of_an_offset_is_there_when_its_file_is(tables: Tables, endpoint: Opened) -> None:
    """Also if it was removed long ago, is only assigned, or its offsets partition is being read again."""
    topics = [{"topic": "t", "topic_id": None, "partitions": [1]}]
    member = {"member_id": "m", "client_id": "c", "client_host": "/h", "assignment": topics}
    owner: Batch = {"g": group(source_partition=0, members=[member])}
    now = now_ms()
    fill(tables, at=now - 3 * DAY_MS)
    fill(tables, at=now, live=BATCH)
    gone: Batch = {("old", "t", 0): offset(source_partition=0)}
    append(tables, gone, now=now - 2 * DAY_MS, partitions=tables.progress().partitions)
    append(tables, {("old", "t", 0): None}, live=gone, now=now - 2 * DAY_MS + 1)
    append(tables, owner, live=BATCH, now=now, partitions=tables.progress().partitions)

    def statuses(key: str) -> set[int]:
        paths = ("/offset", "/offset.json", "/offset.csv", "/offset/history", "/offset/history.json")
        return {endpoint.ask(f"{path}?{key}").status for path in paths}

    there = ("group=g&topic=t", "group=g&topic=t&partition=1", "group=old&topic=t")
    wait_until(lambda: all(statuses(key) == {200} for key in there), "offsets that are there")
    for key in ("group=none&topic=t", "group=g&topic=none", "group=g&topic=t&partition=7"):
        assert statuses(key) == {404}, key
    append(tables, {}, now=now_ms(), partitions={0: PartitionProgress(loaded=False)})
    shows(endpoint, "/offset?group=g&topic=t", "its offsets partition is still being read")
    assert statuses("group=g&topic=t") == {200}
    assert statuses("group=g&topic=t&partition=1") == {404}


@pytest.mark.parametrize(
    ("pattern", "is_link"), [("bill*", True), ("bill-?", True), ("bill-1", False), ("[b]ill*", False)]
)
def test_an_alert_about_groups_links_to_them_if_the_search_has_the_same_pattern(
    tmp_path: Path, pattern: str, is_link: bool
) -> None:
    lake = Lake(tmp_path / "alerts", start=now_ms() - RETENTION + DAY_MS)
    lake.commit("bill-1", group_value=EMPTY)
    lake.pass_time(RETENTION - DAY_MS)
    lake.evaluate(alert_settings(groups=[{"pattern": pattern, "treat": "summarize"}]))
    with opened(lake.tables) as endpoint:
        shows(endpoint, "/alerts", pattern)
        linked = HtmlPage.of(endpoint.ask("/alerts").body).links().values()
        assert (f"/groups?{urlencode({'q': pattern})}" in linked) == is_link


def test_an_offset_that_expires_in_just_a_day_does_so_within_a_day() -> None:
    now = now_ms()
    rows = pa.table({"expires_at": to_timestamps(pa.array([now + DAY_MS, now + DAY_MS + 1], pa.int64()))})
    assert len(_within(rows, now, "day")) == 1


def test_removed_offsets_are_shown_again_without_reading_the_same_samples(
    tables: Tables, endpoint: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = now_ms()
    whole = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    there = committed({"a": 90})
    append(tables, there, now=now - MINUTE_MS, partitions={0: whole})
    append(tables, dict.fromkeys(there), live=there, now=now, partitions={0: whole})
    samples = [Sample(now - ago, "t", 0, 50, "id") for ago in (40_000, 20_000)]
    tables.append_log_ends(rows_of([*samples, of_topic(now - 40_000, "t", "id")]))
    doubt = "group 'a': t:0, offset 90: the log ends before it"
    assert doubt in said(endpoint, "/removed")
    for name in ("_whole", "batches"):
        monkeypatch.setattr(SampleFiles, name, None)
    assert doubt in said(endpoint, "/removed?since=day")


def test_removed_offsets_whose_last_removal_is_outside_the_time_are_said_to_be_missing_in_the_file(
    tables: Tables, endpoint: Opened
) -> None:
    """Its broker's clock was behind."""
    now = now_ms()
    whole = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    there = committed({"a": 90})
    for minutes, batch, live, days in (
        (4, there, {}, 0),
        (3, {}, there, 0),
        (2, there, {}, 0),
        (1, {}, there, 10),
    ):
        at = now - minutes * MINUTE_MS
        after = batch or dict.fromkeys(there)
        append(tables, after, live=live, now=at, records_at=at - days * DAY_MS, partitions={0: whole})
    told = "/removed.reset-csv: group 'a': t:0: its last removal is outside the time asked for"
    shows(endpoint, "/removed", told)
    (row,) = json.loads(endpoint.ask("/removed.json").body)["rows"]
    assert endpoint.ask("/removed.reset-csv").body == b""
    shows(endpoint, f"/removed?{urlencode({'cause': row['cause']})}", told)
    other = next(one for one in CAUSES if one != row["cause"])
    for address in ("/removed?since=quarter", f"/removed?{urlencode({'cause': other})}"):
        assert told not in said(endpoint, address)
    assert endpoint.ask("/removed.reset-csv?since=quarter").body == b"a,t,0,90\n"


def test_the_overview_has_the_five_soonest_expiries_of_groups_and_topics(
    tables: Tables, endpoint: Opened
) -> None:
    """Each with the first of its moments, whatever the names and the numbers of the partitions."""
    now = now_ms()
    hours = {  # until each offset expires
        ("zoo", "t", 0): 9,
        ("zoo", "t", 1): 1,
        ("zoo", "t", 2): 8,
        ("zoo", "u", 0): 4,
        ("ant", "t", 0): 7,
        ("bee", "t", 0): 2,
        ("cat", "t", 0): 6,
        ("dog", "t", 0): 3,
        ("eel", "t", 0): 5,
    }
    retention = Retention(
        retention_ms=DAY_MS, check_interval_ms=MINUTE_MS, source="broker", read_at=now, known_since=now
    )
    batch: Batch = {
        key: offset(source_partition=0, commit_timestamp=now - DAY_MS + ahead * HOUR_MS + HOUR_MS // 2)
        for key, ahead in hours.items()
    }
    batch |= {name: group(source_partition=0, protocol_type="") for name, _, _ in hours}
    whole = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    append(tables, batch, now=now, partitions={0: whole}, retention=retention)
    shows(endpoint, "/", "zoo")
    page = HtmlPage.of(endpoint.ask("/").body)
    (section,) = (
        one
        for one in page.all("section")
        if any(inner.tag == "h2" and inner.text == "Expire soonest" for inner in one.inside)
    )
    lines = [" ".join(one.text.split()) for one in section.inside if one.tag == "li"]
    assert [re.sub(r" h \d+ min ", " h: ", line) for line in lines] == [
        "in 1 h: zoo 3 of t · simple",
        "in 2 h: bee 1 of t · simple",
        "in 3 h: dog 1 of t · simple",
        "in 4 h: zoo 1 of u · simple",
        "in 5 h: eel 1 of t · simple",
    ]
    links = [one.attributes["href"] for one in section.inside if one.tag == "a"]
    assert links[:2] == ["/group?group=zoo", "/group?group=bee"]
    assert links[-1] == "/expiring?within=week"


def other_cluster(folder: Path, offsets: Batch | None = None) -> Tables:
    """Return complete tables with the group h, and some offsets."""
    now, other = now_ms(), new_tables(folder)
    whole = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    append(other, {**(offsets or {}), "h": group(source_partition=0)}, now=now, partitions={0: whole})
    return other


def test_the_choice_of_another_cluster_leads_from_every_page_to_one_that_is_there(
    tables: Tables, tmp_path: Path
) -> None:
    """From the pages of a group, an offset or a topic, and their errors, to a list."""
    fill(tables)
    other = other_cluster(tmp_path / "other")
    with opened({"one": tables.root, "two": other.root}) as endpoint:
        for cluster in ("one", "two"):
            shows(endpoint, f"/groups?cluster={cluster}", "Complete.")
        single = [*OF_ONE, "/offset/history?group=g&topic=t&partition=0"]
        addresses = [*LISTS, "/clusters", *single, *(f"{one}&group=none&topic=none" for one in single)]
        for address in addresses:
            page = HtmlPage.of(endpoint.ask(address).body)
            (form,) = (one for one in page.all("form") if one.attributes.get("class") == "clusters")
            assert form.attributes["method"] == "get"
            assert endpoint.ask(f"{form.attributes['action']}?cluster=two").status == 200, address
        assert {address.partition("?")[0] for address in addresses} == set(VIEWS)


def test_clusters_have_their_own_numbers_and_one_that_cannot_be_read_says_why(
    tables: Tables, tmp_path: Path
) -> None:
    fill(tables)
    other = other_cluster(
        tmp_path / "other", {("h", "t", number): offset(source_partition=0) for number in range(3)}
    )
    empty = new_tables(tmp_path / "empty")
    with opened({"one": tables.root, "two": other.root, "new": empty.root}) as endpoint:

        def rows() -> list[list[str]]:
            found = HtmlPage.of(endpoint.ask("/clusters").body).tables()["Clusters"]
            return [[row[place].text for place in (0, 2, 3, 4)] for row in found]

        nothing = "\u2013"
        wait_until(
            lambda: (
                rows()
                == [
                    ["one", "1 of 1", "1", "1"],
                    ["two", "1 of 1", "1", "3"],
                    ["new", "", nothing, nothing],
                ]
            ),
            "the numbers of all",
        )
        assert "nothing has been read yet" in said(endpoint, "/clusters")
        for cluster, name in (("one", "g"), ("two", "h")):
            listed = HtmlPage.of(endpoint.ask(f"/groups?cluster={cluster}").body).tables()["Groups"]
            assert [row[0].text for row in listed] == [name]
        tool = "kafka-consumer-groups --bootstrap-server BROKERS-OF-two:PORT"
        assert f"{tool} --describe --group h" in said(endpoint, "/group?cluster=two&group=h")
