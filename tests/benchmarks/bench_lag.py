"""How long questions about lag and health take: `python -m tests.benchmarks --only lag`.

On 1 M offsets in 20 k groups and two hours of samples, joined as maintenance does it every ten minutes, or
one file a minute; with one in a hundred groups far behind, and with all of them. Then evaluations of all
rules about lag. The figures are in docs/performance.md.
"""

import tempfile
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from streaming.alerts.evaluation import Evaluator
from streaming.alerts.table import AlertTable
from streaming.common.times import MINUTE_MS, day_of, from_ms
from streaming.common.timestamps import to_timestamps
from streaming.maintenance.samples import join_samples
from streaming.model.progress import PartitionEnds, Progress
from streaming.model.schemas import CHANGES, LOG_ENDS
from streaming.queries.lag import LagQueries
from streaming.settings.model import OFFSETS_TOPIC, AlertSettings
from streaming.settings.reading import read_settings
from streaming.tables.rows import change_rows
from streaming.tables.tables import Tables
from tests.benchmarks.bench_queries import PARTITIONS, ask, changes_of, struct_of

NOW: Final = 1_700_000_000_000 // MINUTE_MS * MINUTE_MS
START: Final = NOW - 130 * MINUTE_MS
STILL: Final = NOW - 3 * MINUTE_MS  # since then nothing is produced
SAMPLES: Final = 121  # rounds, one a minute
SMALL: Final = 9  # of these, the last ones that maintenance has not joined yet
TOPICS: Final = 50
RULES: Final = ("group_stopped", "group_stalled", "offset_beyond_log_end", "offset_of_recreated_topic")


def measure_lag(*, offsets: int, groups: int) -> None:
    """Fill tables, ask, and print seconds per question."""
    for is_all_behind in (False, True):
        for is_maintained in (True, False):
            with tempfile.TemporaryDirectory(prefix="offsetlake-bench-") as root:
                tables = Tables(root)
                fill(tables, offsets, groups, is_all_behind=is_all_behind)
                sample(tables, is_maintained=is_maintained)
                behind = "all" if is_all_behind else "1 % of the groups"
                files = len(tables.delta("log_ends").file_uris())
                print(
                    f"\n{offsets:,} offsets in {groups:,} groups, {behind} behind, {files} files of samples"
                )
                print(f"{'question':40}{'wall s':>9}{'cpu s':>9}{'goal':>7}")
                _ask_all(LagQueries(tables))
                if not is_all_behind and is_maintained:
                    _evaluate(tables)


def _ask_all(queries: LagQueries) -> None:
    now = from_ms(NOW)
    ask(
        "one group with lag, the first question",
        lambda: queries.list_offsets(["group-7"], as_of=now),
        times=1,
    )
    ask("one group with lag, again", lambda: queries.list_offsets(["group-7"], as_of=now))
    ask("health of one group", lambda: queries.health(["group-0"], as_of=now))
    ask("lag of all groups", lambda: queries.list_lag(as_of=now), times=3)
    ask("health of all groups", lambda: queries.health(as_of=now), times=3)


def _evaluate(tables: Tables) -> None:
    """Evaluate all rules about lag: for the first time, with nothing new, and with a new round of samples."""
    times = [NOW]
    evaluator = Evaluator(
        tables,
        AlertTable(tables),
        _all_on(),
        receivers=[],
        ask_log_ranges=None,
        clock=lambda: times[0],
    )

    def evaluate() -> None:
        times[0] += 15_000
        evaluator.evaluate()

    ask("all rules, the first time", evaluate, times=1)
    ask("all rules, nothing new", evaluate, times=3)
    append_ends(tables, NOW + MINUTE_MS)
    ask("all rules, a round of samples is new", evaluate, times=1)


def _all_on() -> AlertSettings:
    on = {f"alerts.{rule}": "on" for rule in RULES} | {"alerts.lag_seconds": "30m"}
    return read_settings(options=on).alerts


def fill(tables: Tables, offsets: int, groups: int, *, is_all_behind: bool) -> None:
    """Commit every offset once, and a fifth of them ten times in the last 20 minutes; fold all, after a
    heartbeat."""
    tables.create()
    keys = np.arange(offsets)
    is_behind = np.full(offsets, is_all_behind) | (keys % groups % 100 == 0)
    _commit(tables, keys, groups, np.where(is_behind, end_at(START), end_at(NOW)), START)
    often = keys[: offsets // 5] if is_all_behind else keys[: offsets // 5][~is_behind[: offsets // 5]]
    for minute in range(20, 0, -2):
        at = NOW - minute * MINUTE_MS
        _commit(tables, often, groups, np.full(len(often), end_at(at) - 60 * is_all_behind), at)
    progress = replace(tables.progress(), heartbeat=NOW)
    ends = {number: PartitionEnds(own.position, own.position) for number, own in progress.partitions.items()}
    tables.append_changes(CHANGES.empty_table(), progress.with_ends(ends, NOW), is_batch=False)
    tables.fold()


def _commit(tables: Tables, keys: Any, groups: int, committed: Any, at: int) -> None:
    """Append one batch as the job does: key k is of group k modulo the number of groups."""
    count, topic = len(keys), keys // groups % TOPICS
    times = pa.array(np.full(count, at))
    value = {"committed_offset": pa.array(committed), "metadata": pa.repeat("", count)}
    rows = {
        "kind": pa.repeat("offset", count),
        "op": pa.repeat("set", count),
        "group": pa.array([f"group-{number}" for number in (keys % groups).tolist()]),
        "topic": pa.array([f"topic-{number}" for number in topic.tolist()]),
        "partition": pa.array(keys // groups // TOPICS, pa.int32()),
        "after": struct_of(value | {"commit_timestamp": times, "source_timestamp": times}, count),
        "source_offset": pa.array(keys),
        "source_timestamp": times,
    }
    sequence = tables.progress().sequence + 1
    positions = dict.fromkeys(range(PARTITIONS), sequence)
    ends = {number: PartitionEnds(sequence, sequence) for number in positions}
    progress = Progress(topic=OFFSETS_TOPIC, batch_id=sequence, sequence=sequence, batch_time=at)
    progress = replace(progress, heartbeat=at).with_positions(positions).with_ends(ends, at)
    made, _ = change_rows(changes_of(rows, count), sequence=sequence, batch_time=at)
    tables.append_changes(made, progress, is_batch=True)


def sample(tables: Tables, *, is_maintained: bool) -> None:
    """Append the rounds of two hours; with maintenance all but the last are one file."""
    for minute in range(SAMPLES - 1, -1, -1):
        append_ends(tables, NOW - minute * MINUTE_MS)
        if is_maintained and minute == SMALL:
            days: dict[Any, list[dict[str, Any]]] = {}
            for file in pa.table(tables.delta("log_ends").get_add_actions(flatten=True)).to_pylist():
                days.setdefault(file["partition.day"], []).append(file)
            for day, files in days.items():
                join_samples(tables, day, files)


def append_ends(tables: Tables, at: int) -> None:
    """Append one round of samples."""
    columns = {
        "sampled_at": to_timestamps(pa.array([at] * TOPICS)),
        "topic": pa.array([f"topic-{number}" for number in range(TOPICS)]),
        "topic_id": pa.repeat("dG9waWMgaWQAAAAAAAAAAA", TOPICS),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), TOPICS),
        "log_start": pa.repeat(0, TOPICS),
        "log_end": pa.repeat(end_at(at), TOPICS),
        "day": pa.repeat(pa.scalar(day_of(at)), TOPICS),
    }
    filled = [columns.get(field.name, pa.nulls(TOPICS, field.type)) for field in LOG_ENDS]
    tables.append_log_ends(pa.table(filled, LOG_ENDS.names).cast(LOG_ENDS))


def end_at(at: int) -> int:
    """Where all logs ended at a moment: a record a second."""
    return 1_000_000 + (min(at, STILL) - START) // 1_000
