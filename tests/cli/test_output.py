"""What is printed arrives, or is said not to have: full disks, readers that leave, JSON for every reader."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from new_tables import new_tables
from table_batches import append, group, offset

from streaming.model.progress import PartitionProgress

COMMAND = [sys.executable, "-m", "streaming.cli"]
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
UNBUFFERED = {**BUFFERED, "PYTHONUNBUFFERED": "1"}
FULL = "offsetlake: writing to standard output: expected to write all of it, found: No space left on device. "
MUCH = "SELECT repeat('x', 1000) AS x FROM generate_series(1, 1000)"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    tables = new_tables(tmp_path_factory.mktemp("tables"))
    read = {3: PartitionProgress(position=2, loaded=True)}
    append(tables, {("g", "t", 0): offset(), "g": group()}, partitions=read)
    return tables.root


COMMANDS = [
    *(
        pytest.param(one, marks=pytest.mark.more)
        for one in ("groups --list", "status", "alerts", "decode {records}")
    ),
    "offsets --output document",
    "--help",
    "sql MUCH --output json",
    "metrics --config {much}",
]


def offsetlake(command: str, root: str, out: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command (its words, with `MUCH` for a query) whose standard output is `out`.

    `{records}` is a file of records, `{much}` one of settings by which metrics are longer than any buffer.
    """
    records = Path(root).parent / "records.jsonl"
    records.write_text('{"key": "0002000167", "value": null}\n')
    much = records.with_name("much.toml")
    much.write_text(f'[metrics.labels]\nx = "{"x" * 20_000}"\n')
    command = command.format(records=records, much=much)
    words = [MUCH if word == "MUCH" else word for word in command.split()]
    if words[0] not in ("decode", "--help", "--version"):
        words += ["--table-root", root]
    options = {"env": BUFFERED, "stderr": subprocess.PIPE, **options}
    return subprocess.run([*COMMAND, *words], stdout=out, text=True, timeout=60, check=False, **options)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_one_line_and_exit_code_1(root: str, command: str) -> None:
    with Path("/dev/full").open("w") as full:
        ran = offsetlake(command, root, full)
    assert (ran.returncode, ran.stderr.count(FULL), "Traceback" in ran.stderr) == (1, 1, False)
    assert ran.stderr.endswith(f"{FULL}The output is incomplete: free some space, or write elsewhere.\n")


@pytest.mark.parametrize("command", ["sql MUCH --output csv", "metrics --config {much}"])
def test_a_full_disk_is_said_where_nothing_is_buffered(root: str, command: str) -> None:
    with Path("/dev/full").open("w") as full:
        ran = offsetlake(command, root, full, env=UNBUFFERED)
    assert (ran.returncode, ran.stderr.count(FULL), "Traceback" in ran.stderr) == (1, 1, False)


@pytest.mark.parametrize(
    "command",
    [
        *("status", "sql MUCH", "metrics --config {much}"),
        *(pytest.param(one, marks=pytest.mark.more) for one in ("groups --list", "--help")),
    ],
)
def test_a_reader_that_leaves_is_no_error(root: str, command: str) -> None:
    with unread() as out:
        ran = offsetlake(command, root, out)
    assert ran.returncode in (0, 1)
    assert "Traceback" not in ran.stderr
    assert "Exception ignored" not in ran.stderr
    assert "Broken pipe" not in ran.stderr


@pytest.mark.parametrize("command", ["status", "sql nonsense"])
def test_a_reader_of_errors_too_may_leave(root: str, command: str) -> None:
    with unread() as out:
        assert offsetlake(command, root, out, stderr=subprocess.STDOUT).returncode in (0, 1, 2)


def test_standard_output_may_be_closed(root: str) -> None:
    line = f"exec {' '.join(COMMAND)} offsets --table-root {root} >&-"
    ran = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert "Traceback" not in ran.stderr


def unread() -> Any:
    """A pipe that nobody reads from."""
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "wb")


# --- SQL -------------------------------------------------------------------------------------------------

QUERY = """
SELECT 'NaN'::double AS a, ['Infinity'::float, -'Infinity'::double] AS b, now() AS c, interval '1 month' AS d,
  arrow_cast(1, 'Duration(Second)') AS e,
  named_struct('t', current_time(), 'x', arrow_cast('x', 'Binary')) AS f,
  map(['k'], [arrow_cast('NaN', 'Float32')]) AS g, arrow_cast(1.5, 'Decimal128(5, 2)') AS h, null AS i
"""


def read(text: str) -> Any:
    """Read JSON as the standard has it: without NaN and Infinity, and with each name once."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(found)) == len(found)
        return dict(found)

    return json.loads(text, parse_constant=refuse, object_pairs_hook=pairs)


@pytest.mark.parametrize("output", ["json", "document", "csv", "table"])
def test_every_value_of_a_query_can_be_printed(offsetlake: Any, root: str, output: str) -> None:
    ran = offsetlake("sql", QUERY, "--output", output, "--table-root", root)
    *footers, said = ran.err.splitlines()
    assert (ran.code, len(footers)) == (0, output == "table")
    assert said.startswith("offsetlake: the job's last heartbeat was ")
    if output in ("json", "document"):
        found = read(ran.out)
        (row,) = found["rows"] if output == "document" else found
        assert (row["a"], row["b"], row["d"], row["e"]) == ("NaN", ["Infinity", "-Infinity"], "P1M", "PT1S")
        assert (row["f"]["x"], row["g"], row["h"], row["i"]) == ("78", [["k", "NaN"]], "1.50", None)
        assert row["c"].endswith("Z")
    else:
        assert all(text in ran.out for text in ("NaN", "P1M", "PT1S", "1.50"))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "SELECT arrow_cast('1 month', 'Interval(YearMonth)') AS x",
            "found month_interval. Cast it",
        ),
        ('SELECT a."group", b."group" FROM offsets a, offsets b', "found 'group' more than once"),
        (
            "SELECT named_struct('a', 1, 'a', 2) AS x",
            "printing struct column 'x': expected names",
        ),
    ],
)
@pytest.mark.parametrize("output", ["json", "document"])
def test_what_json_cannot_hold_is_refused_before_anything_is_printed(
    offsetlake: Any, root: str, query: str, message: str, output: str
) -> None:
    code, out, err = offsetlake("sql", query, "--output", output, "--table-root", root)
    assert (code, out) == (2, "")
    assert message in err
