"""The rules of conf/prometheus: promtool tries them, and each says what is wrong and what to do."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus import missing_programs, promtool

from streaming.common.conf_dir import conf_dir
from streaming.serve.metrics.catalogue import BY_NAME, CATALOGUE

RULES = conf_dir() / "prometheus" / "offsetlake.rules.yml"
CASES = RULES.with_suffix(".test.yml")

ANNOTATIONS = ("summary", "description")
WHAT_TO_DO = re.compile(
    "(?i)start|look|see|find|reset|restore|put it back|commit the same|upgrade|report|raise|more consumers"
)

PLACES = re.compile(r"^      - (?=alert|record)", re.MULTILINE)


@pytest.fixture
def _promtool() -> None:
    if missing := missing_programs():
        pytest.skip(missing)


def alerts() -> dict[str, str]:
    """The text of each alerting rule, by its name."""
    pieces = PLACES.split(RULES.read_text())[1:]
    return {found[1]: piece for piece in pieces if (found := re.match(r"alert: (\w+)", piece))}


def metrics_of(text: str) -> Iterator[tuple[str, set[str]]]:
    """Yield our metrics that a text of rules or queries names, and the labels that it selects them by."""
    for name, selected in re.findall(r"(?<![\w:])(offsetlake_\w+)(?:\{([^}]*)\})?", text):
        yield name, set(re.findall(r"(\w+)(?:=|!=|=~|!~)\"", selected)) - {"job", "instance", "cluster"}


@pytest.mark.usefixtures("_promtool")
def test_promtool_accepts_the_rules() -> None:
    assert "SUCCESS" in promtool("check", "rules", RULES)


@pytest.mark.usefixtures("_promtool")
def test_the_rules_say_what_their_cases_expect() -> None:
    assert "SUCCESS" in promtool("test", "rules", CASES)


@pytest.mark.parametrize("file", [RULES, CASES], ids=lambda file: file.name)
def test_every_metric_of_the_rules_is_one_of_ours_with_labels_of_its_own(file: Path) -> None:
    ours = {metric.full_name: set(metric.labels) for metric in CATALOGUE}
    found = list(metrics_of(file.read_text()))
    assert len({name for name, _ in found}) > 15
    assert [(name, labels) for name, labels in found if not labels <= ours.get(name, set())] == []


def test_no_text_has_a_name_as_it_is() -> None:
    """Names are chosen by whoever may commit, and texts go to chats; labels have them as they are."""
    texts = [
        text for piece in alerts().values() for text in re.findall(r"\{\{[^}]*\$labels\.group\b[^}]*", piece)
    ]
    assert len(texts) > 10
    assert [text for text in texts if not text.startswith('{{ reReplaceAll "[][<>&@]" "?" ')] == []


@pytest.mark.parametrize("alert", alerts())
def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(alert: str) -> None:
    cases = re.split(rf"alertname: {alert}\b", CASES.read_text())[1:]
    is_quiet = [bool(re.match(r", eval_time: \d+m, exp_alerts: \[\]", case)) for case in cases]
    assert set(is_quiet) >= ({True, False} if "for:" in alerts()[alert] else {False})


@pytest.mark.parametrize("alert", alerts())
def test_every_alert_says_how_bad_it_is_what_is_wrong_and_what_to_do(alert: str) -> None:
    text = alerts()[alert]
    assert alert.startswith("Offsetlake")
    assert re.search(r"labels: \{severity: (critical|warning|info)\}", text)
    summary, description = (
        re.search(rf"{name}: (?:>-\n)?((?:.+\n)+?)(?= *description|\Z|\n)", text) for name in ANNOTATIONS
    )
    assert summary is not None
    assert description is not None
    assert "{{" not in summary[1]  # it is what alerts are told apart by in a list
    assert re.search(WHAT_TO_DO, description[1]), description[1]


def test_the_statuses_of_the_rules_are_those_of_groups() -> None:
    meant = {"stopped": "STOPPED", "stalled": "STALLED", "rewound": "REWOUND"}
    for trouble, status in meant.items():
        [number] = re.findall(
            rf"trouble: {trouble}\}}\n.*?offsetlake_group_status == (\d)", RULES.read_text(), re.DOTALL
        )[:1]
        assert f"{number} {status}" in BY_NAME["group_status"].help
