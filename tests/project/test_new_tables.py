"""Tables that tests copy are those that the job would create."""

from pathlib import Path

from new_tables import new_tables

from streaming.common.times import now_ms
from streaming.tables.tables import SCHEMAS, Tables


def test_tables_that_are_copied_are_as_if_they_were_created(tmp_path: Path) -> None:
    new_tables(tmp_path / "before")  # what others are copied from is older
    began = now_ms()
    copied, other, created = (Tables(str(tmp_path / name)) for name in ("copied", "other", "created"))
    new_tables(Path(copied.root))
    new_tables(Path(other.root))
    created.create()
    assert copied.existing() == list(SCHEMAS)
    for name in SCHEMAS:
        mine, another, model = (tables.delta(name) for tables in (copied, other, created))
        assert mine.schema() == model.schema()
        assert mine.version() == model.version() == 0
        assert mine.metadata().configuration == model.metadata().configuration
        assert mine.metadata().partition_columns == model.metadata().partition_columns
        assert len({mine.metadata().id, another.metadata().id, model.metadata().id}) == 3
        assert began <= mine.metadata().created_time <= now_ms()
        assert mine.history()[0]["timestamp"] == mine.metadata().created_time
