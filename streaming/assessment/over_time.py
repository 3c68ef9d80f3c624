"""Changes of the health of groups: the assessment at each of many moments of a past time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.assessment import uncommitted
from streaming.assessment.assess import Terms
from streaming.assessment.explained import reasons_of_members
from streaming.assessment.owners import GroupsOverTime
from streaming.assessment.uncommitted import uncommitted_health
from streaming.common.arrays import Index, from_mask, numbers_or
from streaming.common.keys import KEY_NAMES
from streaming.common.timestamps import to_milliseconds
from streaming.lag.health_over_time import status_changes
from streaming.lag.health_rules import HealthRules
from streaming.lag.positions import habits_by, topics_in

_WINDOWS: Final = 3  # read before the first moment: `uncommitted` looks up groups two windows earlier


class Source(uncommitted.UncommittedSource, Protocol):
    """The tables as of one moment, with earlier versions of the groups."""

    def groups_over_time(self, groups: Sequence[str] | None, *, since: int, until: int) -> pa.Table:
        """Read the versions of groups (None: all groups) between two moments (ms): the columns of schema
        `GROUPS`, and written_at."""


def first_needed(moment: int, rules: HealthRules) -> int:
    """Return the moment (ms) since which commits are needed to judge a moment."""
    return moment - rules.long_silence_ms - rules.window_ms


def assess_health_changes(
    at: Source,
    commits: pa.Table,
    groups: Sequence[str] | None,
    *,
    moments: Index,
    terms: Terms,
    chosen: Callable[[pa.Table], pa.Table] = lambda rows: rows,
) -> tuple[pa.Table, pa.Table]:
    """Return the changes of the status of groups (None: all) at m moments (int64 ms, ascending; m > 0; schema
    `STATUS_CHANGES`), and the positions that had a status at any of these moments (schema `KEY`).

    `commits` (schema `COMMITS`) are those of the groups since `first_needed`. `chosen` filters partitions
    (`KEY`, and source_partition of the group): only those it keeps are judged without a committed offset.
    Raises the errors of the source.
    """
    first, end, rules = int(moments[0]), int(moments[-1]), terms.rules
    since = first - _WINDOWS * rules.window_ms
    rows = at.groups_over_time(groups, since=since, until=end)
    written_at = numbers_or(to_milliseconds(rows["written_at"]), 0)
    over_time = GroupsOverTime.of(rows.drop_columns("written_at"), written_at, at, end)
    keys = chosen(over_time.owned).select(KEY_NAMES)
    topics = sorted({*topics_in(commits), *topics_in(keys)})
    samples = at.ends_between(topics, since=first_needed(first, rules), until=end, within_ms=terms.max_age_ms)
    habits = habits_by(rules, terms.max_age_ms)
    return status_changes(
        commits,
        samples,
        moments=moments,
        max_age_ms=terms.max_age_ms,
        rules=rules,
        habits=lambda positions: habits.read(at, positions, moment=end),
        members=_Members(at, over_time, keys, samples, end, rules),
    )


@dataclass(frozen=True)
class _Members:
    """Implements `streaming.lag.health_over_time.Members`, for moments up to `until` (ms)."""

    at: Source
    over_time: GroupsOverTime
    keys: pa.Table
    samples: pa.Table
    until: int
    rules: HealthRules

    def had_since(self, rows: pa.Table, moments: Index) -> Index:
        return self.over_time.had_since(rows, moments)

    def reasons(self, rows: pa.Table, moments: Index, statuses: Index) -> Index:
        own, versions = self.over_time.under_versions(rows, moments), self.over_time.versions

        def versions_of(rows: pa.Table) -> pa.Table:
            return versions.filter(pc.is_in(versions["group"], value_set=pc.unique(rows["group"])))

        return reasons_of_members(self.at, own, statuses, self.until, versions_of)

    def of_uncommitted(self, rows: pa.Table, moments: Index) -> pa.Table:
        current = rows.append_column("is_current", from_mask(np.ones(len(rows), np.bool_)))
        had, samples = self.over_time.had_since, self.samples
        return uncommitted_health(self.at, current, had, samples, moments=moments, rules=self.rules)
