"""The chart: helm and the schemas of Kubernetes accept it, and what its pods run, runs.

Only `make test-deploy` runs this; test_api_server.py installs the chart on an API server.
"""

import os
import re
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from chart import (
    CHART,
    DEPLOY,
    Release,
    Tree,
    component_of,
    container_of,
    environment_of,
    get_programs,
    helm,
    mounts_of,
    pod_of,
    rendered,
    schema_errors,
    selects,
    values_files,
    yaml_documents,
)
from client_programs import MissingError
from http_program import running_program
from installed import PYPROJECT
from served_clusters import filled

from streaming.demo.local_broker import free_ports
from streaming.model.errors import MisuseError
from streaming.settings.contradictions import refuse_contradictions_of_job
from streaming.settings.kinds import GIB
from streaming.settings.memory import OF_OTHERS_BYTES, fitted
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings
from streaming.settings.secrets import looks_secret

if os.environ.get("DEPLOY") != "1":
    pytest.skip("builds helm for minutes: make test-deploy", allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CASES: Final = values_files()
HOME: Final = "/var/lib/offsetlake"
TOKEN: Final = "a-token-of-24-characters"
DOCKERFILE: Final = (DEPLOY / "Dockerfile").read_text("utf-8")
CLI: Final = [sys.executable, "-P", "-m", "streaming.cli"]


@pytest.fixture(autouse=True, scope="module")
def _programs() -> None:
    """Skip, with the reason, where a program cannot be had."""
    try:
        get_programs()
    except MissingError as error:
        pytest.skip(str(error))


@pytest.fixture(params=sorted(CASES))
def values(request: pytest.FixtureRequest) -> str:
    return CASES[request.param]


@pytest.fixture
def release(values: str) -> Release:
    return Release.of(values)


# --- form ------------------------------------------------------------------------------------------------


def test_there_is_a_dozen_of_values_files_and_the_page_has_examples() -> None:
    assert len([name for name in CASES if not name.startswith("page-")]) >= 12
    assert len([name for name in CASES if name.startswith("page-")]) >= 3


def test_helm_finds_nothing_to_correct(values: str) -> None:
    ran = helm("lint", "--strict", str(CHART), "--values", "-", values=values)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "WARNING" not in ran.stdout


def test_the_schemas_of_kubernetes_accept_every_object(values: str, tmp_path: Path) -> None:
    assert schema_errors(rendered(values), tmp_path) == ""


def test_the_schemas_of_kubernetes_refuse_a_misspelt_field(tmp_path: Path) -> None:
    wrong = rendered(CASES["volume"]).replace("enableServiceLinks", "enableServiceLink")
    assert "enableServiceLink" in schema_errors(wrong, tmp_path)


def test_names_of_objects_are_unique(release: Release) -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in release.objects]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", ["offsetlake", "a", "my-offsetlake.prod", "x" * 53])
def test_names_fit_however_the_release_is_called(name: str, tmp_path: Path) -> None:
    manifest = rendered(CASES["monitored"], release=name)
    assert schema_errors(manifest, tmp_path) == ""
    for one in yaml_documents(manifest):
        assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", one["metadata"]["name"])


def test_the_chart_is_of_this_version() -> None:
    [about] = yaml_documents((CHART / "Chart.yaml").read_text("utf-8"))
    assert about["appVersion"] == PYPROJECT["project"]["version"]


# --- refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "given", "message"),
    [
        ("volume", "serve.token.secret=", "serve.token.secret: expected the name of a Secret"),
        ("volume", "job.image=", "job.image: expected the name of an image"),
        ("volume", "serve.image=", "serve.image: expected the name of an image"),
        ("volume", "job.bootstrapServers=", "job.bootstrapServers: expected host:port"),
        ("volume", "job.image=offsetlake-job", "/job/image"),
        ("volume", "job.replicas=2", "additional properties 'replicas' not allowed"),
        ("volume", "tables.root=/data/lake", "/tables/root"),
        ("volume", "settings=[tables", "expected TOML"),
        ("scram", r"job.settings=[expiry]\nretention = '1d'", "expected TOML"),
        ("volume", "settings=tables.root = 's3://x'", "Set the value tables.root of the chart"),
        ("volume", "settings=job.checkpoint = '/x'", "Set the value job.checkpoint of the chart"),
        ("volume", "settings=source.bootstrap_servers = 'x:1'", "Set the value job.bootstrapServers"),
        ("volume", "settings=serve.http.token_file = '/x'", "Set the value serve.token.secret"),
        ("volume", "settings=serve.http.behind_proxy = 'on'", "Set the value serve.behindProxy"),
        ("volume", "settings=serve.http.listen = '0.0.0.0:80'", "The chart sets it"),
        ("volume", "settings=serve.http.certificate_file = '/x'", "Let an Ingress or a mesh add it"),
        (
            "volume",
            "job.env[0].name=KAFKA_PASSWORD,job.env[0].value=secret",
            "job.env: expected valueFrom for KAFKA_PASSWORD",
        ),
        ("three-clusters", "tables.root=s3://x", "serve.settings: expected [[serve.clusters]] only"),
        ("three-clusters", "serve.settings=", "tables.root: expected a URL, or [[serve.clusters]]"),
        ("three-clusters", "serve.enabled=false", "expected at least one of them to be true"),
    ],
)
def test_values_that_cannot_work_are_refused(case: str, given: str, message: str) -> None:
    ran = helm("template", "x", str(CHART), "--values", "-", "--set", given, values=CASES[case])
    assert ran.returncode != 0
    assert message in ran.stderr


# --- settings --------------------------------------------------------------------------------------------


def _settings(release: Release, workload: Tree, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Read the settings of a pod as the program in it does."""
    file = folder / "offsetlake.toml"
    file.write_text(release.settings_of(workload), encoding="utf-8")
    environment = environment_of(workload)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return read_settings(file, environment=environment)


def test_offsetlake_accepts_the_settings_of_every_pod(
    release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for workload in release.workloads():
        settings = _settings(release, workload, tmp_path, monkeypatch)
        writable = {mount["mountPath"] for mount, _ in mounts_of(workload) if not mount.get("readOnly")}
        if component_of(workload) == "job":
            refuse_contradictions_of_job(settings)
            for place in (settings.tables.root, settings.job.checkpoint):
                assert "://" in place or Path(place).is_relative_to(HOME)
            assert HOME in writable
            assert settings.spark.is_local
        else:
            assert settings.serve.http.listen == "0.0.0.0:8720"
            assert settings.serve.http.token_file or settings.serve.http.behind_proxy == "on"
            assert writable == {"/tmp"}
        assert container_of(workload)["args"][1:3] == ["--config", "/etc/offsetlake/offsetlake.toml"]


@pytest.mark.parametrize("case", ["volume", "tables-on-s3", "no-volume", "azure"])
def test_job_and_serve_have_the_same_tables(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = Release.of(CASES[case])
    job, serve = (_settings(release, one, tmp_path, monkeypatch) for one in release.workloads())
    assert job.tables.root == serve.tables.root


def test_what_kubernetes_would_set_for_services_is_refused_and_so_is_off(release: Release) -> None:
    with pytest.raises(MisuseError, match="OFFSETLAKE_SERVE_SERVICE_HOST"):
        read_settings(environment={"OFFSETLAKE_SERVE_SERVICE_HOST": "10.0.0.1"})
    assert [pod_of(one)["enableServiceLinks"] for one in release.workloads()] == [False] * len(
        release.workloads()
    )


def test_a_pod_restarts_when_its_settings_change() -> None:
    def sums(*sets: str) -> dict[str, str]:
        return {
            component_of(one): one["spec"]["template"]["metadata"]["annotations"]["checksum/settings"]
            for one in Release.of(CASES["volume"], *sets).workloads()
        }

    before = sums()
    both, of_job = sums("settings=tables.fold_every = '1m'"), sums("job.settings=job.trigger = '1s'")
    assert both["job"] != before["job"]
    assert both["serve"] != before["serve"]
    assert of_job["job"] != before["job"]
    assert of_job["serve"] == before["serve"]


# --- secrets ---------------------------------------------------------------------------------------------


def _texts(tree: object, name: str = "") -> Iterator[tuple[str, str]]:
    match tree:
        case dict():
            for key, value in tree.items():
                yield from _texts(value, f"{name}.{key}")
        case list():
            for value in tree:
                yield from _texts(value, name)
        case str():
            yield name, tree


def test_secrets_are_references(release: Release) -> None:
    assert release.of_kind("Secret") == []
    for one in release.of_kind("ConfigMap"):
        given = _texts(tomllib.loads(one["data"]["offsetlake.toml"]))
        without_references = [(name, value) for name, value in given if "${" not in value]
        assert [name for name, value in without_references if _looks_secret(name, value)] == []
    for workload in release.workloads():
        values = {one["name"]: one["value"] for one in container_of(workload)["env"] if "value" in one}
        assert [name for name, value in values.items() if _looks_secret(name, value)] == []


def _looks_secret(name: str, value: str) -> bool:
    """Return whether a setting looks like a secret: no file, no login module without options."""
    return looks_secret(name, value) and not name.endswith("_FILE") and not value.endswith("Module required;")


def test_files_of_secrets_are_for_the_user_of_the_pod_alone(release: Release) -> None:
    for workload in release.workloads():
        for mount, volume in mounts_of(workload):
            if "secret" in volume:
                assert volume["secret"]["defaultMode"] == 0o440
                assert mount["readOnly"]


def test_secrets_of_the_job_are_not_in_serve() -> None:
    release = Release.of(CASES["scram"])
    serve = release.workload("serve")
    assert serve is not None
    assert "KAFKA_PASSWORD" not in str(serve) + release.settings_of(serve)
    assert "retention" in release.settings_of(serve)


# --- pods ------------------------------------------------------------------------------------------------


def test_pods_are_confined(release: Release) -> None:
    [user] = set(re.findall(r"useradd --uid (\d+) --gid \1", DOCKERFILE.replace("\\\n", "")))
    for workload in release.workloads():
        pod, container = pod_of(workload), container_of(workload)
        security = pod["securityContext"]
        assert {security[name] for name in ("runAsUser", "runAsGroup", "fsGroup")} == {int(user)}
        assert security["runAsNonRoot"]
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert security["fsGroupChangePolicy"] == "OnRootMismatch"
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()


def test_temporary_files_have_a_volume(release: Release) -> None:
    for workload in release.workloads():
        volumes = {mount["mountPath"]: volume for mount, volume in mounts_of(workload)}
        assert "emptyDir" in volumes[environment_of(workload).get("TMPDIR", "/tmp")]


def test_the_jars_are_those_of_the_image() -> None:
    job = Release.of(CASES["volume"]).workload("job")
    assert job is not None
    assert f"ENV OFFSETLAKE_JARS={environment_of(job)['OFFSETLAKE_JARS']}\n" in DOCKERFILE


def test_there_is_one_job_and_it_has_the_time_to_end_its_batch(release: Release) -> None:
    if (job := release.workload("job")) is not None:
        assert (job["kind"], job["spec"]["replicas"]) == ("StatefulSet", 1)
        assert job["spec"]["podManagementPolicy"] == "Parallel"
        assert pod_of(job)["terminationGracePeriodSeconds"] >= _stops_within("job")
    if (serve := release.workload("serve")) is not None:
        assert (serve["kind"], serve["spec"]["replicas"]) == ("Deployment", 1)
        assert serve["spec"]["strategy"] == {"type": "Recreate"}
        assert pod_of(serve)["terminationGracePeriodSeconds"] >= _stops_within("serve")


def _stops_within(component: str) -> int:
    """Return the seconds that the unit of systemd gives the same command to end."""
    unit = (DEPLOY / f"offsetlake-{component}.service").read_text("utf-8")
    [limit] = re.findall(r"^TimeoutStopSec=(\S+)$", unit, re.MULTILINE)
    return {"30": 30, "2min": 120}[limit]


def test_resources_are_limited(release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit of cores Spark would use all of the node."""
    for workload in release.workloads():
        limits, requests = (container_of(workload)["resources"][one] for one in ("limits", "requests"))
        assert int(limits["cpu"]) >= 1
        assert requests["memory"].endswith("Gi")
        if component_of(workload) == "job":
            settings = _settings(release, workload, tmp_path, monkeypatch)
            limit = int(limits["memory"].removesuffix("Gi")) * GIB
            assert (fitted(settings, limit).job.memory_bytes or limit) <= limit - OF_OTHERS_BYTES


# --- volumes ---------------------------------------------------------------------------------------------


def _claims(workload: Tree) -> list[tuple[str, bool]]:
    return [
        (volume["persistentVolumeClaim"]["claimName"], mount.get("readOnly", False))
        for mount, volume in mounts_of(workload)
        if "persistentVolumeClaim" in volume
    ]


def test_serve_shares_the_volume_of_its_tables_on_the_node_of_the_job() -> None:
    release = Release.of(CASES["volume"])
    job, serve = release.workload("job"), release.workload("serve")
    assert job is not None
    assert serve is not None
    [claim] = release.of_kind("PersistentVolumeClaim")
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert _claims(job) == [(claim["metadata"]["name"], False)]
    assert _claims(serve) == [(claim["metadata"]["name"], True)]
    pods = [one["spec"]["template"]["metadata"]["labels"] for one in (job, serve)]
    for workload in (job, serve):
        rules = pod_of(workload)["affinity"]["podAffinity"]
        [rule] = rules["requiredDuringSchedulingIgnoredDuringExecution"]
        assert rule["topologyKey"] == "kubernetes.io/hostname"
        assert all(selects(rule["labelSelector"]["matchLabels"], labels) for labels in pods)


@pytest.mark.parametrize(
    ("case", "claims", "of_job", "of_serve"),
    [
        ("tables-on-s3", 1, 1, 0),
        ("azure", 1, 1, 0),
        ("no-volume", 0, 0, 0),
        ("existing-claim", 0, 1, 1),
        ("three-clusters", 0, 0, 0),
    ],
)
def test_there_is_a_volume_only_for_what_needs_one(
    case: str, claims: int, of_job: int, of_serve: int
) -> None:
    release = Release.of(CASES[case])
    assert len(release.of_kind("PersistentVolumeClaim")) == claims
    for component, expected in (("job", of_job), ("serve", of_serve)):
        workload = release.workload(component)
        assert len(_claims(workload) if workload else []) == expected
    is_shared = of_serve == 1
    assert all(("affinity" in pod_of(one)) == is_shared for one in release.workloads())


# --- network ---------------------------------------------------------------------------------------------


def test_http_and_listeners_with_principals_alone_can_be_reached(values: str) -> None:
    release = Release.of(values)
    kafka = [9193] if '"SASL_SSL"' in values and "[[serve.kafka]]" in values else []
    ports = [(8720, "http"), *((port, f"kafka-{port}") for port in kafka)]
    assert [one for one in release.of_kind("Service") if "serve" not in one["metadata"]["name"]] == []
    for one in release.of_kind("Service"):
        assert [(port["port"], port["targetPort"]) for port in one["spec"]["ports"]] == ports
    for workload in release.workloads():
        of_pod = [(port["containerPort"], port["name"]) for port in container_of(workload).get("ports", [])]
        assert of_pod == (ports if component_of(workload) == "serve" else [])
    for one in release.of_kind("NetworkPolicy"):
        assert one["spec"]["policyTypes"] == ["Ingress"]
        for rule in one["spec"]["ingress"]:
            assert rule["ports"] == [{"port": name} for _, name in ports]
            assert rule["from"]


_CERTIFICATES: Final = '"SSL"\n    broker = {"ssl.client.auth" = "required"}'


def test_certificates_of_clients_open_a_listener_too() -> None:
    release = Release.of(CASES["page-kafka-clients"].replace('"SASL_SSL"', _CERTIFICATES))
    [service] = release.of_kind("Service")
    assert [port["port"] for port in service["spec"]["ports"]] == [8720, 9193]


@pytest.mark.parametrize(
    "security", ['"SSL"', '"SASL_PLAINTEXT"', '"PLAINTEXT"', _CERTIFICATES.replace("required", "requested")]
)
def test_a_listener_without_tls_or_principals_is_refused(security: str) -> None:
    values = CASES["page-kafka-clients"].replace('"SASL_SSL"', security)
    ran = helm("template", "offsetlake", str(CHART), "--values", "-", values=values)
    assert ran.returncode != 0
    assert "expected security_protocol" in ran.stderr


def test_every_pod_has_a_policy_unless_there_shall_be_none() -> None:
    for name, values in CASES.items():
        release = Release.of(values)
        policies = [one["spec"] for one in release.of_kind("NetworkPolicy")]
        for workload in release.workloads():
            labels = workload["spec"]["template"]["metadata"]["labels"]
            covering = [one for one in policies if selects(one["podSelector"]["matchLabels"], labels)]
            assert len(covering) == (0 if name == "job-only" else 1), name


def test_selectors_select_their_own(release: Release) -> None:
    pods = [one["spec"]["template"]["metadata"]["labels"] for one in release.workloads()]
    for workload in release.workloads():
        selector = workload["spec"]["selector"]["matchLabels"]
        assert [selects(selector, labels) for labels in pods].count(True) == 1
        assert selects(selector, workload["spec"]["template"]["metadata"]["labels"])
    for kind, of in (("Service", lambda spec: spec["selector"]), ("PodDisruptionBudget", _match_labels)):
        for one in release.of_kind(kind):
            assert [selects(of(one["spec"]), labels) for labels in pods].count(True) == 1
    services = [one["metadata"]["labels"] for one in release.of_kind("Service")]
    for one in release.of_kind("ServiceMonitor"):
        assert [selects(_match_labels(one["spec"]), labels) for labels in services] == [True]


def _match_labels(spec: Tree) -> Tree:
    return dict(spec["selector"]["matchLabels"])


def test_prometheus_sends_the_token() -> None:
    [monitor] = Release.of(CASES["monitored"]).of_kind("ServiceMonitor")
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["path"] == "/metrics"
    assert endpoint["authorization"]["credentials"] == {"name": "offsetlake-token", "key": "token"}


def test_a_pod_that_may_not_be_evicted_can_be_while_it_is_broken() -> None:
    budgets = [one["spec"] for one in Release.of(CASES["careful"]).of_kind("PodDisruptionBudget")]
    assert [(one["maxUnavailable"], one["unhealthyPodEvictionPolicy"]) for one in budgets] == [
        (0, "AlwaysAllow")
    ] * 2
    assert Release.of(CASES["volume"]).of_kind("PodDisruptionBudget") == []


# --- what pods run ---------------------------------------------------------------------------------------


class Here:
    """A pod whose folders are in a temporary one: its command line and its environment."""

    def __init__(self, values: str, component: str, folder: Path) -> None:
        release = Release.of(values)
        found = release.workload(component)
        assert found is not None
        self.workload = found
        self._folder = folder
        self._settings = folder / "etc" / "offsetlake" / "offsetlake.toml"
        self._settings.parent.mkdir(parents=True)
        self._settings.write_text(release.settings_of(found), encoding="utf-8")

    def here(self, word: str) -> str:
        return re.sub(r"^/(?=etc|var|token)", f"{self._folder}/", word)

    def command(self, words: list[str]) -> list[str]:
        return [*CLI, *(self.here(word) for word in words)]

    def environment(self, **others: str) -> dict[str, str]:
        given = {name: self.here(value) for name, value in environment_of(self.workload).items()}
        return {**os.environ, **given, **others}


def test_serve_starts_answers_its_probes_and_keeps_the_token(tmp_path: Path) -> None:
    pod = Here(CASES["volume"], "serve", tmp_path)
    [port] = free_ports(1)
    (tmp_path / "token").mkdir()
    (tmp_path / "token" / "token").write_text(TOKEN)
    (tmp_path / "var" / "lib" / "offsetlake").mkdir(parents=True)
    filled(tmp_path / "var" / "lib" / "offsetlake" / "warehouse", committed=7)
    container = container_of(pod.workload)
    probes = [container[one]["httpGet"] for one in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert {one["port"] for one in probes} == {container["ports"][0]["name"]}
    environment = pod.environment(OFFSETLAKE_SERVE_HTTP_LISTEN=f"0.0.0.0:{port}")
    url = f"http://127.0.0.1:{port}"
    command = ["env", "-i", *(f"{name}={value}" for name, value in environment.items())]
    with running_program(
        [*command, *pod.command(container["args"])], f"{url}/healthz", log=tmp_path / "log", cwd=tmp_path
    ):
        for one in probes:
            assert urllib.request.urlopen(f"{url}{one['path']}").status == 200
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{url}/metrics")
        request = urllib.request.Request(f"{url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        assert b"offsetlake_groups 1" in urllib.request.urlopen(request).read()


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe"])
def test_the_probe_of_the_job_wants_heartbeats(probe: str, tmp_path: Path) -> None:
    pod = Here(CASES["volume"], "job", tmp_path)
    program, *words = container_of(pod.workload)[probe]["exec"]["command"]
    assert program == "offsetlake"

    def asked() -> int:
        return subprocess.run(
            pod.command(words), env=pod.environment(), cwd=tmp_path, capture_output=True
        ).returncode

    assert asked() == 1
    (tmp_path / "var" / "lib" / "offsetlake").mkdir(parents=True)
    filled(tmp_path / "var" / "lib" / "offsetlake" / "warehouse", committed=7)
    assert asked() == 0


def test_the_job_understands_its_command_line(tmp_path: Path) -> None:
    pod = Here(CASES["scram"], "job", tmp_path)
    command = pod.command([*container_of(pod.workload)["args"], "--show-settings"])
    ran = subprocess.run(command, env=pod.environment(), cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "my-cluster-kafka-bootstrap:9093" in ran.stdout
    assert "of-a-Secret" not in ran.stdout
