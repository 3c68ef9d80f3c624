"""A real Prometheus scrapes `offsetlake serve`: every query of the board and the rules gives series, and what
counters count rises."""

import json
import re
import signal
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from http_program import running_program
from kafka_clients import wait_until
from listening import Client
from metrics_world import STUCK_MS, MetricsWorld, write_dead_world
from prometheus import SCRAPE_S, Prometheus, missing_programs, promtool, running_prometheus

from streaming.common.conf_dir import conf_dir
from streaming.common.times import DAY_MS, HOUR_MS, now_ms
from streaming.demo.child import Child
from streaming.demo.local_broker import free_ports
from streaming.lag.health_rules import STATUSES
from streaming.serve.metrics.catalogue import CATALOGUE

RULES = conf_dir() / "prometheus" / "offsetlake.rules.yml"
BOARD: dict[str, Any] = json.loads((conf_dir() / "grafana" / "offsetlake.json").read_text())

INTERVAL_S = 15
RATE_INTERVAL_S = max(INTERVAL_S + SCRAPE_S, 4 * SCRAPE_S)
"""What Grafana takes for `$__rate_interval`; `$__interval` is that of three hours on 720 points."""

QUICK = """
from streaming.cli.main import main
from streaming.serve.metrics.publisher import Publisher
from streaming.serve.assessment.refresher import Refresher

for kind in (Publisher, Refresher):
    kind.__init__.__kwdefaults__["every_s"] = 0.5
main()
"""
"""The command, whose metrics are renewed for every scrape of a second and not every 15 seconds."""

SETTINGS = """
[metrics]
granularity = "partition"
max_series = 1_500
[serve]
as_of_clients = true
"""
"""There is no room for the 2,000 series of `crowd`."""


@dataclass(frozen=True)
class Scraped:
    """A Prometheus, the target of tables that live (`instance`), and moments (s): of the last traffic, and
    after the serve of a dead job has ended; `text` is what the living one told in the end, and `log` its
    output."""

    prometheus: Prometheus
    instance: str
    at: float
    after_end: float
    text: str
    log: str

    def series(self, expression: str, at: float | None = None) -> list[dict[str, Any]]:
        return self.prometheus.query(expression, self.at if at is None else at)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    if missing := missing_programs():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("prometheus")
    live, dead, kafka = (f"127.0.0.1:{port}" for port in free_ports(3))
    (folder / "settings.toml").write_text(SETTINGS)
    world = MetricsWorld(folder / "live", now_ms() - 1_000)
    dead_tables = write_dead_world(folder / "dead", now_ms())
    options = ["--kafka", kafka, "--config", str(folder / "settings.toml")]
    with ExitStack() as running:
        targets = {"live": live, "dead": dead}
        prometheus = running.enter_context(running_prometheus(folder, targets, [RULES]))
        log = folder / "live.log"
        running.enter_context(serving(live, world.tables.root, log, *options))
        died = running.enter_context(serving(dead, dead_tables.root, folder / "dead.log"))
        wait_until(lambda: "answering Kafka's clients on" in log.read_text(), "the Kafka endpoint")
        client = running.enter_context(closing(Client(kafka)))
        of_past = running.enter_context(closing(Client(kafka)))

        def has(expression: str) -> bool:
            world.go_on()
            client.named("tests", "1").ask(47, 0, {"groupId": "billing", "topics": []})
            of_past.client_id = f"as-of={now_ms() - 1_000}"
            of_past.ask(16, 0, {})
            with closing(Client(kafka)) as malformed:
                malformed.socket.sendall(b"\0\0\0\1\0")
                assert malformed.frame() == b""
            time.sleep(SCRAPE_S / 4)
            return bool(prometheus.query(expression))

        wait_until(lambda: has("count(offsetlake_info) == 2"), "both to be scraped")
        (folder / "dead" / "changes").rename(folder / "gone")
        for expression in ("offsetlake_tables_readable == 0", *SIGNS):
            wait_until(lambda sign=expression: has(sign), expression)
        at, text = time.time(), text_of(live)
        died.end(signal.SIGTERM)
        wait_until(lambda: bool(prometheus.query('up{job="dead"} == 0')), "the end to be noticed")
        yield Scraped(prometheus, live, at, time.time(), text, log.read_text())


SIGNS = (
    f"rate(offsetlake_records_malformed_total[{RATE_INTERVAL_S}s]) > 0",
    f'rate(offsetlake_group_rewinds_total{{group="returned"}}[{RATE_INTERVAL_S}s]) > 0',
    f"rate(offsetlake_kafka_requests_total[{RATE_INTERVAL_S}s]) > 0",
    f'rate(offsetlake_kafka_client_requests_total{{client_software_name="tests"}}[{RATE_INTERVAL_S}s]) > 0',
    f'rate(offsetlake_kafka_errors_total{{error="GROUP_AUTHORIZATION_FAILED"}}[{RATE_INTERVAL_S}s]) > 0',
    f"rate(offsetlake_kafka_connections_closed_total[{RATE_INTERVAL_S}s]) > 0",
    f"rate(offsetlake_kafka_past_snapshots_built_total[{RATE_INTERVAL_S}s]) > 0",
    "group:offsetlake_trouble:alerts",
)
"""What comes last: that two answers that differ were scraped, and rules evaluated."""


def serving(address: str, root: str, log: Path, *options: str) -> AbstractContextManager[Child]:
    """The command `offsetlake serve` in the background, once it answers HTTP."""
    command = [sys.executable, "-c", QUICK, "serve", "--http", address, "--table-root", root, *options]
    return running_program(command, f"http://{address}/healthz", log=log, cwd=Path.cwd())


def text_of(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


# --- the board -------------------------------------------------------------------------------------------


def board_queries() -> dict[str, str]:
    """The queries of all panels, by the title and the place of each."""
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in BOARD["panels"]
        for target in panel.get("targets", ())
    }


def as_grafana_asks(expression: str, instance: str, group: str = "billing") -> str:
    """Put the values of variables in, as Grafana does."""
    values = {"instance": instance, "cluster": "", "group": group, "topic": ".*"}
    values |= {"__rate_interval": f"{RATE_INTERVAL_S}s"}
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], expression)


@pytest.mark.parametrize(("place", "expression"), board_queries().items(), ids=board_queries())
def test_a_query_of_the_board_gives_series(scraped: Scraped, place: str, expression: str) -> None:
    group = "leaving" if "expires" in place else "billing"
    found = scraped.series(as_grafana_asks(expression, scraped.instance, group))
    assert found
    if re.search(r"\b(rate|increase)\(", expression) and place not in AT_REST:
        assert max(float(row["value"][1]) for row in found) > 0


def by_partition(rows: list[dict[str, Any]], topic: str) -> dict[str, float]:
    of_topic = [row for row in rows if row["metric"]["topic"] == topic]
    return {row["metric"]["partition"]: float(row["value"][1]) for row in of_topic}


RECIPE = re.search(r"query: \|\n(.*?)```", (conf_dir().parent / "docs" / "clients.md").read_text(), re.DOTALL)


@pytest.mark.parametrize(("group", "lost"), [("billing", False), ("late", True)])
def test_the_recipe_for_keda_leaves_out_what_retention_deleted(
    scraped: Scraped, group: str, *, lost: bool
) -> None:
    assert RECIPE is not None
    of_group = f'{{group="{group}"}}'
    committed = scraped.series(f"offsetlake_group_topic_partition_committed_offset{of_group}")
    topic = committed[0]["metric"]["topic"]
    [found] = scraped.series(RECIPE[1].replace('"billing"', f'"{group}"').replace('"orders"', f'"{topic}"'))
    starts = by_partition(scraped.series("offsetlake_topic_partition_log_start_offset"), topic)
    lags = by_partition(scraped.series(f"offsetlake_group_topic_partition_lag{of_group}"), topic)
    offsets = by_partition(committed, topic)
    deleted = sum(max(starts[one] - offset, 0) for one, offset in offsets.items())
    assert float(found["value"][1]) == sum(lags.values()) - deleted
    assert (deleted > 0) is lost


AT_REST = {"Commits and rewinds B"}
"""`billing` never goes back."""


NUMBERS = {
    "Commits known up to": pytest.approx(STUCK_MS / 1_000, abs=60),  # of the partition that is held back
    "First offset expires in": pytest.approx(HOUR_MS / 2_000, abs=120),
    "Groups that lose offsets within a day": 3,
    "Offsets below the log start": 2,
    "Offsets beyond the log end": 1,
    "Offsets of recreated topics": 1,
    "Unreadable offsets": 1,
    "Offsets partitions not loaded": 1,
    "Tables": 1,
    "Groups": 14,
}
GROUPS = {
    "Next to expire": {"leaving", "gone", "left", "billing"},
    "Groups that have lost records": {"late", "marker"},
    "Groups with offsets beyond the log end": {"ahead"},
    "Groups with offsets of recreated topics": {"former"},
    "Groups with problems": {"dead", "stuck", "returned", "leaving", "gone"},
}


@pytest.mark.parametrize("title", NUMBERS)
def test_a_number_of_the_board_is_the_one_that_it_is_called(scraped: Scraped, title: str) -> None:
    expression = as_grafana_asks(board_queries()[f"{title} A"], scraped.instance)
    assert [float(row["value"][1]) for row in scraped.series(expression)] == [NUMBERS[title]]


@pytest.mark.parametrize("title", GROUPS)
def test_a_table_of_the_board_has_the_groups_that_it_is_about(scraped: Scraped, title: str) -> None:
    expression = as_grafana_asks(board_queries()[f"{title} A"], scraped.instance)
    assert {row["metric"]["group"] for row in scraped.series(expression)} == GROUPS[title]


def test_groups_are_counted_under_their_status(scraped: Scraped) -> None:
    [panel] = [panel for panel in BOARD["panels"] if panel["title"] == "Groups by status"]
    counts = {
        target["legendFormat"]: [
            float(row["value"][1])
            for row in scraped.series(as_grafana_asks(target["expr"], scraped.instance))
        ]
        for target in panel["targets"]
    }
    assert set(counts) == set(STATUSES)
    assert (counts["STOPPED"], counts["STALLED"], counts["REWOUND"]) == ([3], [1], [1])


@pytest.mark.parametrize("variable", BOARD["templating"]["list"][1:], ids=lambda variable: variable["name"])
def test_a_variable_of_the_board_has_the_values_that_there_are(
    scraped: Scraped, variable: dict[str, Any]
) -> None:
    found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"])
    assert found is not None
    selector = as_grafana_asks(found[1], scraped.instance)
    values = scraped.prometheus.get(f"label/{found[2]}/values", **{"match[]": selector})
    if found[2] == "cluster":  # the only one, which has no name
        assert values == []
    else:
        assert {"instance": scraped.instance, "group": "billing", "topic": "orders"}[found[2]] in values


# --- the rules -------------------------------------------------------------------------------------------


@cache
def rules(prometheus: Prometheus) -> dict[str, dict[str, Any]]:
    found = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    return {f"{rule['name']} {rule.get('labels', {}).get('trouble', '')}".strip(): rule for rule in found}


def test_every_rule_is_evaluated_and_its_expression_gives_series(scraped: Scraped) -> None:
    moments = {"OffsetlakeDown": scraped.after_end, "OffsetlakeAbsent": scraped.at - 2 * DAY_MS / 1_000}
    found = rules(scraped.prometheus)
    found["OffsetlakeAssessmentOld"] = {  # nothing has run for ten minutes
        **found["OffsetlakeAssessmentOld"],
        "query": found["OffsetlakeAssessmentOld"]["query"].replace("> 600", "> 0"),
    }
    assert len(found) == RULES.read_text().count("expr:")
    assert {name: rule["lastError"] for name, rule in found.items() if rule["health"] != "ok"} == {}
    empty = [
        name
        for name, rule in found.items()
        if not scraped.series(rule["query"], moments.get(name, scraped.at))
    ]
    assert empty == []


def test_each_trouble_is_that_of_the_group_that_has_it(scraped: Scraped) -> None:
    found = scraped.series("group:offsetlake_trouble:value")
    troubles: dict[str, set[str]] = {}
    for row in found:
        troubles.setdefault(row["metric"]["trouble"], set()).add(row["metric"]["group"])
    assert troubles == {
        "expiring": {"leaving", "gone"},
        "expiring_soon": {"leaving", "gone"},
        "unsubscribed_expiring": {"left"},
        "stopped": {"dead"},
        "stalled": {"stuck"},
        "rewound": {"returned"},
        "lagging": {"slow", "late", "marker"},
        "below_log_start": {"late"},
        "one_below_log_start": {"marker"},
        "beyond_log_end": {"ahead"},
        "recreated_topic": {"former"},
        "unreadable": {"garbled"},
    }


def test_prometheus_does_not_speak_of_the_groups_of_a_dead_job(scraped: Scraped) -> None:
    assert scraped.series('offsetlake_heartbeat_timestamp_seconds{job="dead"}')
    assert scraped.series('{__name__=~"offsetlake_group_.+", job="dead"}') == []


# --- the metrics -----------------------------------------------------------------------------------------


def test_prometheus_knows_every_metric_by_its_type_and_meaning(scraped: Scraped) -> None:
    told = scraped.prometheus.get("metadata")
    for metric in CATALOGUE:
        family = metric.full_name.removesuffix("_total")  # as OpenMetrics names it, which is asked for
        [known] = told[family]
        assert (known["type"], known["help"]) == (metric.kind, metric.help)


def test_the_group_that_there_is_no_room_for_is_withheld_and_named(scraped: Scraped) -> None:
    assert scraped.series('{__name__=~"offsetlake_.+", group="crowd"}') == []
    [withheld] = scraped.series("offsetlake_groups_withheld > 0")
    assert float(withheld["value"][1]) == 1
    assert "all of crowd (" in scraped.log


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_the_example_of_a_metric_can_be_asked(scraped: Scraped, metric: Any) -> None:
    assert metric.full_name in metric.example
    scraped.series(metric.example)


def test_promtool_finds_nothing_wrong_with_the_metrics(scraped: Scraped) -> None:
    assert promtool("check", "metrics", text=scraped.text) == ""
