"""The assessment of one snapshot at one moment: lag, status and expiry of every committed offset, and the
status of partitions that are assigned to members but have no committed offset.

The values are those of `offsetlake lag`, `health` and `expiring`, by the same rules. A snapshot lacks older
samples of log ends and the commits of the last hours; they are read from the tables where an offset that lags
behind needs them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.assessment.assess import Facts, Terms, assess
from streaming.assessment.explained import LAG_SECONDS_REASON, MARKERS
from streaming.assessment.owners import with_assigned
from streaming.common.arrays import Index, Mask, from_texts, no_rows, numbers_or, to_mask
from streaming.common.timestamps import to_milliseconds
from streaming.expiry.rules import RULES
from streaming.lag.habits import Habits
from streaming.lag.health import PARTITION_HEALTH
from streaming.lag.health_rules import REASONS, STATUSES, UNKNOWN, HealthRules
from streaming.lag.log_ranges import LAG
from streaming.lag.recreated_topic import OF_RECREATED_TOPIC
from streaming.lag.samples import MAX_SAMPLE_AGE_MS
from streaming.model.progress import Progress
from streaming.model.schemas import TIMESTAMP
from streaming.serve.assessment.rows import group_rows, offset_rows
from streaming.serve.memory.names import NONE, fixed
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.settings.model import ExpirySettings
from streaming.tables.snapshot import Snapshot

EXPIRY_RULES: Final = tuple(rule.name for rule in RULES)
"""The names of the expiry rules; `Positions` refers to them by index."""

POSITIONS: Final = pa.schema(
    [
        *(LAG.field(name) for name in ("lag", "lag_seconds", "lag_is_at_least", "ends_as_of")),
        LAG.field("offset_as_of_ends"),
        LAG_SECONDS_REASON,
        *(PARTITION_HEALTH.field(name) for name in ("status", "reason", "since")),
        OF_RECREATED_TOPIC,
        ("rule", pa.string()),
        ("expires_at", TIMESTAMP),
    ]
)
"""The columns of the assessment to keep."""

NO_LAG: Final = -(2**63)
"""Marks an unknown lag: no real lag is as far below 0."""

WORDS: Final = {
    "status": STATUSES,
    "reason": tuple(reason for reason, _ in REASONS),
    "lag_seconds_reason": (MARKERS,),
    "rule": EXPIRY_RULES,
}
"""The words that `Positions` refers to by index, by column."""

_NOT_READ, _NO_END = map(WORDS["reason"].index, ("newer commits may be unread", "log end unknown"))

Positions = Mapping[str, npt.NDArray[Any]]
"""The columns `POSITIONS` of n committed offsets, in the order of the snapshot.

Times are in ms; columns of words (int8) are indices into `WORDS`. Unknown values are `NONE`, for a lag and
the offset it is counted from `NO_LAG`, for its seconds NaN, and for a boolean false.
"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Uncommitted:
    """The m partitions that are assigned to members of groups but have no committed offset: the places of the
    groups and of the topic partitions (`NONE`: unknown), and their columns of `Positions`."""

    groups: Index
    places: Index
    positions: "Positions"

    @classmethod
    def none(cls) -> Self:
        nothing = fixed(np.empty(0, np.int64))
        return cls(groups=nothing, places=nothing, positions=_positions(no_rows(POSITIONS)))

    @property
    def status(self) -> Index:
        """The status, an index into `STATUSES`."""
        found: Index = self.positions["status"]
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class Assessment:
    """A snapshot and the assessment of its offsets, and of partitions without one, at a `moment` (ms);
    `took_s` is how long it took to compute."""

    snapshot: MemorySnapshot
    positions: Positions
    uncommitted: Uncommitted = field(default_factory=Uncommitted.none)
    moment: int
    took_s: float = 0.0

    @classmethod
    def none(cls) -> Self:
        """Return the assessment before the first read."""
        return cls(snapshot=MemorySnapshot.none(), positions=_positions(no_rows(POSITIONS)), moment=0)

    def as_of(self, now: int) -> Self:
        """Return the assessment at a later moment (ms): without the lag and status of samples that are too
        old by then."""
        if now - self._oldest_sample <= MAX_SAMPLE_AGE_MS:
            return self
        bare = self.uncommitted
        has_end, bare_has_end = self._have_ends
        return replace(
            self,
            positions=_as_of(self.positions, now, has_end),
            uncommitted=replace(bare, positions=_as_of(bare.positions, now, bare_has_end)),
        )

    @property
    def known_ends(self) -> int:
        """The number of offsets, and of partitions without one, of which the log end is known."""
        return sum(int(some.sum()) for some in self._have_ends)

    @cached_property
    def _oldest_sample(self) -> int:
        """The moment (ms) of the oldest sample that counts; far ahead if there is none."""
        parts = zip((self.positions, self.uncommitted.positions), self._have_ends, strict=True)
        return min(
            int(np.min(one["ends_as_of"], where=some, initial=np.iinfo(np.int64).max)) for one, some in parts
        )

    @cached_property
    def _have_ends(self) -> tuple[Mask, Mask]:
        """Whether the log end of each offset (n), and of each partition without one (m), is known."""
        no_end = np.isin(self.uncommitted.positions["reason"], [_NOT_READ, _NO_END])
        return self.positions["lag"] != NO_LAG, ~no_end


def _as_of(positions: Positions, now: int, has_end: Mask) -> Positions:
    """Return n positions at a moment (ms), given whether the log end of each is known."""
    is_over = has_end & (now - positions["ends_as_of"] > MAX_SAMPLE_AGE_MS)
    unknown = {"lag": NO_LAG, "lag_seconds": np.nan, "status": UNKNOWN, "reason": _NO_END, "since": NONE}
    changed = {
        name: fixed(np.where(is_over, value, positions[name]).astype(positions[name].dtype))
        for name, value in unknown.items()
    }
    return {**positions, **changed}


def assessment_of(
    snapshot: MemorySnapshot,
    at: Snapshot,
    *,
    moment: int,
    health: HealthRules,
    settings: ExpirySettings,
    habits: Habits | None = None,
) -> Assessment:
    """Assess the offsets of a snapshot at a moment (ms).

    `habits` remember the usual pauses of positions from one assessment to the next. `at` is the present state
    of the tables; what is newer there than the snapshot is left out. Raises the errors of reading the tables.
    """
    groups, then = group_rows(snapshot), at.up_to(snapshot.progress)
    committed = offset_rows(snapshot)
    rows = with_assigned(committed, groups, then, moment)
    if not len(rows):
        return replace(Assessment.none(), snapshot=snapshot, moment=moment)
    retention_ms = retention_ms_of(snapshot.progress, settings)
    facts = Facts(lag=True, lag_time=True, health=True, recreated_topic=True, expiry=retention_ms)
    terms = Terms(rules=health)
    assessed = assess(then, rows, facts, moment=moment, terms=terms, groups=groups, habits=habits)
    bare, assessed = assessed.slice(len(committed)), assessed.slice(0, len(committed))
    topics = snapshot.topics
    of_topics = topics.names.places_of(bare["topic"].combine_chunks())
    uncommitted = Uncommitted(
        groups=fixed(snapshot.groups.names.places_of(bare["group"].combine_chunks())),
        places=fixed(topics.found(of_topics, numbers_or(bare["partition"], NONE))),
        positions=_positions(bare),
    )
    return Assessment(
        snapshot=snapshot, positions=_positions(assessed), uncommitted=uncommitted, moment=moment
    )


def retention_ms_of(progress: Progress, settings: ExpirySettings) -> int | None:
    """Return how long brokers keep committed offsets (ms); None: neither the brokers nor the settings specify
    it."""
    return settings.retention_ms if progress.retention is None else progress.retention.retention_ms


def _positions(assessed: pa.Table) -> Positions:
    """Convert the assessment of n offsets; columns that were not computed are unknown."""
    return {
        field.name: fixed(
            _held(
                field,
                assessed[field.name]
                if field.name in assessed.column_names
                else pa.nulls(len(assessed), field.type),
            )
        )
        for field in POSITIONS
    }


def _held(field: pa.Field, column: pa.ChunkedArray | pa.Array) -> npt.NDArray[Any]:
    """Return n values of a column in the form of `Positions`."""
    if field.type == pa.bool_():
        return to_mask(column)
    if field.type == pa.float64():
        values: npt.NDArray[np.float64] = column.to_numpy()
        return values
    if field.type == TIMESTAMP:
        return numbers_or(to_milliseconds(column), NONE)
    if field.name in WORDS:
        places = pc.index_in(column, value_set=from_texts(WORDS[field.name]))
        return numbers_or(places, NONE).astype(np.int8)
    return numbers_or(column, NO_LAG)
