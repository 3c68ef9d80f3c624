"""Addresses of pages: their parameters, whatever these are; names that no address and no form can hold."""

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from html_read import HtmlPage
from http_endpoint import Opened, opened
from new_tables import new_tables
from table_batches import Batch, append, group, offset

from streaming.common.times import now_ms
from streaming.model.progress import PartitionProgress, Reached
from streaming.serve.assessment.cluster import ServedCluster
from streaming.serve.page.asked import HeldAnswers, PageCluster, fingerprint
from streaming.serve.page.pages import Pages
from streaming.serve.page.rate import CommitRate
from streaming.settings.reading import read_settings
from streaming.tables.feed import names_in
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables

BATCH: Batch = {("g", "t", 0): offset(source_partition=0), "g": group(source_partition=0)}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    tables = new_tables(tmp_path_factory.mktemp("page") / "tables")
    now = now_ms()
    partition = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    append(tables, BATCH, now=now, partitions={0: partition})
    with opened(tables) as endpoint:
        yield endpoint
        assert endpoint.said == []


def test_a_parameter_may_have_any_name(endpoint: Opened) -> None:
    for name in ("path", "self", "ending", "parameters", "", "page[]", "None"):
        for path in ("/groups", "/group", "/removed", "/group/history"):
            answer = endpoint.ask(f"{path}?{name}=x&group=g")
            assert answer.status == 200, (path, name)


def test_a_group_without_any_history_is_not_found(endpoint: Opened) -> None:
    answer = endpoint.ask("/group/history?group=nobody")
    assert (answer.status, b"group &#39;nobody&#39;: expected one with changes" in answer.body) == (404, True)
    assert endpoint.ask("/group/history?group=g").status == 200


def test_a_partition_is_a_number_of_32_bits(endpoint: Opened) -> None:
    for path in ("/offset", "/offset.json", "/offset/history"):
        for number, status in ((2**31, 400), (99_999_999_999, 400), (-(2**31) - 1, 400), ("x", 400)):
            answer = endpoint.ask(f"{path}?group=g&topic=t&partition={number}")
            assert (answer.status, b"partition: expected a whole number from" in answer.body) == (
                status,
                True,
            )
    for number in (2**31 - 1, -(2**31)):
        answer = endpoint.ask(f"/offset?group=g&topic=t&partition={number}")
        assert (answer.status, b"is not there: it has no committed offset" in answer.body) == (404, True)


def test_the_form_of_the_past_leads_to_the_same_group(tables: Tables) -> None:
    names = ["g", "", "two\nlines", "\r", "nul\0", "é" * 500, "é" * 501, "é" * 16_383]
    batch: Batch = {name: group(source_partition=0) for name in names}
    append(tables, batch, now=now_ms(), partitions={0: PartitionProgress(loaded=True)})
    with opened(tables) as endpoint:
        listed = HtmlPage.of(endpoint.ask("/groups").body).tables()["Groups"]
        links = [element for row in listed for element in row[0].inside if element.tag == "a"]
        assert len(links) == len(names)
        for link in links:
            page = HtmlPage.of(endpoint.ask(link.attributes["href"] or "").body)
            fields = {
                one.attributes["name"]: one.attributes["value"] for one in page.all("input", type="hidden")
            }
            sent = {key: as_browsers_send(value or "") for key, value in fields.items() if key}
            again = HtmlPage.of(endpoint.ask(f"/group?{urlencode(sent)}").body)
            assert again.one("h1").text == page.one("h1").text == f"Group {link.text}"


def test_a_link_to_an_offset_of_a_long_name_that_is_gone_leads_to_its_history(tables: Tables) -> None:
    name = "é" * 600
    batch: Batch = {(name, name, 0): offset(source_partition=0), name: group(source_partition=0)}
    append(tables, batch, now=now_ms() - 1, partitions={0: PartitionProgress(loaded=True)})
    append(tables, dict.fromkeys(batch), live=batch, now=now_ms())
    with opened(tables) as endpoint:
        listed = HtmlPage.of(endpoint.ask("/removed").body).tables()["Removed offsets"]
        [link] = {
            element.attributes["href"] or ""
            for row in listed
            for cell in row
            for element in cell.inside
            if element.tag == "a" and "/offset?" in (element.attributes["href"] or "")
        }
        assert "group_sha256=" in link
        assert endpoint.ask(link).status == 200
        assert endpoint.ask(link.replace("group_sha256=", "group_sha256=0")).status == 404


@pytest.mark.parametrize("takes_long", [False, True])
def test_a_long_name_that_is_gone_is_looked_up_once_for_a_page(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, takes_long: bool
) -> None:
    """And once for many pages, if that takes long."""
    name, looked_up = "é" * 600, list[str]()
    batch: Batch = {(name, name, 0): offset(source_partition=0), name: group(source_partition=0)}
    append(tables, batch, now=now_ms() - 1, partitions={0: PartitionProgress(loaded=True)})
    append(tables, dict.fromkeys(batch), live=batch, now=now_ms())

    def changed_names(at: Snapshot, of: str) -> list[str]:
        looked_up.append(of)
        return names_in(at._changes, of, up_to=at.progress.sequence)

    monkeypatch.setattr(Snapshot, "changed_names", changed_names)
    monkeypatch.setattr("streaming.serve.page.asked._LONG_S", 0.0 if takes_long else float("inf"))
    served = ServedCluster.of("", read_settings(options={"tables.root": tables.root}))
    served.tailer.poll()
    served.refresher.make()
    answers = HeldAnswers(repeated=1_000_000)
    pages = Pages([PageCluster(served=served, rate=CommitRate(), answers=answers)])
    asked = {"group_sha256": fingerprint(name), "topic": name}
    for view in range(3):
        assert pages.respond("/offset", asked, now_ms() + view * 15_000).status == 200
    assert looked_up == ["group"] * (1 if takes_long else 3)


def as_browsers_send(value: str) -> str:
    """Return what a browser makes of the value of a field (HTML standard: NUL in attributes, and newlines in
    the entry list of a form)."""
    lines = value.replace("\0", "\ufffd").replace("\r\n", "\n").replace("\r", "\n")
    return lines.replace("\n", "\r\n")
