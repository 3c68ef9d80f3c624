"""Brings the live tables to what reading the topic anew gave: one step of their history, in one commit."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from streaming.expiry.causes import GONE_WHILE_AWAY, Evidence, with_causes_of_absence
from streaming.job.rebuild import differences, not_in
from streaming.job.writer import TopicIds
from streaming.model.progress import Progress, now_ms
from streaming.model.schemas import QUARANTINE_IN_BATCH
from streaming.tables.rows import quarantine_rows
from streaming.tables.snapshot import LiveRows
from streaming.tables.tables import Tables


def change_over(live: Tables, aside: Tables, topic_ids: TopicIds) -> Progress:
    """Append to the live tables what is different in those that were read anew; return their new progress."""
    old, new = live.read(), aside.read()
    now, sequence = now_ms(), old.progress.sequence + 1
    rows = pa.concat_tables(
        differences(name, getattr(old, name), getattr(new, name), sequence=sequence, batch_time=now)
        for name in ("offsets", "groups")
    )
    rows = _with_causes(rows, old, new.progress, topic_ids, now)
    progress = replace(
        new.progress,
        sequence=sequence if len(rows) else old.progress.sequence,
        batch_time=now if len(rows) else old.progress.batch_time,
        heartbeat=now,
    )
    failed = not_in(aside.read_quarantine(), live.read_quarantine())
    live.append_quarantine(_in_batch(failed, progress), progress)
    live.append_changes(rows, progress, is_batch=True)
    return progress


def _with_causes(rows: pa.Table, old: LiveRows, found: Progress, topic_ids: TopicIds, now: int) -> pa.Table:
    """Say which of the offsets that are gone were due meanwhile."""
    gone = rows.filter(pc.equal(rows["cause"], GONE_WHILE_AWAY).fill_null(False))
    retention, before = found.retention, old.progress.retention
    evidence = Evidence(
        offsets=old.offsets,
        groups=old.groups,
        topic_ids=topic_ids(pc.unique(gone["topic"]).to_pylist()),
        retention=None if retention is None else retention.after(before),
        held_back=frozenset(),
        now=now,
    )
    seen_at = {number: partition.stable.since for number, partition in old.progress.partitions.items()}
    return with_causes_of_absence(rows, evidence, seen_at)


def _in_batch(failed: pa.Table, progress: Progress) -> pa.Table:
    """Return quarantined records as those of the batch that a progress speaks of."""
    return quarantine_rows(
        failed.select([*QUARANTINE_IN_BATCH.names, "source_partition"]),
        sequence=progress.sequence,
        batch_time=progress.heartbeat,
    )[0]
