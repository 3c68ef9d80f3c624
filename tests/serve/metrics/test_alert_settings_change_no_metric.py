"""When to warn is the matter of alerts: their settings change no metric but those about alerts."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from alert_tables import HOUR, RETENTION, Lake
from metrics_read import Maker, Read, by

from streaming.common.times import MINUTE_MS
from streaming.model.progress import PartitionEnds
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings

SWITCHES = ("group_stopped", "group_stalled", "offset_beyond_log_end", "offset_of_recreated_topic", "log")
DURATIONS = (
    "evaluate_every",
    "warning",
    "critical",
    "behind_warning",
    "behind_critical",
    "log_start_every",
    "close_after",
    "timeout",
)
STRICT: dict[str, Any] = {
    **dict.fromkeys(DURATIONS, "1m"),
    **dict.fromkeys(SWITCHES, "on"),
    "evaluate_every": "1s",
    "critical": "30s",
    "lag_seconds": "1m",
    "groups": [{"pattern": "*", "treat": "summarize", "lag_seconds": "30s"}],
}
LAX: dict[str, Any] = {
    **dict.fromkeys(DURATIONS, "30d"),
    "evaluate_every": "1h",
    **dict.fromkeys(SWITCHES, "off"),
    "critical": "29d",
    "group_rewound": "off",
    "groups": [{"pattern": "*", "treat": "exclude"}],
    "webhook.url": "http://127.0.0.1:1/",
    "webhook.headers": {"X-A": "b"},
    "alertmanager.url": "http://127.0.0.1:1/",
    "alertmanager.repeat_every": "1h",
    "alertmanager.headers": {"X-A": "b"},
    "alertmanager.labels": {"a": "b"},
}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Groups that are behind and expire soon; the offsets partition of one was read up to 2 minutes ago."""
    lake = Lake(tmp_path, partitions=2)
    for partition, group in enumerate(("read", "not read")):
        lake.commit(group, at=lake.now - RETENTION + HOUR, source_partition=partition)
        lake.set_group(group, source_partition=partition)
    lake.sample({("orders", 0): 200}, at=range(lake.now - 20 * MINUTE_MS, lake.now + 1, 2 * MINUTE_MS))
    lake.heartbeat()
    lake.now += 2 * MINUTE_MS
    lake.heartbeat({1: PartitionEnds(99, 99)})
    return lake


def told(lake: Lake, options: dict[str, Any]) -> Read:
    """The metrics under settings of alerts, by which the rules were evaluated."""
    settings = settings_of(options)
    lake.evaluate(settings.alerts)
    return Maker(lake.tables, lake.now, settings, granularity="partition").read()


def settings_of(options: dict[str, Any]) -> Settings:
    return read_settings(options={f"alerts.{name}": value for name, value in options.items()})


def test_settings_of_alerts_change_no_metric_but_those_about_alerts(lake: Lake) -> None:
    default, *others = (told(lake, options) for options in ({}, STRICT, LAX))
    assert by(default["offsetlake_group_lag"], "group") == {"read": 100, "not read": 100}
    for other in others:
        assert other.keys() == default.keys()
        changed = {name for name, series in default.items() if other[name] != series}
        about_alerts = {name for name in changed if name.startswith("offsetlake_alerts_")}
        assert "offsetlake_alerts_open" in about_alerts
        assert changed - about_alerts <= {"offsetlake_build_duration_seconds"}


def test_every_setting_of_alerts_was_another_one() -> None:
    default, *others = (settings_of(options).alerts for options in ({}, STRICT, LAX))
    same = [
        field.name
        for field in fields(default)
        if all(getattr(other, field.name) == getattr(default, field.name) for other in others)
    ]
    assert same == []
