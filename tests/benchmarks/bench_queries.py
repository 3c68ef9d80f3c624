"""How long questions to the tables take: `python -m tests.benchmarks --only queries`.

In process and in a cold process, on 1 M offsets in 20 k groups of which 100 k changes are not folded yet.
Processor time stands beside the wall: on a machine with other work to do it says more.

Last seen, on two cores with five times as much other work to do, with Python 3.11 and deltalake 1.6:

    question                                   wall s    cpu s   goal
    one group                                   0.042    0.040   0.05
    one group, described                        0.023    0.010
    groups by state                             0.061    0.040   0.30
    all offsets                                 3.587    1.510
    one group, before the unfolded batches      0.054    0.050
    all offsets, before the unfolded batches    1.466    0.770
    sql: groups by state                        0.090    0.060
    one group, cold process                     1.796    0.570   1.50
    fold                                        7.200    2.050
    one group, folded                           0.017    0.010
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.common.partitions import offsets_partitions
from streaming.common.times import from_ms
from streaming.model.progress import PartitionEnds, Progress
from streaming.model.schemas import CHANGES_IN_BATCH, GROUP, OFFSET
from streaming.queries.offsets import OffsetQueries
from streaming.queries.sql import run_sql
from streaming.settings.model import OFFSETS_TOPIC
from streaming.tables.rows import change_rows
from streaming.tables.tables import Tables

PARTITIONS: Final = 50
BATCHES: Final = 6  # that are not folded yet: those of 30 s at a trigger of 5 s
STARTED: Final = 1_700_000_000_000
TARGETS: Final = {"one group": 0.05, "groups by state": 0.3, "one group, cold process": 1.5}


def measure_queries(*, offsets: int, groups: int, unfolded: int) -> None:
    """Fill tables, ask, and print seconds per question."""
    with tempfile.TemporaryDirectory(prefix="offsetlake-bench-") as root:
        tables = Tables(root)
        fill(tables, offsets=offsets, groups=groups, unfolded=unfolded)
        queries, name = OffsetQueries(tables), f"consumer-group-{groups // 3:06}"
        print(f"\n{offsets:,} offsets in {groups:,} groups, {unfolded:,} changes not folded")
        print(f"{'question':40}{'wall s':>9}{'cpu s':>9}{'goal':>7}")
        ask("one group", lambda: queries.fetch_offsets({name: None}))
        ask("one group, described", lambda: queries.describe_groups([name]))
        ask("groups by state", lambda: queries.list_groups(["Stable", "Empty"]))
        ask("all offsets", lambda: queries.list_offsets())
        ask(
            "one group, before the unfolded batches",
            lambda: queries.list_offsets([name], as_of=from_ms(STARTED)),
        )
        ask("all offsets, before the unfolded batches", lambda: queries.list_offsets(as_of=from_ms(STARTED)))
        ask(
            "sql: groups by state",
            lambda: run_sql(tables, "SELECT state, count(*) FROM live_groups GROUP BY 1"),
        )
        command = [
            sys.executable,
            "-m",
            "streaming.cli",
            "offsets",
            "--group",
            name,
            "--table-root",
            root,
        ]
        ask("one group, cold process", lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
        ask("fold", tables.fold, times=1)
        ask("one group, folded", lambda: queries.fetch_offsets({name: None}))


def ask(question: str, answer: Callable[[], object], *, times: int = 7) -> None:
    """Print the medians of a question asked several times."""
    walls, cpus = [], []
    for _ in range(times):
        wall, cpu = time.perf_counter(), cpu_seconds()
        answer()
        walls.append(time.perf_counter() - wall)
        cpus.append(cpu_seconds() - cpu)
    goal = f"{TARGETS[question]:7.2f}" if question in TARGETS else ""
    print(f"{question:40}{statistics.median(walls):9.3f}{statistics.median(cpus):9.3f}{goal}")


def cpu_seconds() -> float:
    """The processor time of this process and of those that it ran."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def fill(tables: Tables, *, offsets: int, groups: int, unfolded: int) -> None:
    """Write all offsets and groups in one batch, fold it, and write changes of some offsets in later ones."""
    tables.create()
    names = pa.array([f"consumer-group-{number:06}" for number in range(groups)])
    keys = np.random.default_rng(1).permutation(offsets)
    first = pa.concat_tables([offset_changes(keys, names), group_changes(names)])
    append(tables, first, STARTED)
    tables.fold()
    changed = np.random.default_rng(2).choice(offsets, unfolded, replace=False)
    for number, own in enumerate(np.array_split(changed, BATCHES), start=1):
        append(tables, offset_changes(own, names, has_before=True), STARTED + 5_000 * number)


def append(tables: Tables, changes: pa.Table, now: int) -> None:
    """Append one batch as the job does."""
    sequence = tables.progress().sequence + 1
    positions = dict.fromkeys(range(PARTITIONS), sequence)
    ends = {number: PartitionEnds(sequence, sequence) for number in positions}
    progress = Progress(topic=OFFSETS_TOPIC, batch_id=sequence, sequence=sequence, batch_time=now)
    progress = replace(progress, heartbeat=now).with_positions(positions).with_ends(ends, now)
    rows, _ = change_rows(changes, sequence=sequence, batch_time=now)
    tables.append_changes(rows, progress, is_batch=True)


def offset_changes(
    keys: np.ndarray, names: pa.Array, *, has_before: bool = False, ahead: int = 0
) -> pa.Table:
    """Commits of n keys, of offsets and at times that are `ahead` of the first ones; key k is of group k
    modulo the number of groups."""
    count, number = len(names), len(keys)
    group, within = keys % count, keys // count
    topics = pa.array([f"orders-events-{topic:04}" for topic in range(50 + int(within.max()) // 10 + 1)])
    values = {
        "committed_offset": pa.array(keys + ahead),
        "leader_epoch": pa.repeat(pa.scalar(7, pa.int32()), number),
        "metadata": pa.repeat("", number),
        "commit_timestamp": pa.array(STARTED + keys + ahead),
        "topic_id": pa.repeat("dG9waWMgaWQAAAAAAAAAAA", number),
        "source_offset": pa.array(keys),
        "source_timestamp": pa.array(STARTED + keys),
    }
    value = struct_of(values, number)
    columns = {
        "kind": pa.repeat("offset", number),
        "op": pa.repeat("set", number),
        "group": names.take(pa.array(group)),
        "topic": topics.take(pa.array(group % 50 + within // 10)),
        "partition": pa.array(within % 10, pa.int32()),
        "after": value,
        **({"before": value} if has_before else {}),
        "source_offset": pa.array(keys),
        "source_timestamp": pa.array(STARTED + keys),
    }
    return changes_of(columns, number)


def group_changes(names: pa.Array) -> pa.Table:
    """One group in four Empty, the others Stable with a member."""
    member = {"member_id": "m-1", "client_id": "worker", "client_host": "/10.0.0.1"}
    empty = {"type": "classic", "protocol_type": "consumer", "state": "Empty", "members": []}
    stable = {**empty, "state": "Stable", "members": [member], "subscribed_topics": ["orders"]}
    after = pa.array([stable if number % 4 else empty for number in range(len(names))], GROUP)
    kinds, ops = pa.repeat("group", len(names)), pa.repeat("set", len(names))
    return changes_of({"kind": kinds, "op": ops, "group": names, "group_after": after}, len(names))


def struct_of(values: dict[str, pa.Array], number: int) -> pa.Array:
    """n offsets as a change has them; what is not given is null."""
    columns = [values.get(field.name, pa.nulls(number, field.type)) for field in OFFSET]
    return pa.StructArray.from_arrays(columns, fields=list(OFFSET))


def changes_of(columns: dict[str, pa.Array], number: int) -> pa.Table:
    """n rows as a batch has them, in the offsets partitions of their groups."""
    numbers = offsets_partitions(pa.chunked_array([columns["group"]]), PARTITIONS)
    columns = columns | {"source_partition": pa.array(numbers, pa.int32())}
    filled = [columns.get(field.name, pa.nulls(number, field.type)) for field in CHANGES_IN_BATCH]
    return pa.table(filled, schema=CHANGES_IN_BATCH)
