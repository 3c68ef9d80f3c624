"""Joining files of `log_ends`: beside another maintainer, and with files that are lost."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake.exceptions import CommitFailedError
from log_end_rows import Sample, of_topic, rows_of
from maintenance_rounds import NOW, TODAY, round_at

from streaming.common.times import MINUTE_MS
from streaming.maintenance import samples
from streaming.maintenance.maintenance import MaintenanceError
from streaming.maintenance.trimming import files_of
from streaming.tables.tables import Tables

ENDS = list(range(10))


@pytest.fixture
def sampled(tables: Tables) -> Tables:
    """Tables with a sample a minute, each in a file."""
    for number, end in enumerate(ENDS):
        tables.append_log_ends(rows_of([Sample(NOW + (number - 20) * MINUTE_MS, "t", 0, end)]))
    return tables


def ends(tables: Tables) -> list[int]:
    return sorted(tables.delta("log_ends").to_pyarrow_table()["log_end"].to_pylist())


def test_files_that_another_maintainer_has_joined_meanwhile_are_not_joined_again(
    sampled: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if this process had been suspended for longer than the lease, while it wrote."""
    files, write_files = files_of(sampled.delta("log_ends")), samples.write_files

    def write_late(*args: Any, **named: Any) -> Any:
        monkeypatch.setattr(samples, "write_files", write_files)
        samples.join_samples(sampled, TODAY, files)
        return write_files(*args, **named)

    monkeypatch.setattr(samples, "write_files", write_late)
    with pytest.raises(CommitFailedError, match="expected 10 files in the table, found 0"):
        samples.join_samples(sampled, TODAY, files)
    assert ends(sampled) == ENDS
    with pytest.raises(CommitFailedError, match="found 0"):  # of before the other began
        samples.join_samples(sampled, TODAY, files)
    assert ends(sampled) == ENDS


def test_what_the_job_appends_meanwhile_does_not_keep_files_from_being_joined(
    sampled: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files = samples.write_files

    def write_slowly(*args: Any, **named: Any) -> Any:
        sampled.append_log_ends(rows_of([Sample(NOW, "t", 0, 99)]))
        return write_files(*args, **named)

    monkeypatch.setattr(samples, "write_files", write_slowly)
    samples.join_samples(sampled, TODAY, files_of(sampled.delta("log_ends")))
    assert (ends(sampled), len(files_of(sampled.delta("log_ends")))) == ([*ENDS, 99], 2)


def test_a_topic_of_many_partitions_is_divided_by_partition(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that what is held at a time has a bound."""
    monkeypatch.setattr(samples, "SMALL_ROWS", 12)
    keys = [("a", 0), *(("b\0", number) for number in range(9)), ("c", 0), ("c", 2_147_483_647)]
    for minute in range(5):
        at = NOW + (minute - 20) * MINUTE_MS
        about = [of_topic(at, topic, "id-1") for topic in ("a", "b\0", "c")]
        rounds = [*about, *(Sample(at, topic, number, minute) for topic, number in reversed(keys))]
        tables.append_log_ends(rows_of(rounds))
    before = rows(tables)
    samples.join_samples(tables, TODAY, files_of(tables.delta("log_ends")))
    assert rows(tables) == before
    files = [Path(tables.root, "log_ends", file["path"]) for file in files_of(tables.delta("log_ends"))]
    held = [
        [(row["topic"], row["partition"]) for row in pq.ParquetFile(file).read().to_pylist()]
        for file in files
    ]
    of_partitions = sorted(group for group in held if group[0][1] is not None)
    assert of_partitions == [
        [key for key in keys[first : first + 3] for _ in range(5)] for first in range(0, len(keys), 3)
    ]
    assert len(held) == len(of_partitions) + 1


def test_of_each_minute_the_last_sample_of_a_partition_is_kept(tables: Tables) -> None:
    """And the last error, and that of each topic of the name; what is said of topics stays."""
    begin = NOW - 20 * MINUTE_MS
    kept = [
        Sample(begin + 50_000, "t", 0, 5),
        Sample(begin + 59_999, "t", 0, None, error="no answer"),
        Sample(begin + 60_000, "t", 0, 7),  # of the next minute
        Sample(begin + 40_000, "t", 1, 4),
        Sample(begin + 20_000, "u\0", 0, 2, None),
        Sample(begin + 50_000, "u\0", 0, 1),
        *(of_topic(begin + at * 10_000, "t", "id-1") for at in range(3)),
    ]
    thinned = [Sample(begin + at * 10_000, "t", number, at) for at in range(4) for number in (0, 1)]
    for one in [*thinned, *kept]:
        tables.append_log_ends(rows_of([one]))
    expected = sorted(map(repr, rows_of(kept).to_pylist()))
    for _ in range(2):
        samples.join_samples(tables, TODAY, files_of(tables.delta("log_ends")))
        found = tables.delta("log_ends").to_pyarrow_table().select(rows_of(kept).schema.names)
        assert sorted(map(repr, found.to_pylist())) == expected


def rows(tables: Tables) -> list[str]:
    return sorted(map(repr, tables.delta("log_ends").to_pyarrow_table().to_pylist()))


def test_samples_that_cannot_be_joined_do_not_keep_maintenance_from_the_rest(
    sampled: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(samples, "_ranges", lambda _: iter([]))
        with pytest.raises(MaintenanceError, match=r"log_ends: joining samples .* expected 10 rows, found 0"):
            round_at(sampled, NOW)
    assert ends(sampled) == ENDS
    Path(sampled.root, "log_ends", files_of(sampled.delta("log_ends"))[0]["path"]).unlink()
    with pytest.raises(MaintenanceError, match="log_ends: reading log ends: expected the file day="):
        round_at(sampled, NOW)
