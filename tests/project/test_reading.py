"""The examples of docs/reading.md run, each on the tables of a newcomer who has copied it."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from table_batches import Batch, append, group, heartbeat, offset

from streaming.cli.main import cli
from streaming.common.times import now_ms
from streaming.model.progress import PartitionEnds, Progress
from streaming.settings.model import OFFSETS_TOPIC
from streaming.tables.tables import Tables

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reading.md").read_text()
LIVE: Batch = {
    ("billing", "orders", 0): offset(committed_offset=431),
    ("audit", "orders", 0): offset(committed_offset=5),
    "billing": group(members=[{"member_id": "m", "client_id": "worker", "client_host": "/h"}]),
    "audit": group(state="Empty"),
}


@pytest.fixture
def _warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables in `warehouse` of the working directory, read to their end and folded."""
    monkeypatch.chdir(tmp_path)
    tables = Tables("warehouse")
    tables.create()
    now = now_ms()
    progress = Progress().with_positions({3: 5}).with_ends({3: PartitionEnds(5, 5)}, now=now)
    append(tables, LIVE, topic=OFFSETS_TOPIC, partitions=progress.partitions)
    heartbeat(tables, now)
    tables.fold()


def examples(heading: str, language: str = "python") -> list[str]:
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None
    found = re.findall(rf"```{language}\n(.*?)```", section[1], re.DOTALL)
    assert found
    return found


def run(heading: str, **names: Any) -> None:
    for example in examples(heading):
        exec(compile(example, f"docs/reading.md, {heading}", "exec"), names)


@pytest.mark.usefixtures("_warehouse")
def test_python(capsys: pytest.CaptureFixture[str]) -> None:
    run("Python, with the methods of Kafka's requests")
    out = capsys.readouterr().out
    assert "billing orders 0 431\naudit orders 0 5\naudit orders 7 -1\naudit Empty\nbilling Stable" in out
    assert "Stable ['worker']\nas of batch 1" in out


@pytest.mark.usefixtures("_warehouse")
def test_sql() -> None:
    (line,) = examples("SQL, in the command", "console")
    _, *arguments = shlex.split(line.removeprefix("$ "))
    assert "431" in CliRunner().invoke(cli, arguments, catch_exceptions=False).output


@pytest.mark.usefixtures("_warehouse")
def test_pandas(capsys: pytest.CaptureFixture[str]) -> None:
    run("pandas")
    assert re.search(r"billing +431", capsys.readouterr().out)


@pytest.mark.usefixtures("_warehouse")
def test_duckdb(capsys: pytest.CaptureFixture[str]) -> None:
    run("DuckDB")
    assert re.search(r"billing +│ +1 ", capsys.readouterr().out)


@pytest.mark.spark
@pytest.mark.usefixtures("_warehouse")
def test_spark(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    run("Spark", spark=spark)
    assert re.search(r"\|billing\| +1\|", capsys.readouterr().out)


@pytest.mark.usefixtures("_warehouse")
def test_changes(capsys: pytest.CaptureFixture[str]) -> None:
    run("From `changes`")
    assert capsys.readouterr().out == "2 1\n"
