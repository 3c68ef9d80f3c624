"""Tables of groups that commit every minute, and of log ends sampled as often: for the commands."""

from pathlib import Path
from typing import Any

from new_tables import new_tables
from sampled_logs import Log, timed
from table_batches import Batch, append, group, heartbeat, offset

from streaming.common.times import MINUTE_MS, day_of
from streaming.model.progress import PartitionProgress
from streaming.model.schemas import LOG_ENDS

MINUTES = 25
"""For so long the job has been at work, and sampled ends."""

SOURCE = 3
"""The offsets partition of all groups."""


class LagTables:
    """A record a second in orders:0. `live` commits every minute, 10 s behind, and 30 s every fifth; `dead`
    did so for 5 minutes;
    `old` committed an offset of an hour ago once; `lost` has an offset of a topic without samples."""

    def __init__(self, root: Path, now: int, *, with_samples: bool = True) -> None:
        self.tables = new_tables(root)
        self.now = now
        self.start = now - MINUTES * MINUTE_MS
        self.log = Log(range(now - 120 * MINUTE_MS, now + 1, 1_000), topic="orders", topic_id="first")
        self._live: Batch = {}
        for minute in range(MINUTES + 1):
            self._read(self.start + minute * MINUTE_MS, minute)
        if with_samples:
            self.sample(self.log, range(self.start, now + 1, MINUTE_MS))
        heartbeat(self.tables, now)

    def sample(self, log: Log, moments: range, **changed: Any) -> None:
        """Append samples of a log's end."""
        self.append_ends([{**row, **changed} for row in log.samples(moments)])

    def make_anew(self) -> None:
        """Sample orders:0 as one of a topic that was recreated a second after `now`; the sampler also tells
        of the topics themselves."""
        anew = Log(self.log.produced, topic="orders", topic_id="second")
        later = range(self.now + 2_000, self.now + 2_001)
        topic = {"partition": None, "log_start": None, "log_end": None}
        self.sample(anew, later)
        self.sample(self.log, range(self.start, self.now + 1, self.now - self.start), **topic)
        self.sample(anew, later, **topic)

    def append_ends(self, samples: list[dict[str, Any]]) -> None:
        rows = [{**row, "error": None, "day": day_of(row["sampled_at"])} for row in samples]
        self.tables.append_log_ends(timed(rows, LOG_ENDS))

    def end_at(self, minute: int) -> int:
        """Where orders:0 ended so many minutes after the start."""
        return self.log.end_at(self.start + minute * MINUTE_MS)

    def _read(self, now: int, minute: int) -> None:
        batch: Batch = {}
        times = {"commit_timestamp": now, "source_timestamp": now}
        behind = self.log.end_at(now - (30_000 if minute % 5 == 0 else 10_000))
        batch["live", "orders", 0] = offset(committed_offset=behind, source_offset=10 * minute, **times)
        if minute <= 5:
            batch["dead", "orders", 0] = offset(
                committed_offset=behind, source_offset=10 * minute + 1, **times
            )
        if minute == 0:
            hour = self.log.end_at(now - 60 * MINUTE_MS)
            batch["old", "orders", 0] = offset(committed_offset=hour, source_offset=2, **times)
            batch["lost", "gone", 0] = offset(committed_offset=7, source_offset=3, **times)
            batch |= {name: group(source_offset=4) for name in ("live", "dead", "old", "lost")}
        place = 10 * minute + 9
        done = PartitionProgress(position=place, loaded=True, last_stable_offset=place, high_watermark=place)
        append(self.tables, batch, live=self._live, now=now, partitions={SOURCE: done})
        self._live |= batch
