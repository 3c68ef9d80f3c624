"""A real Prometheus for tests, and promtool: from PATH, on a free port, asked over the HTTP API."""

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from http_program import running_program

from streaming.demo.local_broker import free_ports

PROGRAMS = ("prometheus", "promtool")
SCRAPE_S = 1
"""How often it scrapes and evaluates rules, so that rates need seconds."""


def missing_programs() -> str | None:
    """Return why no Prometheus can be started here, or None; it is never installed or downloaded."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    return f"not on PATH: {', '.join(missing)} (Debian: apt-get install prometheus)" if missing else None


@dataclass(frozen=True)
class Prometheus:
    """One that runs, by its URL."""

    url: str

    def query(self, expression: str, at: float | None = None) -> list[dict[str, Any]]:
        """Return the series (`metric`, `value`) that an expression gives now, or at a time (s)."""
        time = {} if at is None else {"time": str(at)}
        return list(self.get("query", query=expression, **time)["result"])

    def values(self, expression: str, label: str) -> dict[str, float]:
        """Return the value of each series of an expression, by one of its labels."""
        return {row["metric"].get(label, ""): float(row["value"][1]) for row in self.query(expression)}

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of the API."""
        asked = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(asked, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters or path}: {error.read().decode()}") from error


@contextmanager
def running_prometheus(
    directory: Path, targets: Mapping[str, str], rules: Sequence[Path]
) -> Iterator[Prometheus]:
    """Start Prometheus; it scrapes targets (`host:port` by the name of their job) and evaluates rules."""
    config = directory / "prometheus.yml"
    config.write_text(json.dumps(_config(targets, rules)))  # JSON is YAML
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with running_program(command, f"{url}/-/ready", log=directory / "prometheus.log", cwd=directory):
        yield Prometheus(url)


def promtool(*arguments: str | Path, text: str | None = None) -> str:
    """Run promtool, with text on its standard input; what it complains about fails the test."""
    ran = subprocess.run(
        ["promtool", *arguments], input=text, capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def _config(targets: Mapping[str, str], rules: Sequence[Path]) -> dict[str, Any]:
    every = f"{SCRAPE_S}s"
    return {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
        "rule_files": [str(file) for file in rules],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [target]}]} for job, target in targets.items()
        ],
    }
