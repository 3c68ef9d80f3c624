"""The input of metrics: snapshots, assessments, and counts of the listeners."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from streaming.common.arrays import Mask
from streaming.serve.assessment.assessment import Assessment
from streaming.serve.assessment.complete import complete_groups
from streaming.serve.assessment.counters import Counters
from streaming.serve.assessment.sums import Summed
from streaming.serve.memory.past import PastCounts
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.settings.model import Settings

STEPS: Final = ("assessment", "bytes")


@dataclass(frozen=True, kw_only=True)
class KafkaCounts:
    """Counts of the Kafka listeners: requests by API and version, and by name and version of the client's
    software, errors in responses by API and error, open connections, closed connections by reason, and
    snapshots of past moments (None: no listener answers about the past)."""

    requests: Mapping[tuple[str, str], int]
    software: Mapping[tuple[str, str], int]
    errors: Mapping[tuple[str, str], int]
    connections: int
    closed: Mapping[str, int]
    past: PastCounts | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class MetricsSource:
    """The input of one response about one cluster at the moment `now` (ms).

    `cluster` is its name (empty: the only one, which is not named).
    `snapshot` is the newest, `assessment` may be of an earlier one. `counters` None: nothing is counted,
    because this is the only response. `failures` are the errors of reading the tables, `rules` the ids of the
    alert rules, and `took_s` is how long the response before took.
    """

    now: int
    version: str
    snapshot: MemorySnapshot
    assessment: Assessment
    counters: Counters | None
    settings: Settings
    failures: Sequence[str] = ()
    kafka: KafkaCounts | None = None
    took_s: float | None = None
    rules: Sequence[str] = ()
    cluster: str = ""

    @cached_property
    def current(self) -> Assessment:
        """The assessment as of now."""
        return self.assessment.as_of(self.now)

    @cached_property
    def by_group(self) -> Summed:
        return Summed.by_group(self.current)

    @cached_property
    def by_topic(self) -> Summed:
        return Summed.by_topic(self.current)

    @cached_property
    def is_complete(self) -> Mask:
        """Whether each group of the assessment is complete now."""
        return complete_groups(
            self.assessment.snapshot,
            self.snapshot,
            now=self.now,
            within_ms=self.settings.tables.complete_within_ms,
        )

    @cached_property
    def gone(self) -> list[str]:
        """Groups that are gone but have counts; the assessment contains none of them."""
        known = self.assessment.snapshot.groups.names.places
        return [] if self.counters is None else [group for group in self.counters.gone if group not in known]

    @property
    def was_read(self) -> bool:
        """Whether anything was read yet; before, it is unknown even whether there are groups."""
        return bool(self.snapshot.progress.partitions)

    @property
    def is_heard_of(self) -> bool:
        """Whether the job's heartbeat is recent enough to report anything but the job."""
        within_ms = self.settings.tables.complete_within_ms
        return not self.snapshot.completeness(self.now, within_ms).is_silent
