"""Pages show the numbers of the commands: at the ends of int64, after the newest sample, and of groups that
only own partitions."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from alert_tables import EMPTY, SIMPLE, Lake, alert_settings
from html_read import HtmlPage
from http_endpoint import Answer, Opened, opened
from kafka_clients import wait_until

from streaming.common.times import MINUTE_MS as M
from streaming.common.times import now_ms
from streaming.tables.tables import Tables

LARGEST = 2**63 - 1
STABLE = EMPTY | {"state": "Stable", "protocol": "range", "subscribed_topics": ["orders"]}
UNFIT = ["line\nend", "nul\0name"]


def member(*partitions: int) -> dict[str, Any]:
    assigned = [{"topic": "orders", "topic_id": None, "partitions": list(partitions)}]
    return {"member_id": "m", "client_id": "c", "client_host": "/h", "assignment": assigned}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    now = now_ms()
    lake = Lake(tmp_path_factory.mktemp("numbers"), start=now - 20 * M)
    ends = {("orders", number): 1_000 for number in range(3)} | {("low", 0): 100}
    lake.sample(ends, at=[lake.now])
    lake.now += M
    lake.commit("first", ("orders", 0), offset=900, group_value=STABLE | {"members": [member(0)]})
    lake.commit("second", ("orders", 1), offset=990, group_value=STABLE | {"members": [member(1, 2)]})
    lake.set_group("owner", **STABLE | {"members": [member(2)]})
    for name, offset in {"least": -(2**63), "lower": -(2**63) + 1, "low": -1}.items():
        lake.commit(name, ("low", 0), offset=offset)
    for name in ("fit", *UNFIT):
        lake.commit(name, offset=5)
        lake.drop(name, cause="unknown")
    for left in ("billA", "billB"):
        lake.commit(left, at=lake.now - 7 * 24 * 60 * M + 5 * M, group_value=SIMPLE)
    lake.evaluate(alert_settings(groups=[{"pattern": "bill[AB]", "treat": "summarize"}]))
    lake.sample(ends, at=[now - number * M for number in range(9, 0, -1)])
    lake.now = now - 2_000
    lake.commit("first", ("orders", 0), offset=995, group_value=None)
    return lake.tables


@pytest.fixture(scope="module")
def endpoint(tables: Tables) -> Iterator[Opened]:
    with opened(tables, every_s=1) as running:
        wait_until(lambda: running.ask("/groups.json").status == 200, "the assessment")
        yield running


def ask(endpoint: Opened, path: str, **query: object) -> Answer:
    return endpoint.ask(f"{path}?{urlencode(query)}")


def rows(endpoint: Opened, path: str, key: str, **query: object) -> dict[str, dict[str, Any]]:
    return {row[key]: row for row in json.loads(ask(endpoint, path, **query).body)["rows"]}


def texts(endpoint: Opened, path: str, caption: str, **query: object) -> dict[str, list[str]]:
    """The texts of a list, by those of its first column."""
    listed = HtmlPage.of(ask(endpoint, path, **query).body).tables()[caption]
    return {row[0].text: [cell.text for cell in row] for row in listed}


def test_lag_of_a_topic_is_no_more_than_the_largest_number(endpoint: Opened) -> None:
    assert rows(endpoint, "/topics.json", "topic")["low"]["lag"] == LARGEST
    assert f"{LARGEST:,}" in texts(endpoint, "/topics", "Topics")["low"]


def test_the_log_end_is_that_of_the_sample_where_lag_has_no_number(endpoint: Opened) -> None:
    for group in ("least", "lower"):
        listed = texts(endpoint, "/group", "Topics and partitions", group=group)["low:0"]
        assert f"{LARGEST:,}" in listed
        assert "100" in listed


def test_an_offset_is_shown_as_of_its_log_end(endpoint: Opened) -> None:
    found = HtmlPage.of(ask(endpoint, "/offset", group="first", topic="orders", partition=0).body)
    tiles = dict(
        zip([one.text for one in found.all("dt")], [one.text for one in found.all("dd")], strict=True)
    )
    assert tiles["Committed offset"] == "900"
    assert (tiles["Log end offset"].split()[0], tiles["Lag"].split()[0]) == ("1,000", "100")


def test_groups_that_only_own_partitions_of_a_topic_are_listed(endpoint: Opened) -> None:
    assert texts(endpoint, "/topics", "Topics")["orders"][3] == "3"
    listed = texts(endpoint, "/topic", "Groups of the topic", topic="orders")
    assert {"first", "second", "owner"} <= listed.keys()
    known = rows(endpoint, "/topic.json", "group", topic="orders")
    assert known.keys() == listed.keys()
    assert any(text.startswith("≥") for text in listed["second"]), "of a partition without a commit"


def test_lag_of_a_group_without_commits_is_at_least_unknown(endpoint: Opened) -> None:
    assert rows(endpoint, "/groups.json", "group")["owner"]["lag_is_at_least"] is True


@pytest.mark.parametrize(
    ("group", "partition", "status"),
    [("owner", 2, 200), ("first", 7, 404), ("nosuch", 0, 404), ("fit", 0, 200)],
)
def test_the_page_of_an_offset_is_there_if_its_file_is(
    endpoint: Opened, group: str, partition: int, status: int
) -> None:
    for path in ("/offset", "/offset.json"):
        assert ask(endpoint, path, group=group, topic="orders", partition=partition).status == status


def test_names_that_the_file_cannot_hold_are_named(endpoint: Opened) -> None:
    written = ask(endpoint, "/removed.reset-csv").body.decode()
    assert written.splitlines() == ["fit,orders,0,100"]
    said = HtmlPage.of(ask(endpoint, "/removed").body).said()
    assert said.count("is left out: the file cannot hold") == len(UNFIT)


def test_a_committed_offset_of_minus_one_is_below_the_log_start(endpoint: Opened) -> None:
    found = [line for line in endpoint.ask("/metrics").body.decode().splitlines() if 'group="low"' in line]
    (below,) = (line for line in found if line.startswith("offsetlake_group_topic_offsets_below_log_start{"))
    assert below.endswith(" 1")


def test_a_pattern_that_no_search_understands_is_no_link(endpoint: Opened) -> None:
    found = HtmlPage.of(ask(endpoint, "/alerts").body)
    assert "bill[AB]" in found.said()
    assert not [one for one in found.all("a") if one.text == "bill[AB]"]
