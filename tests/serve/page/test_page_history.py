"""Histories of busy groups: commits by hour, and how far back a page reads."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pyarrow as pa
import pytest
from html_read import HtmlPage
from http_endpoint import Opened, opened
from log_end_rows import Sample, rows_of
from new_tables import new_tables
from table_batches import Batch, append, offset

from streaming.common.times import HOUR_MS, MINUTE_MS, now_ms
from streaming.common.timestamps import to_milliseconds
from streaming.serve.page.views import group_history
from streaming.serve.page.views.group_history import readable_since
from streaming.tables.feed import COMMITS_BY_HOUR
from streaming.tables.tables import Tables

NOW = now_ms()
T0 = NOW // HOUR_MS * HOUR_MS - 2 * HOUR_MS


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    made = new_tables(tmp_path_factory.mktemp("busy") / "tables")
    for number in range(0, 180, 20):
        if (at := T0 + number * MINUTE_MS) < NOW:
            batch: Batch = {("g", "t", partition): offset(committed_offset=number) for partition in range(3)}
            append(made, batch, now=at)
    append(made, {("other", "t", 0): offset()}, now=NOW)
    return made


@pytest.fixture(scope="module")
def endpoint(tables: Tables) -> Iterator[Opened]:
    with opened(tables, every_s=1) as endpoint:
        yield endpoint


def by_hour(counts: dict[int, int]) -> pa.Table:
    hours = pa.array([hour * 1_000 for hour in counts], pa.timestamp("us", "UTC"))
    return pa.table([hours, [1] * len(counts), list(counts.values())], schema=COMMITS_BY_HOUR)


def test_changes_and_commits_are_counted_by_hour(tables: Tables) -> None:
    found = tables.ask(lambda at: at.commits_by_hour(["g"], since=T0 + 20 * MINUTE_MS))
    assert to_milliseconds(found["hour"]).to_pylist()[:2] == [T0, T0 + HOUR_MS]
    assert found["changes"].to_pylist()[:2] == [6, 9]
    assert tables.ask(lambda at: at.commits_by_hour(["none"], since=0)).num_rows == 0


@pytest.mark.parametrize(
    ("counts", "since"),
    [
        ({T0: 400_000, T0 + HOUR_MS: 100_000}, T0 - HOUR_MS),  # all of it
        ({T0: 800_000, T0 + HOUR_MS: 100_000}, T0 + HOUR_MS // 2),  # half of the first hour
        ({T0: 9, T0 + HOUR_MS: 2_000_000}, T0 + HOUR_MS + HOUR_MS * 3 // 4 // 2),  # a quarter of half an hour
        ({}, T0 - HOUR_MS),
    ],
)
def test_a_page_reads_as_far_back_as_there_are_few_enough_changes(counts: dict[int, int], since: int) -> None:
    assert readable_since(by_hour(counts), T0 - HOUR_MS, T0 + HOUR_MS * 3 // 2) == since


@pytest.mark.parametrize(("path", "more"), [("/group/history", {}), ("/offset/history", {"topic": "t"})])
def test_a_history_with_too_many_changes_says_since_when_it_is_shown(
    endpoint: Opened, monkeypatch: pytest.MonkeyPatch, path: str, more: dict[str, str]
) -> None:
    span = {"/group/history": "6 hours", "/offset/history": "day"}[path]
    address = f"{path}?{urlencode({'group': 'g', 'span': span, **more})}"
    whole = HtmlPage.of(endpoint.ask(address).body).said()
    assert "more changes than a page reads" not in whole
    monkeypatch.setattr(group_history, "_MOST_CHANGES", 6)
    cut = HtmlPage.of(endpoint.ask(f"{address}&nth=1").body).said()
    assert "before, the group has more changes than a page reads" in cut


# --- the chart of an offset --------------------------------------------------------------------------------

PER_SECOND = 10
OUTAGE = range(20, 30)
"""The minutes without samples."""


def written_until(seconds: float) -> int:
    return int(seconds) * PER_SECOND


@pytest.fixture
def steady(tmp_path: Path) -> Iterator[tuple[Opened, int]]:
    """A group 30 seconds behind a producer of a steady rate, and samples each minute but for an outage; with
    the moment (ms) at which that began."""
    began = now_ms() - 50 * MINUTE_MS
    made = new_tables(tmp_path / "tables")
    sampled = [60 * minute for minute in range(48) if minute not in OUTAGE]
    made.append_log_ends(rows_of([Sample(began + at * 1_000, "t", 0, written_until(at)) for at in sampled]))
    for at in range(60, sampled[-1], 100):
        behind = {("g", "t", 0): offset(committed_offset=written_until(at - 30))}
        append(made, behind, now=began + at * 1_000)
    with opened(made, every_s=1) as endpoint:
        yield endpoint, began


def test_the_log_end_in_the_chart_of_an_offset_grows_as_the_log_does(steady: tuple[Opened, int]) -> None:
    endpoint, began = steady
    address = f"/offset/history?{urlencode({'group': 'g', 'topic': 't', 'span': 'hour'})}"
    page = HtmlPage.of(endpoint.ask(address).body)
    [data] = [found for one in page.elements if (found := one.attributes.get("data-chart"))]
    chart = json.loads(data)
    ends = next(line["values"] for line in chart["lines"] if line["kind"] == "end")
    seen = {at - began / 1_000: end for at, end in zip(chart["times"], ends, strict=True)}
    last = 47 * 60
    assert len(seen) > 50
    for at, end in seen.items():
        if 19 * 60 <= at < 30 * 60:
            assert end is None, "no sample near enough"
        else:
            assert end == pytest.approx(written_until(min(at, last)), abs=PER_SECOND)


def test_the_charts_of_a_group_have_sums_over_its_partitions(tmp_path: Path) -> None:
    """Positions are summed only while there are all partitions: else the sum would jump."""
    began = now_ms() // MINUTE_MS * MINUTE_MS - 50 * MINUTE_MS
    made, live = new_tables(tmp_path / "tables"), Batch()
    for minute in range(0, 50, 2):
        at, end = began + minute * MINUTE_MS, 100 * minute + 7
        own = offset(committed_offset=100 * minute, commit_timestamp=at)
        batch: Batch = {("g", "t", number): own for number in range(1 if minute < 20 else 2)}
        append(made, batch, live=live, now=at)
        live |= batch
        made.append_log_ends(rows_of([Sample(at + MINUTE_MS, "t", number, end) for number in range(2)]))
    with opened(made, every_s=1) as endpoint:
        page = HtmlPage.of(endpoint.ask("/group/history?group=g&span=hour").body)
    charts = [json.loads(found) for one in page.elements if (found := one.attributes.get("data-chart"))]
    lags, ends, offsets = (line["values"] for chart in charts for line in chart["lines"])
    seen = [0, 0]
    for number, at in enumerate(charts[0]["times"]):
        minute = (at * 1_000 - began) / MINUTE_MS
        committed, sampled = (100 * (int(minute - late) // 2 * 2) for late in (0, 1))
        if 2 <= minute < 20:
            assert (lags[number], ends[number], offsets[number]) == (7, None, None)
            seen[0] += 1
        elif 21 <= minute < 48:
            assert (lags[number], ends[number], offsets[number]) == (14, 2 * (sampled + 7), 2 * committed)
            seen[1] += 1
    assert min(seen) > 10
