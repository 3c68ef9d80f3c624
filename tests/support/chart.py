"""The chart and compose.yaml, read by helm, kubectl-validate and compose-go, for `make test-deploy`.

Go builds these programs when they are first used (some minutes). PyYAML, which reads their output, is beside
the packages of the project rather than among them.
"""

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from client_programs import HERE, go_program, made, pip_into

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "conf" / "deploy"
CHART: Final = DEPLOY / "chart"

Tree = dict[str, Any]

_HELM: Final = "helm.sh/helm/v4/cmd/helm@v4.3.1"
_VALIDATE: Final = "sigs.k8s.io/kubectl-validate@v0.0.4"
_COMPOSE: Final = "github.com/compose-spec/compose-go/v2/cmd@v2.16.2"

KUBERNETES: Final = "1.30"
"""The newest release whose schemas kubectl-validate contains."""

_NOT_OF_KUBERNETES: Final = ("ServiceMonitor",)


def get_programs() -> None:
    """Make all programs ready. Raises `MissingError` where one cannot be had."""
    yaml_documents("")
    for package in (_HELM, _VALIDATE, _COMPOSE):
        go_program(package)


@cache
def yaml_documents(text: str) -> list[Any]:
    """Return the documents of a text in YAML."""
    sums = HERE / "pyyaml.txt"
    folder = str(made("pyyaml", sums.read_bytes(), pip_into(sums)))
    if folder not in sys.path:
        sys.path.append(folder)
    documents = importlib.import_module("yaml").safe_load_all(text)
    return [one for one in documents if one is not None]


def values_files() -> dict[str, str]:
    """Return files with values of the chart by name: those of tests/data, and the examples of the page."""
    files = {one.stem: one.read_text("utf-8") for one in (ROOT / "tests" / "data" / "chart").glob("*.yaml")}
    page = (ROOT / "docs" / "kubernetes.md").read_text("utf-8")
    examples = re.findall(r"^```yaml\n# (\S+)\.yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return files | {f"page-{name}": text for name, text in examples}


def helm(*arguments: str, values: str = "") -> subprocess.CompletedProcess[str]:
    """Run helm, with values on its standard input (name it by `--values -`)."""
    command = [str(go_program(_HELM)), *arguments]
    return subprocess.run(command, input=values, capture_output=True, text=True)


@cache
def rendered(values: str, *sets: str, release: str = "offsetlake") -> str:
    """Return what the chart makes of values."""
    given = [word for one in sets for word in ("--set", one)]
    ran = helm("template", release, str(CHART), "--values", "-", *given, values=values)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def schema_errors(manifest: str, folder: Path) -> str:
    """Return what Kubernetes' own schemas refuse in a manifest, except in objects of other makers."""
    file = folder / "manifest.yaml"
    own = [one for one in yaml_documents(manifest) if one["kind"] not in _NOT_OF_KUBERNETES]
    file.write_text("\n---\n".join(map(json.dumps, own)), encoding="utf-8")
    command = [str(go_program(_VALIDATE)), "--version", KUBERNETES, str(file)]
    ran = subprocess.run(command, capture_output=True, text=True)
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


def composed(file: Path) -> Tree:
    """Return a file of Docker Compose, checked and with its defaults, as compose-go reads it."""
    command = [str(go_program(_COMPOSE)), "-format", "json", file.name]
    ran = subprocess.run(command, cwd=file.parent, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return dict(json.loads(ran.stdout))


@dataclass(frozen=True)
class Release:
    """The objects of a release of the chart."""

    objects: Sequence[Tree]

    @classmethod
    def of(cls, values: str, *sets: str, release: str = "offsetlake") -> "Release":
        return cls(yaml_documents(rendered(values, *sets, release=release)))

    def of_kind(self, kind: str) -> list[Tree]:
        return [one for one in self.objects if one["kind"] == kind]

    def named(self, kind: str, name: str) -> Tree:
        [found] = [one for one in self.of_kind(kind) if one["metadata"]["name"] == name]
        return found

    def workloads(self) -> list[Tree]:
        return [one for one in self.objects if "template" in one.get("spec", {})]

    def workload(self, component: str) -> Tree | None:
        return next((one for one in self.workloads() if component_of(one) == component), None)

    def settings_of(self, workload: Tree) -> str:
        """Return the settings file of a workload."""
        name = next(
            one["configMap"]["name"] for one in pod_of(workload)["volumes"] if one["name"] == "settings"
        )
        return str(self.named("ConfigMap", name)["data"]["offsetlake.toml"])


def component_of(workload: Tree) -> str:
    return str(workload["metadata"]["labels"]["app.kubernetes.io/component"])


def pod_of(workload: Tree) -> Tree:
    return dict(workload["spec"]["template"]["spec"])


def container_of(workload: Tree) -> Tree:
    [found] = pod_of(workload)["containers"]
    return dict(found)


def environment_of(workload: Tree) -> dict[str, str]:
    """Return the variables of a container by name; a reference to a Secret is a placeholder."""
    return {one["name"]: one.get("value", "of-a-Secret") for one in container_of(workload)["env"]}


def mounts_of(workload: Tree) -> Iterator[tuple[Tree, Tree]]:
    """Yield each mount of a container with its volume; every volume has one."""
    mounts = {one["name"]: one for one in container_of(workload)["volumeMounts"]}
    volumes = {one["name"]: one for one in pod_of(workload)["volumes"]}
    assert mounts.keys() == volumes.keys()
    assert len({one["mountPath"] for one in mounts.values()}) == len(mounts)
    for name, mount in mounts.items():
        yield mount, volumes[name]


def selects(selector: Tree, labels: Tree) -> bool:
    return bool(selector) and selector.items() <= labels.items()
