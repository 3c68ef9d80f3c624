"""An API server of Kubernetes with its etcd, for `make test-deploy`: without nodes, so that no pod runs.

Go builds both when they are first used (some ten minutes with two cores).
"""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from certificates import CertificateAuthority
from client_programs import HERE, go_module_folder, made_by_go
from http_program import running_program

from streaming.demo.local_broker import free_ports

Tree = dict[str, Any]

RELEASE: Final = "1.37.2"
TOKEN: Final = "token-of-the-tests"

_SOURCES: Final = HERE / "kubernetes"
_APISERVER: Final = "k8s.io/kubernetes/cmd/kube-apiserver"
_VERSION: Final = "k8s.io/component-base/version"
_OPERATOR: Final = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
_SERVICE_MONITOR: Final = "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"
_READY_S: Final = 120

_PATHS: Final = {
    "ConfigMap": "api/v1/namespaces/{}/configmaps",
    "CustomResourceDefinition": "apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Deployment": "apis/apps/v1/namespaces/{}/deployments",
    "Namespace": "api/v1/namespaces",
    "NetworkPolicy": "apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "PersistentVolumeClaim": "api/v1/namespaces/{}/persistentvolumeclaims",
    "Pod": "api/v1/namespaces/{}/pods",
    "PodDisruptionBudget": "apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "Service": "api/v1/namespaces/{}/services",
    "ServiceAccount": "api/v1/namespaces/{}/serviceaccounts",
    "ServiceMonitor": "apis/monitoring.coreos.com/v1/namespaces/{}/servicemonitors",
    "StatefulSet": "apis/apps/v1/namespaces/{}/statefulsets",
}


class RefusedError(Exception):
    """The API server has refused a request; the text is its answer."""


def servers() -> Path:
    """Return the folder of `etcd` and `kube-apiserver`. Raises `MissingError` where they cannot be had."""
    major, minor, _ = RELEASE.split(".")
    named = {"gitVersion": f"v{RELEASE}", "gitMajor": major, "gitMinor": minor}
    ldflags = "-s -w " + " ".join(f"-X {_VERSION}.{name}={value}" for name, value in named.items())
    return made_by_go("kubernetes", _SOURCES, ["./etcd", _APISERVER], ldflags=ldflags, limit_s=2_400)


def service_monitor_definition() -> str:
    """Return the definition of the kind ServiceMonitor, as YAML."""
    return (go_module_folder(_OPERATOR) / _SERVICE_MONITOR).read_text("utf-8")


@dataclass(frozen=True)
class ApiServer:
    """One that runs, by its URL and the file with its CA."""

    url: str
    ca: Path

    def create(self, thing: Tree, namespace: str = "", *, is_dry_run: bool = False) -> Tree:
        """Create an object; unknown fields are errors. Raises `RefusedError`."""
        dry = "&dryRun=All" if is_dry_run else ""
        path = _PATHS[thing["kind"]].format(namespace)
        return dict(self._ask("POST", f"{path}?fieldValidation=Strict{dry}", thing))

    def knows(self, kind: str) -> bool:
        """Return whether it serves a kind, which takes seconds after its definition."""
        try:
            self.names(kind, "default")
        except RefusedError:
            return False
        return True

    def names(self, kind: str, namespace: str) -> set[str]:
        """Return the names of the objects of a kind."""
        found = self._ask("GET", _PATHS[kind].format(namespace), None)
        return {one["metadata"]["name"] for one in found["items"]}

    def _ask(self, method: str, path: str, body: Tree | None) -> Any:
        request = urllib.request.Request(
            f"{self.url}/{path}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60, context=trusting(self.ca)) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise RefusedError(error.read().decode()) from error


def trusting(ca: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca)


@contextmanager
def running_api_server(directory: Path) -> Iterator[ApiServer]:
    """Start etcd and an API server that knows one user, an administrator with `TOKEN`."""
    programs = servers()
    client_port, peer_port, port = free_ports(3)
    etcd_url, peer_url = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    authority = CertificateAuthority()
    ca = authority.write_trusted(directory / "ca.pem")
    pem = authority.write_pem(directory / "server.pem", "kube-apiserver")
    (directory / "tokens.csv").write_text(f"{TOKEN},tests,tests,system:masters\n")
    etcd: list[str | Path] = [
        programs / "etcd",
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={etcd_url}",
        f"--advertise-client-urls={etcd_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        "--unsafe-no-fsync",
    ]
    api_server: list[str | Path] = [
        programs / "kube-apiserver",
        f"--etcd-servers={etcd_url}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={pem}",
        f"--tls-private-key-file={pem}",
        f"--token-auth-file={directory / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pem}",
        f"--service-account-signing-key-file={pem}",
    ]
    url = f"https://127.0.0.1:{port}"
    with (
        running_program(etcd, f"{etcd_url}/health", log=directory / "etcd.log", cwd=directory),
        running_program(
            api_server,
            f"{url}/readyz",
            log=directory / "kube-apiserver.log",
            cwd=directory,
            tls=trusting(ca),
            within_s=_READY_S,
        ),
    ):
        yield ApiServer(url, ca)
