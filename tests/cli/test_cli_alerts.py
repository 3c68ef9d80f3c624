"""`offsetlake alerts`: lists what is open, and evaluates once where no job is running."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from alert_tables import DAY, HOUR, RETENTION, Lake
from http_receiver import HttpReceiver, running_receiver

from streaming.cli.output import FORMATS
from streaming.common.times import now_ms
from streaming.model.progress import PartitionEnds
from streaming.settings.model import Settings

HOURS_AGO = 2 * HOUR


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Tables that a job wrote two hours ago, with a warning about `billing` and a closed one about `done`."""
    lake = Lake(tmp_path / "lake", start=now_ms() - HOURS_AGO)
    for group in ("billing", "done"):
        lake.commit(group, at=lake.now - RETENTION + DAY)
    lake.evaluate()
    lake.commit("done")
    lake.evaluate()
    return lake


@pytest.fixture
def hook() -> Iterator[HttpReceiver]:
    with running_receiver() as receiver:
        yield receiver


def test_open_alerts_are_listed_and_closed_ones_if_asked_for(offsetlake: Any, lake: Lake) -> None:
    arguments = ("alerts", "--table-root", lake.tables.root, "--output", "json")
    (row,) = json.loads(offsetlake(*arguments).out)
    assert (row["rule"], row["severity"], row["group"]) == ("offset_expiring", "warning", "billing")
    assert (row["closed_at"], row["undelivered"]) == (None, ["log"])
    assert row["summary"].startswith('group "billing": the broker will drop 1 committed offset')
    rows = json.loads(offsetlake(*arguments, "--all").out)
    assert [(row["group"], row["closed_at"] is None) for row in rows] == [("billing", True), ("done", False)]


@pytest.mark.parametrize("output", FORMATS)
def test_alerts_take_every_format(offsetlake: Any, lake: Lake, output: str) -> None:
    code, out, err = offsetlake("alerts", "--table-root", lake.tables.root, "--output", output)
    assert (code, "billing" in out) == (0, True)
    heard = (
        r"offsetlake: the job's last heartbeat was 2 h( \d min)? ago \(\S+Z\): nothing later is included\n"
    )
    assert re.fullmatch(heard, err)


def test_a_document_of_alerts_says_what_they_reflect(offsetlake: Any, lake: Lake) -> None:
    arguments = ("alerts", "--table-root", lake.tables.root, "--output")
    document = json.loads(offsetlake(*arguments, "document").out)
    assert document["rows"] == json.loads(offsetlake(*arguments, "json").out)
    assert document["as_of"]["is_last_known"]
    assert "the job's last heartbeat was 2 h" in document["as_of"]["warnings"][0]


def test_what_holds_alerts_is_said_beside_the_list(offsetlake: Any, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", first_ends={0: PartitionEnds(10, 10)}, start=now_ms())
    code, out, err = offsetlake("alerts", "--table-root", lake.tables.root, "--output", "json")
    assert (code, json.loads(out)) == (0, [])
    assert err == "offsetlake: COORDINATOR_LOAD_IN_PROGRESS: offsets partitions 0 are still being read\n"
    lake.ends[0] = 10
    lake.reach(10)
    lake.heartbeat()
    assert offsetlake("alerts", "--table-root", lake.tables.root, "--output", "json") == (0, "[]\n", "")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--bootstrap-server", "localhost:1"], "expected with --evaluate only"),
        (["--all", "--evaluate"], "expected one of them"),
        (["--evaluate", "--output", "csv"], "--evaluate: expected neither --output, --wide nor --utc"),
        (["--evaluate", "--wide"], "--evaluate: expected neither --output, --wide nor --utc"),
    ],
)
def test_options_that_would_do_nothing_are_refused(
    offsetlake: Any, lake: Lake, arguments: list[str], complaint: str
) -> None:
    code, out, err = offsetlake("alerts", "--table-root", lake.tables.root, *arguments)
    assert (code, out, complaint in err) == (2, "", True)


def test_evaluating_without_a_job_tells_that_there_is_none_and_delivers(offsetlake: Any, lake: Lake) -> None:
    evaluate = ("alerts", "--evaluate", "--table-root", lake.tables.root)
    before = {*Path(lake.tables.root).rglob("*")}
    code, out, err = offsetlake(*evaluate)
    assert {path.stat().st_mode & 0o077 for path in {*Path(lake.tables.root).rglob("*")} - before} == {0}
    told = [json.loads(line)["alert"] for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert sorted((alert["rule"], alert["event"]) for alert in told) == [
        ("job_behind", "opened"),
        ("offset_expiring", "closed"),
        ("offset_expiring", "opened"),
    ]
    assert offsetlake(*evaluate) == (0, "", "")


@pytest.mark.parametrize("option", ["--bootstrap-server", "--command-config"])
def test_either_option_about_brokers_makes_it_ask_them(
    offsetlake: Any, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    def broker(settings: Settings) -> SimpleNamespace:
        asked.append(settings.source.bootstrap_servers)
        return SimpleNamespace(log_ranges=lambda _: {})

    asked: list[str] = []
    monkeypatch.setattr("streaming.cli.commands.alerts.broker_of", broker)
    (file := tmp_path / "client.properties").write_text("")
    value = "localhost:9092" if option == "--bootstrap-server" else str(file)
    assert offsetlake("alerts", "--evaluate", "--table-root", lake.tables.root, option, value).code == 0
    assert asked == ["localhost:9092"]


def test_evaluating_beside_a_running_job_does_nothing(offsetlake: Any, lake: Lake) -> None:
    lake.now = now_ms()
    lake.heartbeat()
    code, out, err = offsetlake("alerts", "--evaluate", "--table-root", lake.tables.root)
    assert (code, out) == (0, "")
    assert "s ago and evaluates alerts itself: nothing done here" in err
    assert "the job has not evaluated alerts yet, 2 undelivered" in err
    assert "expected" not in err, "it has just started: the tables are new"


def test_a_running_job_that_has_never_evaluated_alerts_is_reported(offsetlake: Any, lake: Lake) -> None:
    lake.now = now_ms()
    lake.heartbeat()
    make_older(lake, 6 * 60_000)
    code, out, err = offsetlake("alerts", "--evaluate", "--table-root", lake.tables.root)
    assert (code, out) == (1, "")
    assert "found that it never did since the tables were created at" in err
    assert "if it did not just start, look at its output" in err


def make_older(lake: Lake, age_ms: int) -> None:
    """Let the tables have been made some time ago."""
    log = Path(lake.tables.root) / "changes" / "_delta_log" / f"{0:020}.json"
    made, text = lake.tables.created_at(), log.read_text()
    assert f'"createdTime":{made}' in text
    log.write_text(text.replace(f'"createdTime":{made}', f'"createdTime":{now_ms() - age_ms}'))


@pytest.mark.parametrize(("ahead", "code"), [(60_000, 0), (DAY, 1)])
def test_a_job_whose_clock_is_far_ahead_is_not_taken_to_run_for_ever(
    offsetlake: Any, lake: Lake, ahead: int, code: int
) -> None:
    lake.now = lake.evaluated_at = now_ms() + ahead
    lake.heartbeat()
    found, out, err = offsetlake("alerts", "--evaluate", "--table-root", lake.tables.root)
    assert (found, out) == (code, "")
    assert ("expected a heartbeat in the past" in err) == bool(code)


@pytest.mark.parametrize(("since", "code"), [(4 * 60_000, 0), (6 * 60_000, 1)])
def test_a_running_job_that_no_longer_evaluates_alerts_is_reported(
    offsetlake: Any, lake: Lake, since: int, code: int
) -> None:
    lake.now = now_ms()
    lake.evaluated_at = lake.now - since
    lake.heartbeat()
    found, out, err = offsetlake("alerts", "--evaluate", "--table-root", lake.tables.root)
    assert (found, out) == (code, "")
    assert re.search(r"; alerts evaluated [3-6] min( \d+ s)? ago, 2 undelivered\n", err)
    assert ("expected the job to evaluate alerts all along, found that it did not since" in err) == bool(code)
    status = offsetlake("status", "--table-root", lake.tables.root).out
    assert re.search(r"^alerts evaluated [3-6] min( \d+ s)? ago$", status, re.MULTILINE)


def test_evaluating_fails_if_something_cannot_be_delivered(
    offsetlake: Any, lake: Lake, hook: HttpReceiver, tmp_path: Path
) -> None:
    config = tmp_path / "alerts.toml"
    config.write_text(f'[alerts]\nlog = "off"\n[alerts.webhook]\nurl = "{hook.url}/s3cr3t"\n')
    evaluate = ("alerts", "--evaluate", "--table-root", lake.tables.root, "--config", str(config))
    hook.status = 503
    code, out, err = offsetlake(*evaluate)
    assert (code, out) == (1, "")
    assert err.count("HTTP status 503") == 1
    assert "s3cr3t" not in err
    status = offsetlake("status", "--table-root", lake.tables.root).out
    assert "open alerts: 1 critical, 1 warning\n" in status
    assert "alerts not delivered to webhook: 2, since" in status
    hook.status = 200
    assert offsetlake(*evaluate) == (0, "", "")
    assert {body["rule"] for body in hook.bodies} == {"offset_expiring", "job_behind"}


def test_tables_of_an_older_release_have_no_alerts_yet(offsetlake: Any, lake: Lake) -> None:
    shutil.rmtree(Path(lake.tables.root) / "alerts")
    assert "open alerts" not in offsetlake("status", "--table-root", lake.tables.root).out
    code, _, err = offsetlake("alerts", "--table-root", lake.tables.root)
    assert (code, "expected a Delta table at" in err) == (1, True)
    assert offsetlake("alerts", "--evaluate", "--table-root", lake.tables.root).code == 0
    assert "open alerts: 1 critical" in offsetlake("status", "--table-root", lake.tables.root).out


def test_evaluating_where_there_are_no_tables_is_an_error(offsetlake: Any, tmp_path: Path) -> None:
    code, _, err = offsetlake("alerts", "--evaluate", "--table-root", str(tmp_path / "none"))
    assert (code, "Check --table-root" in err) == (1, True)
