"""docs/metrics.md: it lists all rules, and programs take the configurations that it shows."""

import re
import shutil
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest
from http_program import running_program
from metrics_page import PAGE
from prometheus import missing_programs, promtool

from streaming.common.conf_dir import conf_dir
from streaming.demo.local_broker import free_ports

RULES = conf_dir() / "prometheus" / "offsetlake.rules.yml"
TEXT = PAGE.read_text()
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def examples_with(line: str) -> list[str]:
    return [example for example in EXAMPLES if line in example]


def test_every_alert_is_listed_with_its_severity() -> None:
    rules = re.findall(r"- alert: (\w+)\n.*?severity: (\w+)", RULES.read_text(), re.DOTALL)
    rows = re.findall(r"^\| (Offsetlake[\w, ]+) \| ([\w, ]+) \|", TEXT, re.MULTILINE)
    listed = set()
    for names, severities in rows:
        known = severities.split(", ")
        listed |= {
            (name, known[place] if len(known) > 1 else known[0])
            for place, name in enumerate(names.split(", "))
        }
    assert listed == set(rules)


def test_prometheus_takes_the_configurations(tmp_path: Path) -> None:
    if missing := missing_programs():
        pytest.skip(missing)
    shutil.copy(RULES, tmp_path)
    whole = examples_with("\nscrape_configs:") + [
        one for one in EXAMPLES if one.startswith("scrape_configs:")
    ]
    [collector] = examples_with("receivers:\n  prometheus:\n")
    found = re.search(r"    config:\n((?:      .*\n)+)", collector)
    assert found is not None
    assert len(whole) == 2
    for config in (*whole, dedent(found[1])):
        with_files = config.replace("/etc/prometheus/offsetlake.token", str(tmp_path / "prometheus.yml"))
        (tmp_path / "prometheus.yml").write_text(with_files)
        assert "SUCCESS" in promtool("check", "config", tmp_path / "prometheus.yml")


def test_alertmanager_takes_the_configuration(tmp_path: Path) -> None:
    if shutil.which("amtool") is None:
        pytest.skip("not on PATH: amtool (Debian: apt-get install prometheus-alertmanager)")
    [config] = examples_with("inhibit_rules:")
    (tmp_path / "alertmanager.yml").write_text(config)
    ran = subprocess.run(
        ["amtool", "check-config", tmp_path / "alertmanager.yml"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_alertmanager_starts_as_the_page_says_and_keeps_its_data_in_the_folder(tmp_path: Path) -> None:
    if shutil.which("prometheus-alertmanager") is None:
        pytest.skip("not on PATH: prometheus-alertmanager (Debian: apt-get install prometheus-alertmanager)")
    [config] = examples_with("inhibit_rules:")
    (tmp_path / "alertmanager.yml").write_text(config)
    found = re.search(r"^\$ (prometheus-alertmanager .+)$", TEXT, re.MULTILINE)
    assert found is not None
    [port] = free_ports(1)
    command = found[1].replace("127.0.0.1:9093", f"127.0.0.1:{port}").split()
    ready = f"http://127.0.0.1:{port}/-/ready"
    with running_program(command, ready, log=tmp_path / "log", cwd=tmp_path):
        pass
    assert [file.name for file in tmp_path.iterdir() if file.is_dir()] == ["alertmanager-data"]


def test_inhibitions_are_of_alerts_that_there_are() -> None:
    [config] = examples_with("inhibit_rules:")
    alerts = set(re.findall(r"- alert: (\w+)", RULES.read_text()))
    named = set(re.findall(r"Offsetlake(?:\w+)", re.sub(r"Offsetlake\((.*?)\)", _spelt_out, config)))
    assert len(named) > 7
    assert named <= alerts


def _spelt_out(found: re.Match[str]) -> str:
    return " ".join(f"Offsetlake{name}" for name in found[1].split("|"))
