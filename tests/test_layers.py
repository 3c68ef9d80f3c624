"""Who may import whom, checked in fresh processes; and every setting is explained and used."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from table_batches import Batch, append, group, offset

from streaming.conf_dir import conf_dir
from streaming.tables import Tables

ROOT = Path(__file__).parents[1]
DEFAULTS = (conf_dir() / "offsetlake.toml").read_text(encoding="utf-8")

HEAVY = ["pyspark", "py4j", "confluent_kafka"]
FORBIDDEN = {
    "decoders": ["streaming", "deltalake", *HEAVY],
    "streaming.coordinator": ["deltalake", *HEAVY],
    "streaming.queries": HEAVY,
    "streaming.sql": HEAVY,
    "streaming.observations": HEAVY,
    "streaming.expiry": ["deltalake", *HEAVY],
    "streaming.causes": ["deltalake", *HEAVY],
    "streaming.expiring": HEAVY,
    "streaming.retired": HEAVY,
    "streaming.render": HEAVY,
    "streaming.maintainer": HEAVY,
    "streaming.cli": HEAVY,
    "streaming.decode_lines": HEAVY,
    "streaming.alert_rules": ["deltalake", *HEAVY],
    "streaming.alert_watch": HEAVY,
}


def loaded_after(statement: str) -> set[str]:
    """Run a statement in a fresh Python and return the top-level modules that it has loaded."""
    tell = "import sys; print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    program = f"import atexit; atexit.register(lambda: exec({tell!r})); {statement}"
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    *output, modules = ran.stderr.splitlines()
    assert not any("Error" in line for line in output), ran.stderr
    return set(modules.split())


@pytest.mark.parametrize(("module", "forbidden"), FORBIDDEN.items(), ids=FORBIDDEN.keys())
def test_module_does_not_import(module: str, forbidden: list[str]) -> None:
    assert loaded_after(f"import {module}") & set(forbidden) == set()


COMMANDS = {
    "offsets": "--group g --table-root {root}",
    "groups": "--output json --table-root {root}",
    "history": "--group g --since -2h --table-root {root}",
    "sql": "SELECT(1) --table-root {root}",
    "status": "--table-root {root}",
    "alerts": "--table-root {root}",
    "expiring": "--config {root}/settings.toml --table-root {root}",
    "retired": "--since 7d --table-root {root}",
    "decode": "{root}/records.jsonl",
    "maintain": "--table-root {root}",
}


@pytest.mark.parametrize(("command", "arguments"), COMMANDS.items(), ids=COMMANDS.keys())
def test_query_loads_neither_spark_nor_a_kafka_client(tmp_path: Path, command: str, arguments: str) -> None:
    (tmp_path / "records.jsonl").write_text('{"key": "0002000167", "value": null}\n')
    (tmp_path / "settings.toml").write_text('expiry.retention = "7d"\n')
    create = f"from streaming.tables import Tables; Tables({str(tmp_path)!r}).create()"
    run = f"import sys; sys.argv = {['offsetlake', command, *arguments.format(root=tmp_path).split()]!r}"
    loaded = loaded_after(f"{create}; {run}; from streaming.cli import main; main()")
    assert "streaming" in loaded
    assert loaded & set(HEAVY) == set()


@pytest.mark.parametrize("command", ["offsets --group billing", "groups --group billing", "groups --list"])
def test_a_quick_question_does_not_wait_for_pandas(tmp_path: Path, command: str) -> None:
    tables = Tables(str(tmp_path))
    tables.create()
    batch: Batch = {("billing", "orders", 0): offset(), "billing": group()}
    append(tables, batch)
    tables.fold()
    append(tables, batch, live=batch)
    run = f"import sys; sys.argv = {['offsetlake', *command.split(), '--table-root', tables.root]!r}"
    assert "pandas" not in loaded_after(f"{run}; from streaming.cli import main; main()")


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
    modules = [file for file in (ROOT / "streaming").glob("*.py") if file.name != "settings.py"]
    assert any(use.search(module.read_text(encoding="utf-8")) for module in modules)


@pytest.mark.parametrize("setting", SETTINGS)
def test_setting_is_explained(setting: str) -> None:
    name = setting.rpartition(".")[2]
    explained = rf"(?m)^# .+\n({name} = |\[\[{setting}\]\]$)|^\[+{setting}\]+\n# "
    assert re.search(explained, DEFAULTS)
