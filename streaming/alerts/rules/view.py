"""The input of alert rules, and the offsets partitions whose groups they can judge.

Rules about groups judge only offsets partitions that are complete (`streaming.model.completeness`). Open
episodes about groups of other partitions stay open; `job_behind` or `partition_stalled` reports the
partitions.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from streaming.alerts.episodes import Episode
from streaming.alerts.rules.subjects import GroupPolicies
from streaming.common.arrays import Mask, to_mask, where
from streaming.lag.health_rules import HealthRules
from streaming.lag.log_ranges import Partition
from streaming.model.completeness import COMPLETE_WITHIN_MS, Completeness
from streaming.model.progress import Progress
from streaming.settings.model import AlertSettings


@dataclass(frozen=True, kw_only=True)
class LagRows:
    """The assessed offsets of groups for which rules about lag are on, as of `moment` (ms): with lag and
    sampling, and with health and of_recreated_topic where rules that need them are on.

    `uncommitted` are the partitions that members have and that have no committed offset, with the same
    columns, log_start_offset and `OWNER`; empty if no rule that needs them is on.
    """

    moment: int
    health: HealthRules
    offsets: pa.Table
    uncommitted: pa.Table


@dataclass(frozen=True, kw_only=True)
class RuleContext:
    """The input of the rules; `now` is in milliseconds. The tables count as complete up to `within_ms` later.

    `policies` are the settings of each group. `offsets` are the live offsets (schema `OFFSETS`), with the
    columns of `expiry` if `is_predicted`. `groups` are the live groups (schema `GROUPS`). `dropped` are rows
    of `changes` that no evaluation has seen, about offsets that have probably expired. `rewound` are rewinds
    (schema `REWOUND`). `lag` is None if there are no new samples. Each rule gets only the offsets and
    positions that it selects (`AlertRule`). If the tables are large, `groups` has only the groups of these.

    `log_starts` are the log start offsets of the committed topic partitions (None: no answer); it is None if
    no broker was asked. `known` are the newest episodes by rule and subject: the open ones, and for rules
    with `remembers_closed` also closed ones.
    """

    policies: GroupPolicies
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

    @property
    def settings(self) -> AlertSettings:
        return self.policies.settings

    @cached_property
    def completeness(self) -> Completeness:
        return Completeness(progress=self.progress, moment=self.now, within_ms=self.within_ms)

    @property
    def judged(self) -> frozenset[int]:
        """The offsets partitions whose groups can be judged."""
        return self.completeness.complete

    def counted(self, rule: str, subject: str, fact: str) -> int:
        """Return a number from the facts of the newest known episode about a subject; 0 if there is none."""
        episode = self.known.get((rule, subject))
        return 0 if episode is None else int(episode.finding.facts.get(fact, 0))


def cannot_be_judged(view: RuleContext) -> Callable[[Episode], bool]:
    """Return a predicate: whether an open episode about groups cannot be judged now.

    Summaries can be judged only if all offsets partitions can; so can groups of offsets partitions that the
    topic no longer has.
    """
    known, judged = view.completeness.states, view.judged
    is_all = judged >= known.keys() and bool(judged)

    def is_not_judged(episode: Episode) -> bool:
        partition = episode.finding.source_partition
        return partition not in judged if partition in known else not is_all

    return is_not_judged


def of_partitions(rows: pa.Table, partitions: Collection[int]) -> pa.Table:
    """Return the rows from these offsets partitions."""
    return where(rows, are_of_partitions(rows, partitions))


def are_of_partitions(rows: pa.Table, partitions: Collection[int]) -> Mask:
    """Return for n rows whether they are from these offsets partitions."""
    wanted = pa.array(sorted(partitions), pa.int32())
    return to_mask(pc.is_in(rows["source_partition"], value_set=wanted))


def not_history(rows: pa.Table, progress: Progress) -> pa.Table:
    """Return the rows (with source_partition and source_offset) whose records are newer than those the job
    found at its first start. Rows without a source_offset count as newer: a rebuild wrote them, about
    offsets that were in the tables."""
    targets = {number: partition.load_target or 0 for number, partition in progress.partitions.items()}
    is_new = [
        offset is None or offset >= targets.get(partition, 0)
        for partition, offset in zip(
            rows["source_partition"].to_pylist(), rows["source_offset"].to_pylist(), strict=True
        )
    ]
    return rows.filter(pa.array(is_new, pa.bool_()))
