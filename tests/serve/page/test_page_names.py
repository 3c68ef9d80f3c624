"""Names as bad as a broker lets them be, on pages: shown apart, harmless, and leading back to themselves."""

import csv
import io
import json
import subprocess
from urllib.parse import urlencode

import pytest
from csv_texts import without_escapes
from html_read import HtmlPage, check_harmless
from http_endpoint import Opened
from page_world import HOSTILE, TOPICS, named_offset

from streaming.serve.page.asked import fingerprint
from streaming.serve.page.cells import name_text

LARGEST = 300_000
FORMULA = ("=", "+", "-", "@", "\t", "\r")


@pytest.fixture
def endpoint(page_endpoint: Opened) -> Opened:
    return page_endpoint


def in_address(name: str, value: str) -> str:
    """A parameter as links have it."""
    long = {f"{name}_sha256": fingerprint(value)}
    return urlencode(long if len(value) > 500 else {name: value})


def groups_listed(endpoint: Opened) -> dict[str, str]:
    """The links of all groups by their texts."""
    pages = [HtmlPage.of(endpoint.ask(f"/groups?page={number}").body) for number in (1, 2)]
    rows = [row for page in pages for row in page.tables()["Groups"]]
    links = [next(one for one in row[0].inside if one.tag == "a") for row in rows]
    found = {link.text: str(link.attributes["href"]) for link in links}
    assert len(found) == len(rows), "two groups look alike"
    return found


def test_every_name_is_listed_apart_and_its_link_leads_to_it(endpoint: Opened) -> None:
    found = groups_listed(endpoint)
    assert {name_text(name) for name in HOSTILE} <= found.keys()
    for name in HOSTILE:
        address = found[name_text(name)]
        assert address == f"/group?{in_address('group', name)}"
        answer = endpoint.ask(address)
        assert (answer.status, len(answer.body) <= LARGEST) == (200, True), name[:50]
        check_harmless(answer.body)
        assert HtmlPage.of(answer.body).one("h1").text == f"Group {name_text(name)}"


@pytest.mark.more
def test_the_offset_of_every_name_is_shown(endpoint: Opened) -> None:
    for name in HOSTILE:
        key = named_offset(name)
        rest = urlencode({"topic": str(key["topic"]), "partition": 0})
        answer = endpoint.ask(f"/offset?{in_address('group', name)}&{rest}")
        assert answer.status == 200, name[:50]
        check_harmless(answer.body)
        heading = HtmlPage.of(answer.body).one("h1").text
        assert heading == f"Offset of {name_text(name)} in {name_text(str(key['topic']))}:0"


@pytest.mark.parametrize(
    "name",
    [
        "two\nlines\r\nof text",
        *(
            pytest.param(name, marks=pytest.mark.more)
            for name in ("é" * 16_383 + "z", "<script>alert(1)</script>", "nul\0", "=1+1", "")
        ),
    ],
)
def test_history_and_files_of_a_name_are_its_own(endpoint: Opened, name: str) -> None:
    if name not in HOSTILE:
        name = next(other for other in HOSTILE if other.startswith("NUL "))
    group, topic = in_address("group", name), urlencode({"topic": str(named_offset(name)["topic"])})
    for path in ("/group/history?span=hour&", f"/offset/history?span=hour&partition=0&{topic}&"):
        answer = endpoint.ask(path + group)
        assert answer.status == 200
        check_harmless(answer.body)
        assert (
            name_text(name)
            in HtmlPage.of(answer.body).one("main").text + HtmlPage.of(answer.body).all("title")[0].text
        )
    told = json.loads(endpoint.ask(f"/group.json?{group}").body)["rows"]
    assert {(row["group"], row["metadata"]) for row in told} == {(name, name)}
    lines = csv.DictReader(io.StringIO(endpoint.ask(f"/group.csv?{group}").body.decode(), newline=""))
    assert {without_escapes(line["group"]) for line in lines} == {name}


def test_topics_are_listed_apart_and_their_links_lead_to_them(endpoint: Opened) -> None:
    links = HtmlPage.of(endpoint.ask("/topics").body).links()
    for topic in TOPICS:
        answer = endpoint.ask(links[name_text(topic)])
        assert answer.status == 200
        check_harmless(answer.body)
        assert HtmlPage.of(answer.body).one("h1").text == f"Topic {name_text(topic)}"
        rows = json.loads(endpoint.ask(links[name_text(topic)].replace("/topic?", "/topic.json?")).body)[
            "rows"
        ]
        assert {row["topic"] for row in rows} == {topic}


def test_lists_of_all_groups_with_such_names_are_harmless(endpoint: Opened) -> None:
    for address in (
        *(
            "/",
            "/events",
            "/removed",
            "/removed?page=2",
            "/expiring?page=3",
            "/leftovers",
            "/topics",
            "/groups?page=2",
        ),
        *(
            "/alerts",
            "/groups?q=%3Cscript",
            "/removed?q=%00",
            "/group?group=%3C",
            "/groups?sort=%3Cscript%3E",
        ),
    ):
        answer = endpoint.ask(address)
        check_harmless(answer.body)
        assert len(answer.body) <= LARGEST, address


def test_members_with_such_names_are_harmless(endpoint: Opened) -> None:
    name = '"><img src=x onerror=alert(1)>'
    for one in (name, "<!--", "\u202eright to left\u2069"):
        found = HtmlPage.of(endpoint.ask(f"/group?{in_address('group', one)}").body)
        members = found.tables().get("Members", [])
        if members:
            texts = [cell.text.strip() for cell in members[0]]
            assert texts[:4] == [name_text(f"{one}-1"), name_text(one), name_text(one), name_text(f"/{one}")]
    assert HtmlPage.of(endpoint.ask(f"/group?{in_address('group', name)}").body).tables()[
        "Topics and partitions"
    ]


def test_no_cell_of_csv_is_a_formula_and_none_is_lost(endpoint: Opened) -> None:
    csv.field_size_limit(1_000_000)
    for path in ("/groups", "/removed", "/topics", "/expiring", "/leftovers", "/alerts", "/events"):
        text = endpoint.ask(f"{path}.csv").body.decode()
        lines = list(csv.DictReader(io.StringIO(text, newline="")))
        texts = [
            value for line in lines for name, value in line.items() if name in ("group", "topic", "summary")
        ]
        assert not [value for value in texts if value.startswith(FORMULA)], path
        assert "\0" not in text
        if path in ("/groups", "/removed"):
            assert set(HOSTILE) <= {without_escapes(line["group"]) for line in lines}


def test_titles_hold_names_as_they_are_shown(endpoint: Opened) -> None:
    for name in ("</title><script>alert(1)</script>", "' onmouseover='alert(1)", "two\nlines\r\nof text"):
        found = HtmlPage.of(endpoint.ask(f"/group?{in_address('group', name)}").body)
        assert found.all("title")[0].text == f"Group {name_text(name)} · offsetlake"


@pytest.mark.more
def test_a_shell_reads_the_names_of_commands_as_they_are(endpoint: Opened) -> None:
    names = [name for name in HOSTILE if "\0" not in name and len(name) < 1_000]
    shown = []
    for name in names:
        found = HtmlPage.of(endpoint.ask(f"/group?{in_address('group', name)}").body)
        shown.append(found.all("pre")[0].text.partition(" --describe --group ")[2])
    script = "\n".join(f"printf '%s\\0' {argument}" for argument in shown)
    read = subprocess.run(["bash", "-c", script], capture_output=True, check=True, timeout=60).stdout
    assert read.decode().split("\0")[:-1] == names
