"""The next job takes up an interrupted rebuild; a job that another one has replaced does not delete it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from new_tables import new_tables

from streaming.brokers.facts import LogRange
from streaming.job.rebuild import _delete_aside, _taken_up, delete_leftovers, rebuild
from streaming.job.topic.reasons import TopicNow
from streaming.model.errors import MisuseError
from streaming.model.progress import PartitionEnds, PartitionProgress, Progress
from streaming.model.schemas import CHANGES
from streaming.settings.reading import read_settings
from streaming.state.stored import STATE_FORMAT
from streaming.tables.fences import WRITER, OtherWriterError
from streaming.tables.storage_errors import TablesUnreachableError
from streaming.tables.tables import Tables

DAY = 86_400_000
READ = PartitionProgress(position=5).with_ends(PartitionEnds(5, 5), DAY)
FOUND = Progress(query_id="q", generation=1, batch_id=0, partitions={0: READ}, state_format=STATE_FORMAT)
TOPIC = TopicNow(
    cluster_id=None,
    partition_count=1,
    topic_id=None,
    ranges={0: LogRange(0, 5)},
    delete_retention_ms=DAY,
    now=DAY,
)


@pytest.fixture
def live(tmp_path: Path) -> Tables:
    """Tables beside which the job `one` has begun a rebuild."""
    live = new_tables(tmp_path / "tables").with_name(WRITER, "one")
    live.become_writer()
    live.aside().create()
    live.aside().append_changes(CHANGES.empty_table(), FOUND, is_batch=True)
    return live


def replaced(live: Tables) -> Tables:
    """Return the tables of a job that has replaced the first one, and not yet written anything."""
    other = Tables(live.root).with_name(WRITER, "two")
    other.become_writer(after="one")
    return other


class Reader:
    """All that is needed of one, with checkpoints of a query that remember their deletion."""

    def __init__(self, tables: Tables, query_id: str = "q", *, has_batches: bool = True) -> None:
        self.tables = tables
        self.query_id = query_id
        self.has_batches = has_batches
        self.deleted: list[int] = []
        self.settings = read_settings(options={"tables.root": tables.root})

    def checkpoint(self, generation: int) -> Any:
        def delete() -> None:
            self.deleted.append(generation)

        return SimpleNamespace(
            path=str(generation),
            delete=delete,
            query_id=lambda: None if generation in self.deleted else self.query_id,
            has_batches=lambda: self.has_batches,
        )


def take_up(live: Tables, reader: Any) -> Progress:
    return _taken_up(reader, live, 1, TOPIC)


def test_the_next_job_takes_it_up(live: Tables) -> None:
    reader = Reader(replaced(live))
    assert take_up(reader.tables, reader) == FOUND
    assert reader.deleted == []


def test_a_job_that_was_replaced_deletes_nothing(live: Tables) -> None:
    replaced(live).aside().create()
    reader: Any = Reader(live, query_id="another")
    with pytest.raises(OtherWriterError):
        take_up(live, reader)
    with pytest.raises(OtherWriterError):
        delete_leftovers(reader, FOUND)
    assert reader.deleted == []
    assert Tables(live.aside().root).progress() == FOUND


def test_storage_that_fails_in_passing_deletes_nothing(live: Tables) -> None:
    root, hidden = Path(live.root), Path(live.root).with_name("hidden")
    root.rename(hidden)
    root.touch()  # reads fail, and not since there is nothing
    with pytest.raises(TablesUnreachableError):
        take_up(live, Reader(live))
    root.unlink()
    hidden.rename(root)
    assert take_up(live, Reader(live)) == FOUND


def test_tables_that_are_partly_deleted_are_begun_again(live: Tables) -> None:
    (Path(live.aside().root) / "changes/_delta_log/00000000000000000000.json").unlink()
    reader = Reader(live)
    assert take_up(live, reader) == Progress(generation=1)
    assert reader.deleted == [1]
    assert live.aside().existing() == []


def test_a_checkpoint_of_other_tables_is_not_deleted(live: Tables) -> None:
    reader: Any = Reader(live, query_id="of others")
    for act in (lambda: take_up(live, reader), lambda: delete_leftovers(reader, FOUND)):
        with pytest.raises(MisuseError, match=r"expected no checkpoint of other tables.*\(--checkpoint\)"):
            act()
    assert reader.deleted == []
    assert live.aside().progress() == FOUND


def test_a_checkpoint_that_another_job_has_just_begun_is_not_deleted(live: Tables) -> None:
    """Its first batch is not complete. The own rebuild has had a batch, or has not begun."""
    reader: Any = Reader(live, query_id="of others", has_batches=False)
    for begin in (lambda: None, lambda: live.aside().delete()):
        begin()
        with pytest.raises(MisuseError, match=r"expected no checkpoint of other tables"):
            take_up(live, reader)
    live.append_changes(CHANGES.empty_table(), replace(FOUND, generation=0), is_batch=True)
    with pytest.raises(MisuseError, match=r"expected no checkpoint of other tables"):
        rebuild(reader, "it was requested")
    assert reader.deleted == []


def test_the_checkpoint_of_an_own_first_batch_that_was_interrupted_is_not_refused(live: Tables) -> None:
    reader: Any = Reader(live, query_id="unknown", has_batches=False)
    live.aside().delete()
    live.aside().create()
    assert take_up(live, reader) == Progress(generation=1)
    assert reader.deleted == [1]
    delete_leftovers(reader, Progress(generation=1))  # of tables without a batch
    live.append_changes(CHANGES.empty_table(), FOUND, is_batch=True)
    delete_leftovers(reader, FOUND)
    assert reader.deleted == [1, 0, 0]


def test_after_a_kill_at_the_end_of_a_rebuild_the_old_checkpoint_is_deleted(live: Tables) -> None:
    said = live.progress()
    for generation, query_id in enumerate(("old", "q")):
        progress = replace(FOUND, generation=generation, query_id=query_id)
        live.append_changes(CHANGES.empty_table(), progress, is_batch=True, after=[said])
        said = progress
    reader: Any = Reader(live, query_id="old")
    delete_leftovers(reader, said)
    assert reader.deleted == [0]
    assert live.aside().existing() == []


def test_an_attempt_that_was_killed_while_it_was_discarded_is_discarded(live: Tables) -> None:
    """The tables know whose the checkpoint is, so they go last."""
    reader: Any = Reader(live)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tables, "delete", lambda _: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception, match="killed"):
            _delete_aside(reader, 1)
    assert reader.deleted == [1]
    assert take_up(live, reader) == Progress(generation=1)
    assert live.aside().existing() == []
