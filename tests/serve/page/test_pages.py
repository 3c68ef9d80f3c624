"""The pages over HTTP, and real tables of groups in every trouble: every page and its files, what they say,
the order of lists, the past, and errors."""

import csv
import io
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest
from html_read import Element, HtmlPage, check_harmless
from http_endpoint import Answer, Opened, opened
from kafka_clients import wait_until
from page_world import HOSTILE, MEMBERS, PARTITIONS, PageWorld
from table_batches import heartbeat

from streaming.common.arrays import from_texts
from streaming.common.partitions import offsets_partitions
from streaming.common.times import DAY_MS, HOUR_MS, MINUTE_MS, iso, now_ms
from streaming.serve.page.asked import PageCluster, fingerprint
from streaming.serve.page.cells import span
from streaming.serve.page.pages import VIEWS

OF_BILLING = "group=billing&topic=orders&partition=0"
PAGES = [
    "/clusters",
    "/",
    "/events",
    "/groups",
    "/group?group=billing",
    "/group/history?group=billing",
    f"/offset?{OF_BILLING}",
    f"/offset/history?{OF_BILLING}",
    "/topics",
    "/topic?topic=orders",
    "/leftovers",
    "/expiring",
    "/removed",
    "/alerts",
    "/status",
]
LARGEST = 300_000
UNKNOWN = "\u2013"

COMMANDS = {
    "/group.json?group=returned": "offsets --group returned",
    "/group/history.json?group=returned&span=hour": "history --group returned --since 1h",
    f"/offset.json?{OF_BILLING}": "history --group billing --topic orders:0 --since 1d",
    f"/offset/history.json?{OF_BILLING}&span=hour": "history --group billing --topic orders:0 --since 1h",
    "/topics.json": "lag --by topic",
    "/topic.json?topic=clicks": "offsets --topic clicks",
    "/leftovers.json": "leftovers",
    "/removed.json?since=day": "removed --since 1d",
    "/alerts.json": "alerts",
    "/alerts.json?which=all": "alerts --all",
    "/status.json": "status",
}
"""Files of pages, and the commands whose rows they have."""


@pytest.fixture
def world(page_world: PageWorld) -> PageWorld:
    return page_world


@pytest.fixture
def endpoint(page_endpoint: Opened) -> Opened:
    return page_endpoint


def page(endpoint: Opened, address: str, status: int = 200) -> HtmlPage:
    answer = endpoint.ask(address)
    assert answer.status == status, (address, answer.body[-400:])
    return HtmlPage.of(answer.body)


def cells(endpoint: Opened, address: str, caption: str, column: int = 0) -> list[str]:
    """The texts of one column of a list."""
    return [row[column].text for row in page(endpoint, address).tables().get(caption, [])]


def file_of(address: str, ending: str) -> str:
    """The address of the file of a page."""
    path, _, query = address.partition("?")
    return f"{'/overview' if path == '/' else path}.{ending}?{query}"


def rows_of(answer: Answer) -> list[dict[str, Any]]:
    assert answer.status == 200, answer.body
    rows: list[dict[str, Any]] = json.loads(answer.body)["rows"]
    return rows


# --- every page ------------------------------------------------------------------------------------------


def test_every_page_is_tested_here() -> None:
    assert {address.partition("?")[0] for address in PAGES} == set(VIEWS)


@pytest.mark.parametrize("address", PAGES)
def test_a_page_is_complete_html_that_no_name_breaks(endpoint: Opened, address: str) -> None:
    answer = endpoint.ask(address)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    check_harmless(answer.body)
    assert len(answer.body) <= LARGEST
    found = HtmlPage.of(answer.body)
    assert found.one("html").attributes["lang"] == "en"
    assert found.all("title")[0].text.endswith(" · offsetlake")
    assert "As of 20" in found.said()
    assert len({one.attributes.get("id") for one in found.elements if "id" in one.attributes}) == len(
        [one for one in found.elements if "id" in one.attributes]
    )


@pytest.mark.parametrize("address", PAGES)
def test_a_page_has_its_rows_as_json_and_csv(endpoint: Opened, address: str) -> None:
    path = address.partition("?")[0].strip("/").replace("/", "-") or "overview"
    told = endpoint.ask(file_of(address, "json"))
    rows = rows_of(told)
    assert told.headers["content-type"] == "application/json"
    assert told.headers["content-disposition"] == f'inline; filename="{path}.json"'
    assert set(json.loads(told.body)) == {"as_of", "errors", "remarks", "rows"}
    listed = endpoint.ask(file_of(address, "csv"))
    assert (listed.status, listed.headers["content-type"]) == (200, "text/csv; charset=utf-8")
    csv.field_size_limit(1_000_000)
    lines = list(csv.DictReader(io.StringIO(listed.body.decode(), newline="")))
    assert len(lines) == len(rows)
    if rows and path not in ("overview", "expiring"):
        assert list(lines[0]) == list(rows[0])


def test_links_of_every_page_lead_somewhere(endpoint: Opened) -> None:
    linked = {
        str(one.attributes["href"])
        for address in PAGES
        for one in page(endpoint, address).elements
        if one.tag in ("a", "link") and not re.search("group=|span=|sort=", str(one.attributes["href"]))
    }
    linked |= {str(one.attributes["src"]) for one in page(endpoint, "/").elements if "src" in one.attributes}
    assert len(linked) > 30
    files = {file_of(address, ending).removesuffix("?") for address in PAGES for ending in ("json", "csv")}
    asked_elsewhere = {address for address in linked if address in files}
    assert len(asked_elsewhere) > 10
    for address in sorted(linked - asked_elsewhere - {"#main", "/metrics"}):
        assert endpoint.ask(address).status == 200, address


def test_files_are_the_rows_of_commands(endpoint: Opened, world: PageWorld, offsetlake: Any) -> None:
    for address, command in COMMANDS.items():
        told = json.loads(endpoint.ask(address).body)
        ended = offsetlake(*command.split(), "--table-root", world.tables.root, "--output", "document")
        assert told["rows"] == json.loads(ended.out)["rows"], address
        assert len(told["rows"]) > 0, address
        assert told["as_of"]["batch"] == json.loads(ended.out)["as_of"]["batch"]


def test_offsets_that_expire_are_those_of_the_command(
    endpoint: Opened, world: PageWorld, offsetlake: Any
) -> None:
    """The time that is left depends on the moment of the question."""
    ended = offsetlake("expiring", "--within", "1d", "--table-root", world.tables.root, "--output", "json")
    expected = json.loads(ended.out)
    found = rows_of(endpoint.ask("/expiring.json"))
    assert [row["expires_at"] for row in found] == [row["expires_at"] for row in expected]
    listed = cells(endpoint, "/expiring", "Offsets that expire", 3)
    assert [f"{row['topic']}:{row['partition']}" for row in expected][: len(listed)] == listed


def test_removed_offsets_lead_to_their_history(endpoint: Opened) -> None:
    listed = HtmlPage.of(endpoint.ask("/removed?since=quarter&q=gone").body)
    address = next(one for one in listed.links().values() if one.startswith("/offset?"))
    answer = endpoint.ask(address)
    assert answer.status == 200
    assert "There is no committed offset at this moment." in HtmlPage.of(answer.body).said()
    told = HtmlPage.of(endpoint.ask(address.replace("/offset?", "/offset/history?")).body).said()
    assert "removed" in told


def test_removed_offsets_come_as_the_file_that_puts_them_back(
    endpoint: Opened, world: PageWorld, offsetlake: Any
) -> None:
    ended = offsetlake(
        *("removed", "--since", "7d", "--table-root", world.tables.root, "--output", "reset-csv")
    )
    answer = endpoint.ask("/removed.reset-csv")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/csv; charset=utf-8")
    assert answer.headers["content-disposition"] == 'inline; filename="removed.csv"'
    assert answer.body.decode() == ended.out
    groups = {line[0] for line in csv.reader(io.StringIO(ended.out, newline=""))}
    assert {"gone", "=1+1", "@SUM(A1)", "-1", "<script>alert(1)</script>"} <= groups  # none is altered


def test_names_that_the_file_of_removed_offsets_cannot_hold_are_said(endpoint: Opened) -> None:
    name = next(name for name in HOSTILE if "\n" in name)
    left_out = f"/removed.reset-csv: group {name!r} is left out: the file cannot hold a line end in a name"
    found = json.loads(endpoint.ask(f"/removed.json?{urlencode({'q': name})}").body)
    assert left_out in found["remarks"]
    assert left_out in page(endpoint, f"/removed?{urlencode({'q': name})}").said()
    assert "is left out" not in page(endpoint, "/removed?q=gone").said()


# --- what pages say --------------------------------------------------------------------------------------


def test_incomplete_offsets_partitions_are_named_on_every_page_of_all_groups(endpoint: Opened) -> None:
    for address in ("/", "/groups", "/topics", "/topic?topic=orders", "/expiring", "/removed", "/alerts"):
        said = page(endpoint, address).said()
        assert "offsets partitions 3 are still being read" in said, address
        assert "offsets partitions 1 are behind: newer commits are not read yet" in said, address
        assert "Complete." not in said, address


def test_the_start_page_counts_what_the_lists_have(endpoint: Opened) -> None:
    numbers = {row["name"]: row["value"] for row in rows_of(endpoint.ask("/overview.json"))}
    assert numbers["groups"] == len(rows_of(endpoint.ask("/groups.json")))
    assert numbers["alerts_open"] == len(rows_of(endpoint.ask("/alerts.json")))
    known = [row for row in rows_of(endpoint.ask("/expiring.json")) if row["expires_at"] is not None]
    assert numbers["expiring_within_a_day"] == len(known)
    assert (numbers["offsets_partitions"], numbers["offsets_partitions_complete"]) == (4, 2)
    said = page(endpoint, "/").said()
    assert f"Groups{int(numbers['groups'])} " in said
    assert "2 of 4" in said


def test_a_group_shows_its_state_lag_members_and_commands(endpoint: Opened) -> None:
    said = page(endpoint, "/group?group=dead").said()
    assert "Group dead Stable STOPPED" in said
    assert "no commits, records waiting" in said
    assert "kafka-consumer-groups --bootstrap-server localhost:9092 --describe --group dead" in said
    (member,) = page(endpoint, "/group?group=dead").tables()["Members"]
    assert [cell.text.strip() for cell in member][:4] == ["dead-1", "", "dead", "/10.0.3.10"]


def notes_of(found: HtmlPage) -> dict[str, str]:
    """What a page says that words mean."""
    details = [one for one in found.all("details") if one.attributes.get("class") == "notes"]
    return {
        next(one.text for one in pair.inside if one.tag == "dt"): next(
            one.text for one in pair.inside if one.tag == "dd"
        )
        for notes in details
        for pair in notes.inside
        if pair.tag == "div"
    }


def test_what_stands_in_a_title_stands_below_the_list_too(endpoint: Opened) -> None:
    """A keyboard or a finger does not reach a title."""
    for address in (*PAGES, "/group?group=former", "/group?group=left", "/group?group=leaving"):
        found = page(endpoint, address)
        titles = {
            str(one.attributes["title"])
            for one in found.elements
            if one.tag in ("th", "span") and "title" in one.attributes
        }
        assert [title for title in titles if title not in found.said()] == [], address
    assert set(notes_of(page(endpoint, "/groups"))) == {"Lag", "Lag time", "First expiry"}
    assert {"recreated topic", "classic subscribed"} <= notes_of(page(endpoint, "/group?group=former")).keys()
    assert "not subscribed" in notes_of(page(endpoint, "/group?group=left"))
    assert "classic empty" in notes_of(page(endpoint, "/expiring"))


def test_an_offset_shows_a_rewind_in_its_history(endpoint: Opened) -> None:
    found = page(endpoint, "/offset/history?group=returned&topic=orders&partition=0&span=hour")
    steps = found.tables()["Steps"]
    assert [row[3].text.split()[0] for row in steps if "rewind" in row[3].text] == ["rewind"]
    assert [one.attributes["class"] for one in found.all("line")] == ["rewind"]
    assert found.all("svg")[0].attributes["role"] == "img"
    events = page(endpoint, "/group/history?group=returned&span=hour").said()
    assert "orders:0 rewound from" in events


def test_alerts_that_were_not_delivered_are_said_to_be(endpoint: Opened) -> None:
    found = page(endpoint, "/alerts")
    assert "webhook" in {row[6].text for row in found.tables()["Alerts"]}
    assert "not delivered" in found.said() or "have not been delivered" in found.said()


def test_long_lists_have_bounded_pages(endpoint: Opened) -> None:
    for group, caption, rows, count in (
        ("wide", "Topics and partitions", 100, PARTITIONS),
        ("populous", "Members", 50, MEMBERS),
        ("populous", "Topics and partitions", 100, MEMBERS),
    ):
        answer = endpoint.ask(f"/group?group={group}")
        found = HtmlPage.of(answer.body)
        assert len(answer.body) <= LARGEST
        assert len(found.tables()[caption]) == rows
        assert f"Page 1 of {count // rows:,}" in found.said().replace(",", "")
    for address in (
        *("/group/history?group=wide&span=hour", "/group/history?group=populous", "/topic?topic=wide"),
        *("/offset/history?group=wide&topic=wide&partition=4999", "/leftovers", "/removed?since=quarter"),
    ):
        assert len(endpoint.ask(address).body) <= LARGEST, address
    last = page(endpoint, f"/group?group=wide&page={PARTITIONS // 100}")
    assert last.tables()["Topics and partitions"][-1][0].text == f"wide:{PARTITIONS - 1}"


def test_lists_in_one_page_turn_their_own_pages(endpoint: Opened) -> None:
    found = page(endpoint, "/group?group=populous&page=2")
    assert "Page 2 of 30 Next" in found.said()
    members = {row[0].text for row in found.tables()["Members"]}
    following = page(endpoint, "/group?group=populous&page=2&members=2")
    assert "Page 2 of 30 Next" in following.said()
    assert "Page 2 of 60 Next" in following.said()
    assert members.isdisjoint(row[0].text for row in following.tables()["Members"])


# --- values ----------------------------------------------------------------------------------------------


def shown(number: float | None) -> str:
    """A number as cells have it."""
    return UNKNOWN if number is None else f"{number:,}"


@pytest.mark.parametrize(
    ("address", "caption", "columns"),
    [
        ("/groups?q=l", "Groups", {3: "members", 5: "lag"}),
        (
            "/status",
            "Offsets partitions",
            {0: "partition", 2: "position", 3: "last_stable_offset", 4: "high_watermark", 5: "behind"},
        ),
        ("/removed?q=gone", "Removed offsets", {3: "removed_offset", 4: "committed_offset"}),
        ("/topics", "Topics", {4: "lag"}),
        ("/expiring?q=l", "Offsets that expire", {4: "committed_offset"}),
        ("/group?group=returned", "Topics and partitions", {2: "log_end_offset", 3: "lag"}),
        ("/group?group=wide", "Topics and partitions", {1: "committed_offset"}),
    ],
)
def test_a_list_shows_the_numbers_of_its_file(
    endpoint: Opened, address: str, caption: str, columns: dict[int, str]
) -> None:
    listed = page(endpoint, address).tables()[caption]
    rows = rows_of(endpoint.ask(file_of(address, "json")))
    if caption == "Topics":
        rows = sorted(rows, key=lambda row: str(row["topic"]))
    assert len(listed) > 1
    for place, name in columns.items():
        expected = [shown(row[name]) for row in rows if caption != "Topics" or row[name] is not None]
        told = [row[place].text for row in listed if caption != "Topics" or row[place].text != UNKNOWN]
        assert told == expected[: len(told)], name


def test_the_longest_lag_time_of_a_topic_counts(endpoint: Opened) -> None:
    rows = {row["topic"]: row for row in rows_of(endpoint.ask("/topics.json"))}
    listed = {row[0].text: row for row in page(endpoint, "/topics").tables()["Topics"]}
    for topic in ("orders", "clicks", "payments"):
        told = listed[topic][5].text.removeprefix("≥ ")
        assert told == str(span(rows[topic]["lag_seconds"])), topic


def test_topics_that_nobody_reads_are_those_without_groups_with_members(endpoint: Opened) -> None:
    every = page(endpoint, "/topics").tables()["Topics"]
    unread = [row[0].text for row in every if row[3].text == "0"]
    assert 0 < len(unread) < len(every)
    assert cells(endpoint, "/topics?readers=none", "Topics") == unread


def test_steps_are_those_of_the_file_and_the_newest_comes_first(endpoint: Opened) -> None:
    key = "group=returned&topic=orders&partition=0&span=hour"
    rows = rows_of(endpoint.ask(f"/offset/history.json?{key}"))[::-1]
    steps = page(endpoint, f"/offset/history?{key}").tables()["Steps"]
    assert [[row[place].text for place in (1, 4, 5)] for row in steps] == [
        [shown(row["committed_offset"]), shown(row["commits"]), shown(row["lag"])] for row in rows
    ]
    assert [row[2].text for row in steps] == [
        UNKNOWN if row["step"] is None else f"{row['step']:+,}" for row in rows
    ]


def test_the_lag_of_groups_is_that_of_the_command(
    endpoint: Opened, world: PageWorld, offsetlake: Any
) -> None:
    """Also of a group that has only assigned partitions."""
    expected = json.loads(offsetlake("lag", "--table-root", world.tables.root, "--output", "json").out)
    rows = {row["group"]: row for row in rows_of(endpoint.ask("/groups.json"))}
    for name in ("lag", "lag_is_at_least"):
        assert {one["group"]: rows[one["group"]][name] for one in expected} == {
            one["group"]: one[name] for one in expected
        }
    assert rows["populous"]["partitions"] == 0


def test_a_topic_shows_the_groups_of_its_file(endpoint: Opened) -> None:
    """Also a group that has only assigned partitions."""
    names = {row["group"] for row in rows_of(endpoint.ask("/topic.json?topic=orders"))}
    found = page(endpoint, "/topic?topic=orders")
    rows = {linked(row): row for row in found.tables()["Groups of the topic"]}
    assert rows.keys() == names | {fingerprint(name) for name in names} & rows.keys()
    assert len(rows) == len(names)
    assert [cell.text for cell in rows["populous"]][2:6] == [f"{MEMBERS:,}", "0", UNKNOWN, UNKNOWN]


def test_the_groups_that_are_furthest_behind_come_first(endpoint: Opened) -> None:
    rows = [row for row in rows_of(endpoint.ask("/groups.json")) if row["lag_seconds"] is not None]
    rows.sort(key=lambda row: -row["lag_seconds"])
    said = page(endpoint, "/").said().partition("Furthest behind")[2]
    assert said.split()[:2] == ["≥", str(span(rows[0]["lag_seconds"])).split()[0]]
    assert f" {rows[0]['group']} {rows[0]['lag']:,} records" in said


def test_an_owner_is_a_client_and_its_host(endpoint: Opened) -> None:
    owned = page(endpoint, "/group?group=populous").tables()["Topics and partitions"][0]
    assert " ".join(owned[8].text.split()) == "client-0 /10.0.0.1"


def test_lines_remove_whole_groups_only_without_a_filter_of_the_reason(endpoint: Opened) -> None:
    address = "/leftovers?idle=1m&q=leaving"
    assert "--delete --group leaving" in page(endpoint, address).said()
    filtered = page(endpoint, f"{address}&reason=no+members%2C+no+commits").said()
    assert ("--delete --group" in filtered, "--delete-offsets --group leaving" in filtered) == (False, True)


@pytest.mark.more
def test_closed_alerts_say_since_when(tmp_path: Path) -> None:
    world = PageWorld(tmp_path / "tables", now_ms() - MINUTE_MS)
    world.write(world._now + 30_000, {("leaving", "orders", 0): None})
    world.evaluate(world._now + 30_000)
    with opened(world.tables) as endpoint:
        rows = rows_of(endpoint.ask("/alerts.json?which=all"))
        listed = page(endpoint, "/alerts?which=all").tables()["Alerts"]
        assert any(row["closed_at"] for row in rows)
        assert [row[5].text for row in listed] == [
            UNKNOWN if row["closed_at"] is None else row["closed_at"][11:19] for row in rows
        ][: len(listed)]


# --- lists -----------------------------------------------------------------------------------------------


def test_groups_are_found_by_a_part_of_their_name_or_a_pattern(endpoint: Opened) -> None:
    assert cells(endpoint, "/groups?q=BILL", "Groups") == ["billing"]
    assert cells(endpoint, "/groups?q=b*g", "Groups") == ["billing"]
    assert cells(endpoint, "/groups?q=?illing", "Groups") == ["billing"]
    assert cells(endpoint, "/groups?q=%3Cscript", "Groups")[:1] == ["</title><script>alert(1)</script>"]
    assert cells(endpoint, "/groups?q=%5Bred%5D", "Groups") == ["[red]markup[/red]"]
    assert cells(endpoint, f"/groups?{urlencode({'q': 'NUL '})}", "Groups")
    nothing = page(endpoint, "/groups?q=no-such-name")
    assert "No group matches. Remove a filter, or search for less." in nothing.said()
    assert nothing.links()["Show all"] == "/groups"


def test_filters_select_and_keep_the_order(endpoint: Opened) -> None:
    states = [row["state"] for row in rows_of(endpoint.ask("/groups.json"))]
    assert set(states) == {"Stable", "Empty", None}
    for state in ("Stable", "Empty"):
        chosen = rows_of(endpoint.ask(f"/groups.json?state={state}"))
        assert [row["state"] for row in chosen] == [state] * states.count(state)
    found = page(endpoint, "/groups?state=Empty&sort=lag&order=falling&q=lea")
    assert [row[0].text for row in found.tables()["Groups"]] == ["leaving"]
    (selected,) = [one for one in found.all("option") if "selected" in one.attributes]
    assert selected.text == "Empty"
    kept = {one.attributes["name"]: one.attributes["value"] for one in found.all("input", type="hidden")}
    assert kept == {"sort": "lag", "order": "falling"}
    (recreated,) = page(endpoint, "/topics?readers=recreated").tables()["Topics"]
    assert recreated[0].text.startswith("views recreated ")
    assert rows_of(endpoint.ask("/status.json?q=ignored"))


@pytest.mark.parametrize(
    "by", ["group", "state", "members", "lag", "lag_seconds", "last_commit", "first_expiry"]
)
def test_groups_are_sorted_with_unknown_values_last(endpoint: Opened, by: str) -> None:
    rows = {row["group"]: row[by] for row in rows_of(endpoint.ask("/groups.json"))}
    rows_of_links = rows | {fingerprint(name): value for name, value in rows.items()}
    for order in ("rising", "falling"):
        pages = [page(endpoint, f"/groups?sort={by}&order={order}&page={number}") for number in (1, 2)]
        values = [rows_of_links[linked(one)] for found in pages for one in found.tables()["Groups"]]
        assert len(values) == len(rows)
        known = [value for value in values if value is not None]
        assert values == known + [None] * (len(values) - len(known))
        assert known == sorted(known, reverse=order == "falling")
        file = rows_of(endpoint.ask(f"/groups.json?sort={by}&order={order}"))
        assert [row[by] for row in file] == values
        ordered = next(one for one in pages[0].all("th") if "aria-sort" in one.attributes)
        assert ordered.attributes["aria-sort"] == {"rising": "ascending", "falling": "descending"}[order]


def test_files_refuse_an_order_that_their_list_does_not_offer(endpoint: Opened) -> None:
    answer = endpoint.ask("/groups.json?sort=nonsense")
    assert answer.status == 400
    assert b"sort: expected one of group, state, members, " in answer.body


def linked(row: list[Element]) -> str:
    """The name of the group in the link of a row, or its SHA-256."""
    (link,) = (one for one in row[0].inside if one.tag == "a")
    query = parse_qs(str(link.attributes["href"]).partition("?")[2], keep_blank_values=True)
    (name,) = query.get("group") or query["group_sha256"]
    return name


@pytest.mark.more
def test_every_order_that_a_list_offers_is_taken(endpoint: Opened) -> None:
    for address in PAGES:
        for head in page(endpoint, address).all("th"):
            for link in (one for one in head.inside if one.tag == "a"):
                again = page(endpoint, str(link.attributes["href"]))
                (own,) = (one for one in again.all("th") if one.text == head.text)
                other = next(one.attributes["href"] for one in own.inside if one.tag == "a")
                assert "aria-sort" in own.attributes, head.text
                assert other != link.attributes["href"]


def test_pages_of_a_list_are_bounded(endpoint: Opened) -> None:
    first, second = page(endpoint, "/groups"), page(endpoint, "/groups?page=2")
    names = [row[0].text for found in (first, second) for row in found.tables()["Groups"]]
    assert len(names) == len(set(names)) == len(rows_of(endpoint.ask("/groups.json")))
    assert second.links()["Previous"] == "/groups?page=1"
    assert cells(endpoint, "/groups?page=1000000000", "Groups") == names[100:]
    for number in ("0", "-1", "x", "1.5", "1e3", "٣", "9" * 30, " 1"):
        answer = endpoint.ask(f"/groups?{urlencode({'page': number})}")
        assert answer.status == 400, number
        assert "page: expected a whole number of at least 1, found" in HtmlPage.of(answer.body).said()


def test_a_list_without_an_order_ignores_it(endpoint: Opened) -> None:
    chosen = cells(endpoint, "/expiring?sort=x", "Offsets that expire", 3)
    assert chosen == cells(endpoint, "/expiring", "Offsets that expire", 3)


def test_searches_may_be_of_any_text(endpoint: Opened) -> None:
    for text in (
        *(
            "*a" * 2_500,
            "?" * 5_000,
            "*" * 5_000,
            "(" * 3_000,
            "\\",
            "\\E",
            "[",
            "[!",
            "a\0",
            "\u202e",
            "é",
            "\U0001f422",
        ),
        *("&" * 5_000, "%", "%00", "'", '"><script>alert(1)</script>', "*<b>*"),
    ):
        for path in ("/groups", "/topics", "/expiring", "/leftovers"):
            answer = endpoint.ask(f"{path}?{urlencode({'q': text})}")
            assert answer.status == 200, (path, text[:20])
            assert len(answer.body) <= LARGEST, (path, text[:20])
        check_harmless(answer.body)


# --- the past --------------------------------------------------------------------------------------------


def test_searches_of_the_tables_may_be_of_any_text(endpoint: Opened) -> None:
    for text in ("*a" * 2_500, "(" * 3_000, "a\0", '"><script>alert(1)</script>'):
        answer = endpoint.ask(f"/removed?{urlencode({'q': text})}")
        assert (answer.status, len(answer.body) <= LARGEST) == (200, True), text[:20]
        check_harmless(answer.body)


def test_a_group_is_shown_as_it_was(endpoint: Opened, world: PageWorld) -> None:
    then = world._now - 20 * MINUTE_MS
    for text in (str(then), iso(then)):
        found = page(endpoint, f"/group?{urlencode({'group': 'dead', 'as_of': text})}")
        assert f"As of {iso(then, 'seconds')} (batch 6)" in found.said()
        (row,) = found.tables()["Topics and partitions"]
        assert row[1].text == f"{world._end(then) - 10:,}"
        assert "data-live" not in found.one("main").attributes
        assert f"offsetlake restore --group dead --as-of {iso(then)}" in found.said()
    assert "data-live" in page(endpoint, "/group?group=dead").one("main").attributes
    history = endpoint.ask(f"/group/history.json?group=dead&as_of={then}")
    assert {row["batch_time"] for row in rows_of(history)} <= {iso(then - n * MINUTE_MS) for n in range(6)}


def test_the_restore_command_of_a_past_page_runs(endpoint: Opened, world: PageWorld, offsetlake: Any) -> None:
    found = page(endpoint, f"/group?group=dead&as_of={world._now - 20 * MINUTE_MS}")
    (line,) = (line for pre in found.all("pre") for line in pre.text.splitlines() if "restore" in line)
    program, *arguments, into, _ = shlex.split(line)
    assert (program, into) == ("offsetlake", ">")
    ended = offsetlake(*arguments)
    assert ended.code == 0, ended.err
    assert ended.out.startswith("orders,0,")


def test_a_group_that_came_later_is_not_there_before(endpoint: Opened, world: PageWorld) -> None:
    numbers = offsets_partitions(from_texts(HOSTILE), 4).tolist()
    name = next(
        name
        for name, number in zip(HOSTILE, numbers, strict=True)
        if number == 0 and name.isascii() and name.isalpha()
    )
    found = page(endpoint, f"/group?group={name}&as_of={world._now - 10 * MINUTE_MS}", 404)
    assert f"group {name!r} was not there as of" in found.said()
    assert "it appears at" in found.said()


@pytest.mark.parametrize(
    "moment", ["2099-01-01", "+1h", "yesterday", "1e9", "1969-12-31", "9" * 13, "0", "-"]
)
def test_a_moment_that_cannot_be_is_misuse(endpoint: Opened, moment: str) -> None:
    for path in ("/group", "/offset", "/group/history", "/group.json", "/group/history.csv"):
        answer = endpoint.ask(f"{path}?{urlencode({'group': 'dead', 'topic': 'orders', 'as_of': moment})}")
        assert (answer.status, b"as_of: expected" in answer.body) == (400, True), path


def test_a_moment_before_the_history_is_said_to_be(endpoint: Opened, world: PageWorld) -> None:
    for path in ("/group", "/offset", "/group/history", "/group.json"):
        answer = endpoint.ask(f"{path}?group=dead&topic=orders&as_of={world._now - HOUR_MS}")
        assert answer.status == 404
        assert f"history starts at {iso(world._now - 25 * MINUTE_MS)}" in answer.body.decode()


# --- errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "status", "sentence"),
    [
        ("/group?group=nobody", 404, "group 'nobody' is not there. Its offsets may"),
        ("/group", 404, "/group: expected the parameter group, found none"),
        ("/group?group_sha256=0", 404, "/group: expected the parameter group, found none"),
        ("/offset/history?group=nobody&topic=orders&partition=0", 404, "found none as of"),
        ("/offset?group=dead", 404, "/offset: expected the parameter topic, found none"),
        ("/offset/history?group=dead&topic=none", 404, "expected an offset that was committed"),
        ("/topic?topic=none", 404, "topic 'none' is not there: no group has committed"),
        ("/groups?cluster=none", 404, "cluster 'none': expected one of"),
        ("/groups?sort=nothing", 400, "sort: expected one of group, state"),
        ("/groups?order=up", 400, "order: expected one of rising, falling; found 'up'"),
        ("/groups?state=Happy", 400, "state: expected one of"),
        ("/expiring?within=year", 400, "within: expected one of day, week; found 'year'"),
        ("/removed?cause=bogus", 400, "cause: expected one of expired"),
        ("/removed?since=ever", 400, "since: expected one of day, week, quarter; found 'ever'"),
        ("/alerts?which=none", 400, "which: expected one of open, all; found 'none'"),
        ("/leftovers?idle=long", 400, "idle: expected"),
        ("/topics?readers=many", 400, "readers: expected one of none, recreated; found 'many'"),
        ("/group/history?group=dead&span=year", 400, "span: expected one of hour, 6 hours"),
        ("/group?group=%3Cscript%3Ealert(1)%3C/script%3E%0A", 404, "alert(1)"),
    ],
)
def test_an_error_is_a_page_that_says_what_was_expected(
    endpoint: Opened, address: str, status: int, sentence: str
) -> None:
    answer = endpoint.ask(address)
    assert answer.status == status
    check_harmless(answer.body)
    found = HtmlPage.of(answer.body)
    assert sentence in found.said()
    assert "etag" not in answer.headers
    assert found.links()["All groups"] == "/groups"


def why(answer: Answer) -> str:
    """The sentence of an error of a file."""
    if answer.headers["content-type"] == "application/json":
        told = json.loads(answer.body)
        assert list(told) == ["error"]
        return str(told["error"])
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    return answer.body.decode().removesuffix("\n")


def test_an_error_of_a_file_is_a_sentence(endpoint: Opened) -> None:
    for address in (
        "/groups.json?sort=x&state=Happy",
        "/groups.csv?state=Happy",
        "/removed.reset-csv?since=x",
        "/removed.json?since=%0A",
    ):
        answer = endpoint.ask(address)
        assert answer.status == 400
        assert ": expected one of" in why(answer)
        assert "etag" not in answer.headers


def test_a_file_of_what_is_not_there_is_no_file(endpoint: Opened, world: PageWorld) -> None:
    past = f"&as_of={world._now - 5 * MINUTE_MS}"
    odd = next(
        name
        for name in (f"'\n\0\u202e<b>{number}" for number in range(100))
        if offsets_partitions(from_texts([name]), 4).tolist() == [0]
    )
    for address, sentence in (
        ("/group.{}?group=nobody", "group 'nobody' is not there. Its offsets may have been removed"),
        (f"/group.{{}}?{urlencode({'group': odd})}", f"group {odd!r} is not there."),
        (f"/group.{{}}?group=nobody{past}", "group 'nobody' was not there as of 20"),
        (f"/group.{{}}?group=populous{past}", "it appears at 20"),
        ("/group/history.{}?group=nobody", "group 'nobody' is not there."),
        (f"/group/history.{{}}?group=populous{past}", "group 'populous' was not there as of 20"),
        ("/offset.{}?group=nobody&topic=orders", "topic partition 'orders:0' is not there"),
        ("/offset/history.{}?group=billing&topic=orders&partition=77", "topic partition 'orders:77' is"),
        (f"/offset.{{}}?group=billing&topic=clicks{past}", "had none in the history"),
        ("/topic.{}?topic=none", "topic 'none' is not there: no group has committed offsets of it"),
    ):
        for ending in ("json", "csv"):
            answer = endpoint.ask(address.format(ending))
            assert (answer.status, sentence in why(answer)) == (404, True), (address, answer.body)


def test_there_is_no_other_file_or_page(endpoint: Opened) -> None:
    for path in (
        *("/overview", "/groups.html", "/groups.reset-csv", "/groups.", "/.json", "/group.xml", "/groups/"),
        *(
            "/static/",
            "/static/none",
            "/static/../pages.py",
            "/static/%2e%2e/pages.py",
            "/GROUPS",
            "/index.html",
        ),
    ):
        assert endpoint.ask(path).status == 404, path


def test_addresses_that_cannot_be_read_are_refused(endpoint: Opened) -> None:
    for query in ("q=%FF", "q=%ED%A0%80", "%C3=x", "&".join(f"p{number}=1" for number in range(60))):
        answer = endpoint.ask(f"/groups?{query}")
        assert (answer.status, answer.headers["content-type"]) == (400, "text/plain; charset=utf-8")
        assert b"more parameters than are allowed, or no UTF-8" in answer.body
    assert endpoint.ask("/groups?q=%00&q=bill&&=&;").status == 200
    assert cells(endpoint, "/groups?q=x&q=billing", "Groups") == ["billing"]  # the last counts


# --- HTTP ------------------------------------------------------------------------------------------------


def test_headers_forbid_what_a_page_does_not_need(endpoint: Opened) -> None:
    for address in (*PAGES, "/group?group=nobody", "/groups.json", "/groups.csv", "/removed.reset-csv"):
        headers = endpoint.ask(address).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';"), (
            address
        )
        assert "unsafe" not in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff", address
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "private, no-cache"
        assert headers["vary"] == "Authorization, Cookie"
    for name, kind in (
        ("style.css", "text/css"),
        ("page.js", "text/javascript"),
        ("icon.svg", "image/svg+xml"),
    ):
        headers = endpoint.ask(f"/static/{name}").headers
        assert headers["content-type"].startswith(kind)
        assert (headers["x-content-type-options"], "max-age" in headers["cache-control"]) == ("nosniff", True)


def test_head_has_the_headers_of_get_and_no_body(endpoint: Opened) -> None:
    for address in (*PAGES, "/groups.csv", "/group?group=nobody", "/static/page.js"):
        head, get = endpoint.ask(address, "HEAD"), endpoint.ask(address)
        assert (head.status, head.body) == (get.status, b""), address
        assert head.headers["content-type"] == get.headers["content-type"]
        assert endpoint.ask(address, "POST").status == 405


def test_what_a_client_has_is_not_sent_again_until_it_changes(
    world: PageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.serve.page.pages._AGES_MS", DAY_MS)
    with opened(world.tables, every_s=600) as endpoint:
        addresses = [address for address in PAGES if "history" not in address] + [
            "/groups.json",
            "/group.csv?group=wide",
        ]
        tags: dict[str, str] = {}

        def is_known(address: str) -> bool:
            answer = endpoint.ask(address, if_none_match=tags[address])
            assert answer.status in (200, 304)
            assert answer.status == 200 or (answer.body, answer.headers["etag"]) == (b"", tags[address])
            return answer.status == 304

        def are_known() -> bool:  # not always at once: the first assessment makes other pages
            tags.update({address: endpoint.ask(address).headers["etag"] for address in addresses})
            return all(map(is_known, addresses))

        wait_until(are_known, "pages that the client has")
        assert endpoint.ask("/groups", if_none_match='"another"').status == 200
        assert endpoint.ask("/groups", if_none_match=f"W/{tags['/groups']}").status == 304
        heartbeat(world.tables, world.tables.progress().heartbeat + 1)
        wait_until(lambda: not is_known("/status"), "a heartbeat")
        known = set(filter(is_known, addresses))
        assert {address.partition("?")[0] for address in known} == {
            path for path, view in VIEWS.items() if view.is_assessed
        }
        endpoint.telling._clusters[0].refresher.make()
        assert not any(map(is_known, known))
    with opened(world.tables, every_s=600) as another:  # another process: another assessment, and counters
        assert another.ask("/groups").headers["etag"] != tags["/groups"]


def test_a_client_that_has_any_body_gets_errors_and_no_page(endpoint: Opened) -> None:
    """There is no body of an error that it could have (RFC 9110, 13.1.2)."""
    for address in ("/groups", "/groups.json", "/group/history?group=billing"):
        answer = endpoint.ask(address, if_none_match="*")
        assert (answer.status, answer.body) == (304, b""), address
        assert "etag" in answer.headers
    for address, status in (
        ("/group?group=nobody", 404),
        ("/group.json?group=nobody", 404),
        ("/groups?sort=nothing", 400),
        ("/groups?cluster=none", 404),
    ):
        answer = endpoint.ask(address, if_none_match="*")
        assert (answer.status, answer.body) == (status, endpoint.ask(address).body), address


def test_each_snapshot_makes_another_page(endpoint: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it lies in memory where one before it was."""
    pages, now = endpoint.telling.pages, now_ms()
    first = pages.clusters[0].snapshot()
    monkeypatch.setattr(PageCluster, "snapshot", lambda _: replace(first))
    tags = [pages.etag("/status", {}, now) for _ in range(100)]
    assert len(set(tags)) == len(tags)


def test_a_page_is_another_one_after_ten_seconds(endpoint: Opened) -> None:
    """It says how long ago things were."""
    pages, now = endpoint.telling.pages, now_ms()
    assert pages.etag("/status", {}, now) != pages.etag("/status", {}, now + 10_000)
