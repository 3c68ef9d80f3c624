"""What alert rules look at, and of which offsets partitions they can judge the groups.

Rules about groups judge only offsets partitions that are complete (`streaming.model.completeness`). Groups of
the others are not judged: open episodes stay open, and `job_behind` or `partition_stalled` is raised instead.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from streaming.alerts.episodes import Episode
from streaming.common.arrays import to_mask, where
from streaming.lag.log_ranges import Partition
from streaming.lag.rules import HealthRules
from streaming.model.completeness import COMPLETE_WITHIN_MS, Completeness
from streaming.model.progress import Progress


@dataclass(frozen=True, kw_only=True)
class LagRows:
    """The offsets of groups that rules about lag are on for, assessed as of a `moment` (ms): lag, sampling,
    and health and recreated topics where a rule is on that goes by them.

    `uncommitted` are the partitions, with the same columns, that members of groups have and nothing is
    committed for, where a rule is on that tells of them; also with `log_start_offset` and `OWNER`.
    """

    moment: int
    health: HealthRules
    offsets: pa.Table
    uncommitted: pa.Table


@dataclass(frozen=True, kw_only=True)
class RuleContext:
    """What the rules look at; `now` in milliseconds. Up to `within_ms` ago the tables count as complete.

    `offsets` are the live offsets (schema `OFFSETS`), where `is_predicted` with the columns that `expiry`
    adds; `groups` are the live groups (schema `GROUPS`). `dropped` are rows of
    `changes` that the broker has probably expired and no evaluation has seen; `rewound` are commits that went
    back, with who can have done that. `lag` is what is newly known of lag, if anything.

    `log_starts` holds where the logs of the committed topic partitions start (None: no answer); it is None
    as a whole where no broker was asked. `known` is the newest episode by rule and subject: all that are
    open, and of rules that remember them (`Rule.remembers_closed`) the closed ones too.
    """

    now: int
    progress: Progress
    offsets: pa.Table
    groups: pa.Table
    is_predicted: bool
    dropped: pa.Table
    rewound: pa.Table
    lag: LagRows | None = None
    log_starts: Mapping[Partition, int | None] | None = None
    known: Mapping[tuple[str, str], Episode] = field(default_factory=dict)
    within_ms: int = COMPLETE_WITHIN_MS

    @cached_property
    def completeness(self) -> Completeness:
        """How complete the tables are."""
        return Completeness(progress=self.progress, moment=self.now, within_ms=self.within_ms)

    @property
    def judged(self) -> frozenset[int]:
        """The offsets partitions of which groups can be judged."""
        return self.completeness.complete

    def counted(self, rule: str, subject: str, fact: str) -> int:
        """Return a number among the facts of the newest known episode about a subject; 0 where there is
        none."""
        episode = self.known.get((rule, subject))
        return 0 if episode is None else int(episode.finding.facts.get(fact, 0))


def cannot_be_judged(view: RuleContext) -> Callable[[Episode], bool]:
    """Return a predicate: whether an open episode about groups cannot be judged now.

    A summary needs all partitions; so does a group of a partition that the topic no longer has.
    """
    known, judged = view.completeness.states, view.judged
    is_all = judged >= known.keys() and bool(judged)

    def tell(episode: Episode) -> bool:
        partition = episode.finding.source_partition
        return partition not in judged if partition in known else not is_all

    return tell


def of_partitions(rows: pa.Table, partitions: Collection[int]) -> pa.Table:
    """Return the rows that came from some offsets partitions."""
    wanted = pa.array(sorted(partitions), pa.int32())
    return where(rows, to_mask(pc.is_in(rows["source_partition"], value_set=wanted)))


def not_history(rows: pa.Table, progress: Progress) -> pa.Table:
    """Return the rows (with source_partition and source_offset) whose records came after what the job found
    when it first started.

    What a rebuild no longer found has no record, but was held.
    """
    targets = {number: partition.load_target or 0 for number, partition in progress.partitions.items()}
    is_new = [
        offset is None or offset >= targets.get(partition, 0)
        for partition, offset in zip(
            rows["source_partition"].to_pylist(), rows["source_offset"].to_pylist(), strict=True
        )
    ]
    return rows.filter(pa.array(is_new, pa.bool_()))
