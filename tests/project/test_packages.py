"""The packages of the house: who may import whom and what is loaded; and every setting is explained and
used."""

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
from log_end_rows import Sample, rows_of
from table_batches import Batch, append, group, offset

import streaming
from streaming.common.conf_dir import conf_dir
from streaming.common.times import MINUTE_MS, now_ms
from streaming.tables.tables import Tables

ROOT = Path(__file__).parents[2]
DEFAULTS = (conf_dir() / "offsetlake.toml").read_text(encoding="utf-8")

# --- the import table: a package, what it may import besides itself, and the packages that only it may use -

PACKAGES = {
    "decoders": "",
    "model": "decoders",
    "common": "model",
    "settings": "model common",
    "jvm": "model common",
    "packing": "decoders model common",
    "state": "decoders packing model common",
    "expiry": "state model common",
    "brokers": "settings jvm model common",
    "tables": "model common",
    "maintenance": "tables settings model common",
    "spark": "decoders packing state expiry brokers tables settings jvm model common",
    "lag": "model common",
    "assessment": "expiry lag model common",
    "queries": "assessment tables expiry lag settings model common",
    "alerts": "assessment tables expiry lag settings model common",
    "serve/memory": "tables expiry lag queries alerts settings model common",
    "serve/assessment": "serve/memory assessment tables expiry lag alerts settings model common",
    "serve/metrics": "serve/assessment serve/memory expiry lag settings model common",
    "serve/page": "serve/assessment serve/memory assessment queries alerts tables expiry lag settings model "
    "common",
    "serve/http": "serve/page serve/metrics model common",
    "serve/kafka": "serve/memory decoders settings model common",
    "serve/process": "serve/kafka serve/http serve/page serve/metrics serve/assessment serve/memory alerts "
    "tables lag settings model common",
    "job": "decoders model common settings jvm packing state expiry brokers tables maintenance spark alerts",
    "check": "decoders spark brokers jvm settings model common",
    "demo": "job assessment tables settings jvm model common",
    "cli": "serve/process demo check job alerts queries lag maintenance tables brokers expiry jvm settings "
    "model common decoders",
}
OWNERS = {
    "construct": "decoders",
    "confluent_kafka": "brokers demo",
    "boto3": "brokers",
    "botocore": "brokers",
    "aws_msk_iam_sasl_signer": "brokers",
    "deltalake": "tables maintenance alerts queries job",
    "pyspark": "spark job",
    "py4j": "spark job check",
    "urllib.request": "alerts",
    "http.client": "alerts",
    "click": "cli",
    "rich": "cli common demo",
    "signal": "spark job demo serve/process cli",
    "asyncio": "serve/kafka serve/http serve/process",
    "starlette": "serve/http",
    "uvicorn": "serve/http",
    "h11": "serve/http",
    "anyio": "serve/http",
    "jinja2": "serve/page",
    "markupsafe": "serve/page",
    "fcntl": "job",
    "jwt": "serve/kafka",
    "cryptography": "serve/kafka serve/process",
}
PARENTS = {package.partition("/")[0] for package in PACKAGES if "/" in package}
"""Folders that hold packages, each with a name of two parts, and no modules of their own."""


def package_of(name: str) -> str | None:
    """Return the package that a module's dotted name belongs to; None: it is not of ours, or of no
    package."""
    first, *rest = name.split(".")
    if first == "decoders":
        return first
    if first != "streaming" or not rest:
        return None
    if rest[0] not in PARENTS:
        return rest[0]
    return None if rest[1:] in ([], ["__init__"]) else "/".join(rest[:2])


def owners_of(imported: str, package: str) -> list[str]:
    """Return the packages that may import a module of others; where the table is silent, all may."""
    parts = imported.split(".")
    names = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return next((OWNERS[name].split() for name in names if name in OWNERS), [package])


def imports_of(module: str) -> Iterator[str]:
    """Name the modules that a module imports, anywhere in it."""
    for node in nodes_of(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module if "." in node.module else f"{node.module}.{node.names[0].name}"


MODULES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts): file
    for package in ("decoders", "streaming")
    for file in sorted((ROOT / package).rglob("*.py"))
}
SOURCES = {name: file.read_text(encoding="utf-8") for name, file in MODULES.items()}


@cache
def nodes_of(module: str) -> list[ast.AST]:
    """Return all nodes of a module's source."""
    return list(ast.walk(ast.parse(SOURCES[module])))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_what_the_table_says(package: str) -> None:
    found, strangers = set(), set()
    for name in MODULES:
        if package_of(name) == package:
            for imported in imports_of(name):
                other = package_of(imported)
                found |= {other} - {package, None}
                if package not in owners_of(imported, package):
                    strangers.add(f"{name} imports {imported}")
    assert found - set(PACKAGES[package].split()) == set()
    assert strangers == set()


def test_every_folder_is_a_package_and_none_is_above_what_it_imports() -> None:
    packages = {package_of(name) for name in MODULES} - {None, "__init__"}
    assert packages == set(PACKAGES)
    order = list(PACKAGES)
    upwards = [
        (package, one)
        for package in PACKAGES
        for one in PACKAGES[package].split()
        if order.index(one) > order.index(package)
    ]
    assert upwards == []


ASSESSED = {
    "streaming.lag.positions": {
        "offsets_with_lag",
        "lag_along",
        "lag_of_steps",
        "with_currency",
        "with_health",
    },
    "streaming.lag.lag_time": {"Ends", "OffsetsOverTime", "as_of_ends", "with_lag"},
    "streaming.lag.lagging": {"lagging_since"},
    "streaming.lag.health": {"health", "partition_health"},
    "streaming.lag.recreated_topic": {"of_recreated_topic"},
    "streaming.expiry.rules": {"expiry"},
}
"""Functions that say something of committed offsets. Views have it from the assessment, so that all say the
same; within their own packages others build on them (causes of removals, positions to put back)."""


def test_only_the_assessment_assesses() -> None:
    others = [
        f"{name} imports {alias.name}"
        for name in MODULES
        if not name.startswith("streaming.assessment")
        for node in nodes_of(name)
        if isinstance(node, ast.ImportFrom) and node.module in ASSESSED
        for alias in node.names
        if alias.name in ASSESSED[node.module] and package_of(name) != package_of(node.module)
    ]
    assert others == []


def test_no_circle_of_modules() -> None:
    arrows = {name: {one for one in imports_of(name) if one in MODULES} for name in MODULES}
    assert list(TopologicalSorter(arrows).static_order())


@pytest.mark.parametrize(
    "folder", sorted({file.parent for file in MODULES.values()}), ids=lambda path: path.name
)
def test_a_package_says_what_it_is_for(folder: Path) -> None:
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert 2 <= len(said.splitlines()) <= 4


@pytest.mark.parametrize("package", ["decoders", "streaming"])
def test_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()  # "Typing :: Typed"


@pytest.mark.parametrize("name", streaming.__all__)
def test_the_package_has_the_names_that_it_exports(name: str) -> None:
    assert getattr(streaming, name).__name__ == name


def exported() -> Iterator[tuple[str, str]]:
    """Name each package that exports names, and each of these."""
    for name, file in MODULES.items():
        if file.name == "__init__.py":
            package = importlib.import_module(name.removesuffix(".__init__"))
            yield from ((package.__name__, one) for one in getattr(package, "__all__", ()))


@pytest.mark.parametrize(("package", "name"), list(exported()))
def test_names_that_a_package_exports_are_explained(package: str, name: str) -> None:
    value = getattr(importlib.import_module(package), name)
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return  # a docstring below its assignment
    own = vars(value) if inspect.isclass(value) else {}
    described = {
        one: getattr(member, "__func__", getattr(member, "fget", member))
        for one, member in own.items()
        if not one.startswith("_") and (callable(member) or isinstance(member, property | classmethod))
    }
    silent = [
        one
        for one, member in {name: value, **described}.items()
        if (member.__doc__ or f"{one}(").startswith(f"{one}(")  # as dataclasses have it by themselves
    ]
    assert silent == []


# --- what is loaded, in fresh processes -----------------------------------------------------------------

HEAVY = ["pyspark", "py4j", "confluent_kafka"]
OF_THE_JOB = ["streaming.job", "streaming.spark", "streaming.brokers", "streaming.demo"]
FORBIDDEN = {
    "streaming": ["deltalake", "pandas", *HEAVY],
    "decoders": ["streaming", "deltalake", *HEAVY],
    "streaming.state.replay": ["deltalake", *HEAVY],
    "streaming.expiry.rules": ["deltalake", *HEAVY],
    "streaming.expiry.causes": ["deltalake", *HEAVY],
    "streaming.alerts.rules": ["deltalake", *HEAVY],
    "streaming.spark.shard_replay": ["deltalake"],
    "streaming.alerts.watch": HEAVY,
    "streaming.queries.offsets": HEAVY,
    "streaming.queries.sql": HEAVY,
    "streaming.queries.expiring": HEAVY,
    "streaming.queries.leftovers": HEAVY,
    "streaming.queries.removal_lines": HEAVY,
    "streaming.queries.removed": HEAVY,
    "streaming.maintenance.maintenance": HEAVY,
    "streaming.serve.memory.tailer": ["pandas", *HEAVY],
    "streaming.serve.process.serving": ["pandas", *HEAVY],
    "streaming.serve.metrics.exposition": ["pandas", "starlette", "uvicorn", *HEAVY],
    "streaming.cli.main": HEAVY,
    "streaming.cli.console": HEAVY,
    "streaming.cli.watching": [*HEAVY, *OF_THE_JOB],
}


STEP_BY_STEP = """
import contextlib, json, sys
steps, forbidden = map(json.loads, sys.argv[1:])
found = {}
for name, statement in steps.items():
    with contextlib.suppress(SystemExit):
        exec(statement, {})
    found[name] = sorted(set(forbidden) & set(sys.modules))
print(json.dumps(found), file=sys.stderr)
"""


def loaded_by(steps: Mapping[str, str], forbidden: Collection[str]) -> dict[str, list[str]]:
    """Run statements one after the other in a fresh Python; return which of these modules it has loaded by
    each of them, from the first on that has loaded any."""
    arguments = [json.dumps(steps), json.dumps([*forbidden])]
    ran = subprocess.run(
        [sys.executable, "-c", STEP_BY_STEP, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    *output, noted = ran.stderr.splitlines()
    assert not any("Error" in line for line in output), ran.stderr
    found = json.loads(noted)
    assert found.keys() == steps.keys()
    return {name: modules for name, modules in found.items() if modules}


@pytest.mark.parametrize("forbidden", sorted({tuple(names) for names in FORBIDDEN.values()}), ids=", ".join)
def test_modules_do_not_import(forbidden: tuple[str, ...]) -> None:
    steps = {name: f"import {name}" for name, names in FORBIDDEN.items() if tuple(names) == forbidden}
    assert loaded_by(steps, forbidden) == {}


COMMANDS = {
    "offsets": "--group g --table-root {root}",
    "groups": "--output json --table-root {root}",
    "history": "--group g --since -2h --table-root {root}",
    "lag": "--min-time 10m --table-root {root}",
    "health": "--table-root {root}",
    "restore": "--group g --as-of now --table-root {root}",
    "sql": "SELECT(1) --table-root {root}",
    "status": "--table-root {root}",
    "alerts": "--table-root {root}",
    "expiring": "--config {files}/settings.toml --table-root {root}",
    "leftovers": "--idle 30d --table-root {root}",
    "removed": "--since 7d --table-root {root}",
    "decode": "{files}/records.jsonl",
    "maintain": "--table-root {root}",
    "metrics": "--table-root {root}",
}


def loaded_by_commands(commands: Iterable[str], forbidden: Collection[str]) -> dict[str, list[str]]:
    """Run commands, as `loaded_by` does."""
    run = "import sys; sys.argv = {!r}; from streaming.cli.main import main; main()"
    return loaded_by(
        {command: run.format(["offsetlake", *command.split()]) for command in commands}, forbidden
    )


def test_queries_load_neither_spark_nor_a_kafka_client(tables: Tables, tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_text('{"key": "0002000167", "value": null}\n')
    (tmp_path / "settings.toml").write_text('expiry.retention = "7d"\n')
    commands = [
        f"{name} {arguments.format(root=tables.root, files=tmp_path)}" for name, arguments in COMMANDS.items()
    ]
    assert loaded_by_commands(commands, [*HEAVY, *OF_THE_JOB]) == {}


QUICK_QUESTIONS = [
    "offsets --group billing",
    "offsets billing -t orders:0",
    "offsets simple",
    "groups billing",
    "groups --list",
    "health billing",
    "health simple",
    "health",
]


def test_a_quick_question_does_not_wait_for_pandas(tables: Tables) -> None:
    batch: Batch = {("billing", "orders", 0): offset(), "billing": group(), ("simple", "orders", 0): offset()}
    append(tables, batch)
    tables.fold()
    append(tables, batch, live=batch)
    moments = range(now_ms() - 5 * MINUTE_MS, now_ms(), MINUTE_MS)
    tables.append_log_ends(rows_of(Sample(at, "orders", 0, 10 + at % 7, "id", 0) for at in moments))
    commands = [f"{question} --table-root {tables.root}" for question in QUICK_QUESTIONS]
    assert loaded_by_commands(commands, ["pandas"]) == {}


# --- settings --------------------------------------------------------------------------------------------


def names_of_settings(tables: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Name every setting and every table within a table, those of the entries of lists included."""
    for name, value in tables.items():
        if prefix:
            yield f"{prefix}{name}"
        for table in value if isinstance(value, list) else [value]:
            if isinstance(table, dict):
                yield from names_of_settings(table, f"{prefix}{name}.")


SETTINGS = list(names_of_settings(tomllib.loads(DEFAULTS)))


@pytest.mark.parametrize("setting", SETTINGS)
def test_setting_is_used(setting: str) -> None:
    *_, table, name = setting.split(".")
    use = re.compile(rf"\b_?({table}|settings|entry|policy)\.{name}(_ms)?\b")
    modules = [name for name, file in MODULES.items() if file.parent.name != "settings"]
    assert any(use.search(SOURCES[name]) for name in modules)


@pytest.mark.parametrize("setting", SETTINGS)
def test_setting_is_explained(setting: str) -> None:
    name = setting.rpartition(".")[2]
    explained = rf"(?m)^# .+\n({name} = |\[\[{setting}\]\]$)|^\[+{setting}\]+\n# "
    assert re.search(explained, DEFAULTS)
