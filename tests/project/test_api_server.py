"""The chart on a real API server of Kubernetes: installed, upgraded, uninstalled; its pods are admitted.

Only `make test-deploy` runs this. There are no nodes: no pod runs.
"""

import os
from collections.abc import Iterator
from copy import deepcopy
from itertools import count
from typing import Any, Final

import pytest
from chart import CHART, Release, get_programs, helm, pod_of, rendered, values_files, yaml_documents
from client_programs import MissingError
from kafka_clients import wait_until
from kubernetes import (
    TOKEN,
    ApiServer,
    RefusedError,
    running_api_server,
    servers,
    service_monitor_definition,
)

if os.environ.get("DEPLOY") != "1":
    pytest.skip("builds an API server for minutes: make test-deploy", allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_000)]

CASES: Final = values_files()
_ALL_KINDS: Final = {
    "ConfigMap",
    "Deployment",
    "NetworkPolicy",
    "PersistentVolumeClaim",
    "PodDisruptionBudget",
    "Service",
    "ServiceAccount",
    "ServiceMonitor",
    "StatefulSet",
}
_SECURITY: Final = {"pod-security.kubernetes.io/enforce": "restricted"}
_numbers = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    try:
        get_programs()
        servers()
    except MissingError as error:
        pytest.skip(str(error))
    with running_api_server(tmp_path_factory.mktemp("kubernetes")) as server:
        [definition] = yaml_documents(service_monitor_definition())
        server.create(definition)
        wait_until(lambda: server.knows("ServiceMonitor"), "the API server knows ServiceMonitor")
        yield server


@pytest.fixture
def namespace(server: ApiServer) -> str:
    """A namespace that admits pods only by the restricted Pod Security Standard."""
    name = f"offsets-{next(_numbers)}"
    server.create({"kind": "Namespace", "metadata": {"name": name, "labels": _SECURITY}})
    server.create({"kind": "ServiceAccount", "metadata": {"name": "default"}}, name)
    return name


@pytest.fixture(params=sorted(CASES))
def values(request: pytest.FixtureRequest) -> str:
    return CASES[request.param]


def on(server: ApiServer, namespace: str, *arguments: str, values: str = "") -> str:
    """Run helm on a server; return what it prints."""
    place = ["--kube-apiserver", server.url, "--kube-ca-file", str(server.ca), "--kube-token", TOKEN]
    ran = helm(*arguments, "--namespace", namespace, *place, values=values)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "WARNING" not in ran.stderr.upper(), ran.stderr  # the server warns of what it will not admit
    return ran.stdout


def held(server: ApiServer, namespace: str) -> set[tuple[str, str]]:
    kinds = _ALL_KINDS - {"ServiceAccount", "ConfigMap"}
    return {(kind, name) for kind in kinds for name in server.names(kind, namespace)}


def test_every_kind_of_the_chart_is_tried() -> None:
    kinds = {one["kind"] for text in CASES.values() for one in Release.of(text).objects}
    assert kinds == _ALL_KINDS


def test_the_chart_is_installed_upgraded_and_uninstalled(
    server: ApiServer, namespace: str, values: str
) -> None:
    wanted = {(one["kind"], one["metadata"]["name"]) for one in Release.of(values).objects}
    wanted = {one for one in wanted if one[0] not in {"ServiceAccount", "ConfigMap"}}
    from_values = [str(CHART), "--values", "-"]
    on(server, namespace, "install", "offsetlake", *from_values, "--dry-run=server", values=values)
    assert held(server, namespace) == set()
    on(server, namespace, "install", "offsetlake", *from_values, values=values)
    assert held(server, namespace) == wanted
    on(server, namespace, "upgrade", "offsetlake", *from_values, values=values)
    assert held(server, namespace) == wanted
    on(server, namespace, "uninstall", "offsetlake")
    assert {kind for kind, _ in held(server, namespace)} <= {"PersistentVolumeClaim"}  # tables are kept


def test_an_upgrade_changes_what_may_change(server: ApiServer, namespace: str) -> None:
    from_values = [str(CHART), "--values", "-"]
    for name in ("volume", "monitored", "volume"):
        action = ["upgrade", "--install", "offsetlake"]
        on(server, namespace, *action, *from_values, values=CASES[name])
    wanted = {(one["kind"], one["metadata"]["name"]) for one in Release.of(CASES["volume"]).objects}
    assert {one for one in wanted if one[0] not in {"ServiceAccount", "ConfigMap"}} == held(server, namespace)


def test_the_server_knows_every_field(server: ApiServer, namespace: str, values: str) -> None:
    for one in yaml_documents(rendered(values)):
        server.create(one, namespace, is_dry_run=True)


def test_pods_are_admitted_where_only_restricted_ones_are(
    server: ApiServer, namespace: str, values: str
) -> None:
    server.create({"kind": "ServiceAccount", "metadata": {"name": "offsetlake"}}, namespace)
    for workload in Release.of(values).workloads():
        server.create(as_pod(workload), namespace, is_dry_run=True)


def test_the_server_refuses_what_is_wrong(server: ApiServer, namespace: str) -> None:
    [workload, *_] = Release.of(CASES["volume"]).workloads()
    server.create({"kind": "ServiceAccount", "metadata": {"name": "offsetlake"}}, namespace)
    misspelt = as_pod(workload)
    misspelt["spec"]["enableServiceLink"] = False
    with pytest.raises(RefusedError, match="enableServiceLink"):
        server.create(misspelt, namespace, is_dry_run=True)
    as_root = as_pod(workload)
    as_root["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(RefusedError, match="PodSecurity"):
        server.create(as_root, namespace, is_dry_run=True)
    [found] = Release.of(CASES["monitored"]).of_kind("ServiceMonitor")
    monitor = deepcopy(found)
    monitor["spec"]["endpoints"][0]["intervall"] = "30s"
    with pytest.raises(RefusedError, match="intervall"):
        server.create(monitor, namespace, is_dry_run=True)


def as_pod(workload: dict[str, Any]) -> dict[str, Any]:
    """Return a pod as the controller of a workload creates it, before admission."""
    labels = workload["spec"]["template"]["metadata"]["labels"]
    metadata = {"name": "pod", "labels": labels}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": deepcopy(pod_of(workload))}
