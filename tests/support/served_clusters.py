"""Several clusters for tests: the tables of each, and settings that name them."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from new_tables import new_tables
from table_batches import Batch, append, group, offset

from streaming.common.times import now_ms
from streaming.model.progress import PartitionProgress, Progress, Reached
from streaming.tables.tables import Tables


def fill(tables: Tables, *, committed: int = 7, live: Batch | None = None) -> Progress:
    """Let the group `g` commit an offset of the topic `t`, as its job has read just now."""
    now = now_ms()
    batch: Batch = {
        ("g", "t", 0): offset(source_partition=0, committed_offset=committed),
        "g": group(source_partition=0),
    }
    partition = PartitionProgress(loaded=True, whole=Reached(as_of=now), stable=Reached(as_of=now))
    return append(tables, batch, live=live, now=now, partitions={0: partition})


def filled(root: Path, *, committed: int) -> Tables:
    """Create tables, and let the group `g` commit an offset."""
    tables = new_tables(root)
    fill(tables, committed=committed)
    return tables


def settings_naming(
    roots: Mapping[str, Path], file: Path, *lines: str, kafka: Iterable[tuple[str, int]] = ()
) -> Path:
    """Write a settings file with clusters, by name the root of each, and their Kafka listeners at ports."""
    clusters = [f'[[serve.clusters]]\nname = "{name}"\ntable_root = "{root}"' for name, root in roots.items()]
    listeners = [f'[[serve.kafka]]\nlisten = "127.0.0.1:{port}"\ncluster = "{name}"' for name, port in kafka]
    file.write_text("\n".join([*clusters, *listeners, *lines, ""]))
    return file
