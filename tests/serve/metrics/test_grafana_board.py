"""The board of conf/grafana: it is what its generator gives, and on-call people can read every panel."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from grafana_board import FILE, text

from streaming.serve.metrics.catalogue import CATALOGUE

BOARD: dict[str, Any] = json.loads(FILE.read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
OURS = {metric.full_name: metric for metric in CATALOGUE}

VARIABLE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {"none", "short", "s", "cps", "recps", "reqps"}
"""Of Grafana: a number, a number made short, seconds, and counts, records and requests in a second."""

all_panels = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def metrics(*asked: str) -> Iterator[tuple[str, set[str]]]:
    """Yield the metrics that expressions ask for, with the labels that they are selected by."""
    for expression in asked:
        for name, selected in re.findall(r"(offsetlake_\w+)\{([^}]*)\}", expression):
            yield name, set(re.findall(r"(\w+)=", selected))


def test_the_committed_board_is_what_the_generator_gives() -> None:
    assert text() == FILE.read_text(), "make board"


def test_the_board_assumes_one_data_source_and_nothing_else() -> None:
    variables = BOARD["templating"]["list"]
    assert [one["name"] for one in variables if one["type"] == "datasource"] == ["datasource"]
    assert all(one["datasource"] == VARIABLE for one in variables if one["type"] != "datasource")
    asked = {one["query"] for one in variables if one["type"] == "query"}
    assert all(re.match(r"label_values\((\{__name__=~\")?offsetlake_\w+[{,(]", query) for query in asked)
    assert not [query for query in asked if "_total" in query]  # `offsetlake metrics` prints no counters
    known = {one["name"] for one in variables} | {"__rate_interval", "__all"}
    assert set(re.findall(r"\$\{?(\w+)", FILE.read_text())) == known


def test_rows_are_questions_in_the_order_in_which_they_are_asked() -> None:
    assert [panel["title"] for panel in BOARD["panels"] if panel["type"] == "row"] == [
        "Overview",
        "Expiry and loss",
        "Lag",
        "Progress",
        "One group: $group",
        "offsetlake itself",
    ]


def test_panels_fill_lines_and_do_not_overlap() -> None:
    places = Counter(
        (x, y)
        for grid in (panel["gridPos"] for panel in BOARD["panels"])
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    )
    assert set(places.values()) == {1}
    assert set(Counter(y for _, y in places).values()) == {24}
    for name in ("id", "title"):
        assert len({panel[name] for panel in BOARD["panels"]}) == len(BOARD["panels"])


@all_panels
def test_a_panel_says_what_it_shows_in_which_unit(panel: dict[str, Any]) -> None:
    assert re.fullmatch(r"[A-Z][^.]+", panel["title"])
    assert re.fullmatch(r"[A-Z`].{20,}\.", panel["description"])
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["datasource"] == VARIABLE
    assert [target["datasource"] for target in panel["targets"]] == [VARIABLE] * len(panel["targets"])
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


@all_panels
def test_a_panel_without_series_does_not_claim_that_there_is_nothing(panel: dict[str, Any]) -> None:
    if panel["type"] != "timeseries":  # serve may be down, the heartbeat old, a level left out
        assert panel["fieldConfig"]["defaults"]["noValue"] in ("not known", "none known", "not open")


@all_panels
def test_the_unit_is_that_of_the_metrics(panel: dict[str, Any]) -> None:
    unit = panel["fieldConfig"]["defaults"]["unit"]
    for expression in expressions(panel):
        is_count = expression.startswith("count")
        is_rate = bool(re.search(r"\b(rate|deriv)\(", expression))
        is_time = any(OURS[name].unit == "seconds" for name, _ in metrics(expression))
        assert is_rate == (unit in ("cps", "recps", "reqps"))
        assert (is_time and not is_count) == (unit == "s")


@all_panels
def test_moments_are_shown_as_ages_or_as_what_is_left(panel: dict[str, Any]) -> None:
    for expression in expressions(panel):
        if "_timestamp_seconds" in expression:
            assert re.search(r"^(topk\(\d+, )?time\(\) - |- time\(\)", expression)


@all_panels
def test_counters_are_asked_for_their_rise_in_grafanas_own_interval(panel: dict[str, Any]) -> None:
    for expression in expressions(panel):
        risen = set(re.findall(r"\b(?:rate|increase)\((offsetlake_\w+)\{", expression))
        assert risen == {
            name for name, _ in metrics(expression) if name in expression and OURS[name].kind == "counter"
        }
        assert set(re.findall(r"\[([^\]]*)\]", expression)) <= {"$__rate_interval"}


@all_panels
def test_metrics_and_labels_exist_and_are_of_the_target_that_is_shown(panel: dict[str, Any]) -> None:
    found = list(metrics(*expressions(panel)))
    assert found
    assert len(found) == sum(expression.count("offsetlake_") for expression in expressions(panel))
    for name, labels in found:
        assert labels >= {"instance", "cluster"}
        assert labels <= {"instance", "cluster", *OURS[name].labels}


@all_panels
def test_series_are_distinguished_by_labels_that_they_have(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        own = {label for name, _ in metrics(target["expr"]) for label in OURS[name].labels}
        by = re.findall(r"by \(([^)]*)\)", target["expr"])
        kept = set(", ".join(by).split(", ")) if by else own
        assert kept <= own
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept
        is_table = panel["type"] == "table"
        assert target["instant"] == (panel["type"] != "timeseries")
        assert (target.get("format") == "table") == is_table
        if panel["type"] == "timeseries":
            assert target["legendFormat"] != "__auto"


@all_panels
def test_no_panel_draws_all_groups(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        if panel["type"] == "timeseries" and "{{group}}" in target["legendFormat"]:
            assert target["expr"].startswith("topk(10, ")
