"""How groups stand, from one picture at one moment: lag, status and expiry of every committed offset, and the
status of partitions that members have without one.

Values are those of `offsetlake lag`, `health` and `expiring`, by the same rules. Samples of log ends of the
past and commits of the last hours are not in a picture; they are read from the tables, as far as offsets that
are behind need them.
"""

from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.assessment.assess import Facts, Terms, assess
from streaming.assessment.owners import with_assigned
from streaming.common.arrays import Index, Mask, from_texts, numbers_or, to_mask
from streaming.common.timestamps import to_milliseconds
from streaming.expiry.rules import RULES
from streaming.lag.former_topic import OF_FORMER_TOPIC
from streaming.lag.pauses import Habits
from streaming.lag.rules import STATUSES, HealthRules
from streaming.model.progress import Progress
from streaming.serve.picture.names import NONE, fixed
from streaming.serve.picture.picture import Picture
from streaming.serve.standing.rows import group_rows, offset_rows
from streaming.settings.model import ExpirySettings
from streaming.tables.snapshot import Snapshot

EXPIRY_RULES: Final = tuple(rule.name for rule in RULES)
"""The names of the rules that offsets expire by; they are numbers in `Positions`."""

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Positions:
    """What is known of n committed offsets, in the order of the picture.

    `lag` counts where `is_lag_known`; `lag_seconds` is NaN where it is not known; `is_at_least`: the true lag
    may be larger. `status` is a number of `STATUSES`, `rule` one of `EXPIRY_RULES`. `expires_at` (ms) is
    `NONE` where the offset stays as long as its group stays as it is, or where that is not known.
    """

    lag: Index
    is_lag_known: Mask
    lag_seconds: Float64
    is_at_least: Mask
    status: Index
    rule: Index
    expires_at: Index
    is_of_former_topic: Mask

    @classmethod
    def unknown(cls, count: int) -> Self:
        """Return that nothing is known of so many."""
        never, nothing = fixed(np.zeros(count, np.bool_)), fixed(np.full(count, NONE, np.int64))
        return cls(
            lag=nothing,
            is_lag_known=never,
            lag_seconds=fixed(np.full(count, np.nan)),
            is_at_least=never,
            status=nothing,
            rule=nothing,
            expires_at=nothing,
            is_of_former_topic=never,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Uncommitted:
    """The m partitions that members of groups have and nothing is committed for: the places of the groups,
    and the status, a number of `STATUSES`."""

    groups: Index
    status: Index

    @classmethod
    def none(cls) -> Self:
        """Return no partitions."""
        return cls(groups=fixed(np.empty(0, np.int64)), status=fixed(np.empty(0, np.int64)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Standing:
    """A picture, and how the offsets in it stand at a `moment` (ms), and partitions without one; `took_s` is
    how long that took."""

    picture: Picture
    positions: Positions
    uncommitted: Uncommitted = field(default_factory=Uncommitted.none)
    moment: int
    took_s: float = 0.0

    @classmethod
    def none(cls) -> Self:
        """Return what is known before anything was read."""
        return cls(picture=Picture.none(), positions=Positions.unknown(0), moment=0)


def standing_of(
    picture: Picture,
    at: Snapshot,
    *,
    moment: int,
    health: HealthRules,
    settings: ExpirySettings,
    habits: Habits | None = None,
) -> Standing:
    """Return how the offsets of a picture stand at a moment (ms).

    `habits` remember how positions usually pause, from one standing to the next. `at` are the tables of now:
    what they have that is newer than the picture is left out. Raises what reading them raises.
    """
    groups, then = group_rows(picture), at.up_to(picture.progress)
    committed = offset_rows(picture)
    rows = with_assigned(committed, groups, then, moment)
    if not len(rows):
        return Standing(picture=picture, positions=Positions.unknown(0), moment=moment)
    retention_ms = retention_ms_of(picture.progress, settings)
    facts = Facts(lag=True, health=True, former_topic=True, expiry=retention_ms)
    terms = Terms(rules=health)
    judged = assess(then, rows, facts, moment=moment, terms=terms, groups=groups, habits=habits)
    bare, judged = judged.slice(len(committed)), judged.slice(0, len(committed))
    rules, expires_at = _expiry(judged)
    lags = judged["lag"]
    is_lag_known = to_mask(lags.is_valid())
    is_timed = to_mask(judged["lag_seconds"].is_valid())
    positions = Positions(
        lag=fixed(numbers_or(lags, NONE)),
        is_lag_known=fixed(is_lag_known),
        lag_seconds=fixed(judged["lag_seconds"].to_numpy()),
        is_at_least=fixed(to_mask(judged["lag_is_at_least"]) | ~is_lag_known | ~is_timed),
        status=fixed(_statuses(judged)),
        rule=fixed(rules),
        expires_at=fixed(expires_at),
        is_of_former_topic=fixed(to_mask(judged[OF_FORMER_TOPIC.name])),
    )
    uncommitted = Uncommitted(
        groups=fixed(picture.groups.names.places_of(bare["group"].combine_chunks())),
        status=fixed(_statuses(bare)),
    )
    return Standing(picture=picture, positions=positions, uncommitted=uncommitted, moment=moment)


def _statuses(rows: pa.Table) -> Index:
    return numbers_or(pc.index_in(rows["status"], value_set=from_texts(STATUSES)), NONE)


def retention_ms_of(progress: Progress, settings: ExpirySettings) -> int | None:
    """Return for how long (ms) the brokers keep offsets; None: nobody says."""
    return settings.retention_ms if progress.retention is None else progress.retention.retention_ms


def _expiry(rows: pa.Table) -> tuple[Index, Index]:
    """Return by which rule n offsets expire, and when (ms)."""
    if "rule" not in rows.column_names:
        unknown = np.full(len(rows), NONE, np.int64)
        return unknown, unknown
    rules = numbers_or(pc.index_in(rows["rule"], value_set=from_texts(EXPIRY_RULES)), NONE)
    return rules, numbers_or(to_milliseconds(rows["expires_at"]), NONE)
