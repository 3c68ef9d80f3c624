"""Upgrades: files of formats that releases wrote are gone on from, those of other formats refused with what
to do."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from table_batches import QUERY, Batch, append, as_read, completed, offset, replay
from version_files import (
    AUDIT,
    BAD_KEY,
    BAD_VALUE,
    BILLING,
    FIRST,
    SECOND,
    THIRD,
    bad_record,
    write_state,
    write_tables,
)

from streaming.brokers.facts import TopicFacts
from streaming.cli.main import cli
from streaming.job.start_checks import bound, check_checkpoint
from streaming.model.errors import MisuseError, OtherFormatError
from streaming.model.progress import Progress
from streaming.model.schemas import QUARANTINE_IN_BATCH, TABLES_FORMAT
from streaming.packing import codec
from streaming.settings.reading import read_settings
from streaming.spark.checkpoint import Checkpoint
from streaming.state.layers import LayerChange
from streaming.state.stored import STATE_FORMAT, Values
from streaming.tables.rows import quarantine_rows
from streaming.tables.tables import Tables

DATA = Path(__file__).parents[1] / "data"
RELEASED = sorted(path.name for path in DATA.glob("version-*"))
PRESENT = "present"
NAMES = ("changes", "offsets", "groups", "quarantine", "alerts", "log_ends")


@pytest.fixture(params=[*RELEASED, PRESENT])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the files of a release, or those that this code writes."""
    target = tmp_path / "kept"
    if request.param == PRESENT:
        write_tables(target / "tables")
        write_state(target / "state")
    else:
        shutil.copytree(DATA / request.param, target)
    return target


def as_of_third_batch() -> Batch:
    return completed(replay([FIRST, SECOND, THIRD]))


def test_tables_are_read_appended_to_and_folded_after_an_upgrade(kept: Path) -> None:
    tables = Tables(str(kept / "tables"))
    for _ in ("before", "after"):
        assert as_read(tables) == as_of_third_batch()
        assert tables.progress().partitions[3].position == 12
        [bad] = tables.read_quarantine().to_pylist()
        assert (bad["key"], bad["value"], bad["at_byte"]) == (BAD_KEY, BAD_VALUE, 2)
        tables.create()
    versions = [tables.delta(name).version() for name in NAMES]
    tables.create()
    assert [tables.delta(name).version() for name in NAMES] == versions, "an upgrade is done once"
    fourth: Batch = {AUDIT: None, BILLING: offset(committed_offset=8)}
    append(tables, fourth, live=as_of_third_batch())
    record = bad_record() | {"key_length": 700, "value_length": 800, "source_offset": 19}
    rows = pa.Table.from_pylist([record], QUARANTINE_IN_BATCH)
    tables.append_quarantine(quarantine_rows(rows, sequence=4, batch_time=4_000)[0], tables.progress())
    expected = completed(replay([FIRST, SECOND, THIRD, fourth]))
    assert as_read(tables) == expected
    tables.fold()
    assert as_read(tables) == expected
    assert [row["value_length"] for row in tables.read_quarantine().to_pylist()] == [None, 800]


def test_state_is_read_and_gone_on_from(kept: Path) -> None:
    base, recent = [(kept / "state" / name).read_bytes() for name in ("entries", "entries_recent")]
    values = Values.read([base], recent)
    layers = values.layers()
    committed = {
        (row["group"], row["topic"], row["partition"]): row["committed_offset"]
        for row in layers.table.to_pylist()
    }
    assert (committed[BILLING], committed[AUDIT], len(committed)) == (3, 2, 202)
    unchanged = layers.after([LayerChange(np.empty(0, np.int64), layers.table.slice(0, 0))])
    assert values.updated(unchanged).layers().table.equals(layers.table)


# --- other formats -----------------------------------------------------------------------------------------


def of_format(tables: Tables, name: str, number: int | str) -> None:
    other = {"offsetlake.format": str(number)}
    DeltaTable(f"{tables.root}/{name}").alter.set_table_properties(other, raise_if_not_exists=False)


@pytest.mark.parametrize("name", NAMES)
def test_the_job_refuses_a_table_of_another_format(tmp_path: Path, name: str) -> None:
    tables = Tables(str(tmp_path))
    tables.create()
    for number, advice in ((TABLES_FORMAT + 1, "A newer offsetlake"), (TABLES_FORMAT - 1, "new table root")):
        of_format(tables, name, number)
        found = f"{name}: expected format {TABLES_FORMAT}, found format {number}.* {advice}"
        with pytest.raises(OtherFormatError, match=found):
            tables.create()


def test_a_format_that_is_no_number_is_a_clear_error(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    tables.create()
    of_format(tables, "changes", "four")
    with pytest.raises(MisuseError, match=r"changes: expected a number as its property .*, found 'four'"):
        tables.create()


@pytest.mark.parametrize(
    ("table", "command"),
    [
        ("changes", ["status"]),
        ("changes", ["offsets"]),
        ("offsets", ["offsets", "--group", "billing"]),
        ("groups", ["groups"]),
        ("quarantine", ["sql", "SELECT 1"]),
        ("changes", ["maintain"]),
        ("alerts", ["alerts"]),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_commands_refuse_a_table_of_another_format(tmp_path: Path, table: str, command: list[str]) -> None:
    tables = Tables(str(tmp_path))
    write_tables(tmp_path)
    of_format(tables, table, TABLES_FORMAT + 1)
    result = CliRunner().invoke(cli, [*command, "--table-root", str(tmp_path)])
    assert isinstance(result.exception, OtherFormatError)
    assert result.exception.exit_code == 2
    assert "use that release or a newer one" in str(result.exception)


def test_state_value_of_another_format_is_refused(tmp_path: Path) -> None:
    write_state(tmp_path / "state")
    base, recent = [(tmp_path / "state" / name).read_bytes() for name in ("entries", "entries_recent")]
    other = codec.from_bytes(recent)
    named = {**other.schema.metadata, b"offsetlake.format": b"%d" % (STATE_FORMAT + 1)}
    with pytest.raises(OtherFormatError, match="A newer offsetlake wrote it"):
        Values.read([base], codec.to_bytes(other.replace_schema_metadata(named))).layers()


class CheckpointOf(Checkpoint):
    """The checkpoint of a query, as far as the checks at start look at it."""

    def __init__(self, query_id: str | None) -> None:
        self.path = "file:/checkpoint/0"
        self._query_id = query_id

    def query_id(self) -> str | None:
        return self._query_id

    def has_batches(self) -> bool:
        return self._query_id is not None


@pytest.mark.parametrize(
    ("found", "advice"),
    [
        (STATE_FORMAT - 1, "`offsetlake rebuild` creates a new"),
        (STATE_FORMAT + 1, "newer offsetlake wrote it"),
    ],
)
def test_a_checkpoint_of_another_layout_is_refused_at_start(found: int, advice: str) -> None:
    progress = Progress(query_id=QUERY, state_format=found)
    with pytest.raises(
        OtherFormatError, match=f"^state in .*expected format {STATE_FORMAT}, found .*{advice}"
    ):
        check_checkpoint(progress, CheckpointOf(QUERY), read_settings())


def test_what_the_job_begins_has_the_present_state_format() -> None:
    begun = bound(Progress(state_format=0), read_settings(), TopicFacts("cluster", 1))
    assert begun.state_format == STATE_FORMAT
    check_checkpoint(replace(begun, query_id=QUERY), CheckpointOf(QUERY), read_settings())
