"""Rows of offsets grouped by the subject of an alert: a group, or all groups of a pattern."""

import fnmatch
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.alerts.episodes import INFO, Finding, Severity
from streaming.common.arrays import Index, Mask, from_mask, from_numbers, where
from streaming.common.keys import Numbering, numbered
from streaming.common.timestamps import to_milliseconds
from streaming.lag.log_ranges import Partition, lag
from streaming.settings.model import AlertSettings, GroupAlerts

STOPPED_RULE: Final = "group_stopped"
STALLED_RULE: Final = "group_stalled"
REWOUND_RULE: Final = "group_rewound"
BEYOND_END_RULE: Final = "offset_beyond_log_end"
RECREATED_TOPIC_RULE: Final = "offset_of_recreated_topic"
LAG_RULE: Final = "lag_seconds"
"""The rules with a setting of the same name."""

HEALTH_RULES: Final = (STOPPED_RULE, STALLED_RULE)
LAG_RULES: Final = (*HEALTH_RULES, BEYOND_END_RULE, RECREATED_TOPIC_RULE, LAG_RULE)
"""The rules that need lag; `HEALTH_RULES` also need health."""


@dataclass(frozen=True, kw_only=True)
class GroupPolicy:
    """The alert settings of one group. `pattern` is the pattern of its summary; None: the group has alerts of
    its own.

    `rules` are the rules with a setting that are on for the group. `lag_ms` is 0 where `lag_seconds` is off.
    """

    is_excluded: bool
    pattern: str | None
    warning_ms: int
    critical_ms: int
    lag_ms: int
    rules: frozenset[str]


class GroupPolicies:
    """The policies of groups: of the first pattern that matches the group, else the default."""

    def __init__(self, settings: AlertSettings) -> None:
        self.settings = settings
        self._patterns = [
            (re.compile(fnmatch.translate(entry.pattern)), _policy(settings, entry))
            for entry in settings.groups
        ]
        self._default = _policy(settings, None)

    @property
    def longest_warning_ms(self) -> int:
        """The largest threshold of any group."""
        return max(policy.warning_ms for policy in self._all)

    def has_on(self, *rules: str) -> bool:
        """Return whether any of the rules is on for any group."""
        return any(policy.rules.intersection(rules) for policy in self._all)

    def with_on(self, rows: pa.Table, *rules: str) -> pa.Table:
        """Return the rows of groups for which any of the rules is on."""
        is_on = self.are_on(rows, *rules)
        return rows if is_on is True else where(rows, is_on)

    def are_on(self, rows: pa.Table, *rules: str) -> Mask | Literal[True]:
        """Return for n rows whether any of the rules is on for their group; True: for all groups."""
        if all(policy.rules.intersection(rules) for policy in self._all):
            return True
        if not self.has_on(*rules):
            return np.zeros(len(rows), np.bool_)
        codes, groups = numbered(rows["group"])
        is_on: Mask = np.array(
            [bool(self.of(name).rules.intersection(rules)) for name in groups.to_pylist()], np.bool_
        )[codes]
        return is_on

    def lag_ms(self, rows: pa.Table) -> Index:
        """Return the thresholds of lag time of the groups of n rows (ms)."""
        if not self._patterns:
            return np.full(len(rows), self._default.lag_ms, np.int64)
        codes, groups = numbered(rows["group"])
        return np.array([self.of(name).lag_ms for name in groups.to_pylist()], np.int64)[codes]

    @property
    def _all(self) -> list[GroupPolicy]:
        return [self._default, *(policy for _, policy in self._patterns)]

    def of(self, group: str) -> GroupPolicy:
        return next((policy for pattern, policy in self._patterns if pattern.match(group)), self._default)


def _policy(settings: AlertSettings, entry: GroupAlerts | None) -> GroupPolicy:
    return GroupPolicy(
        is_excluded=entry is not None and entry.treat == "exclude",
        pattern=entry.pattern if entry is not None and entry.treat == "summarize" else None,
        warning_ms=(entry and entry.warning_ms) or settings.warning_ms,
        critical_ms=(entry and entry.critical_ms) or settings.critical_ms,
        lag_ms=_lag_ms(settings, entry),
        rules=frozenset() if entry is not None and entry.treat == "exclude" else _rules_on(settings, entry),
    )


def _lag_ms(settings: AlertSettings, entry: GroupAlerts | None) -> int:
    own = None if entry is None else entry.lag_seconds_ms
    return settings.lag_seconds_ms if own is None else own


def _rules_on(settings: AlertSettings, entry: GroupAlerts | None) -> frozenset[str]:
    switches = {
        STOPPED_RULE: (entry and entry.group_stopped) or settings.group_stopped,
        STALLED_RULE: (entry and entry.group_stalled) or settings.group_stalled,
        REWOUND_RULE: (entry and entry.group_rewound) or settings.group_rewound,
        BEYOND_END_RULE: (entry and entry.offset_beyond_log_end) or settings.offset_beyond_log_end,
        RECREATED_TOPIC_RULE: (entry and entry.offset_of_recreated_topic)
        or settings.offset_of_recreated_topic,
        LAG_RULE: "on" if _lag_ms(settings, entry) else "off",
    }
    return frozenset(rule for rule, switch in switches.items() if switch == "on")


@dataclass(frozen=True, kw_only=True)
class Worst:
    """The worst row of a subject, with the number of its offsets and groups."""

    group: str | None
    pattern: str | None
    row: Mapping[str, Any]
    offsets: int
    groups: int

    @property
    def subject(self) -> str:
        """The subject in words. Names are quoted as in JSON, so subjects are distinct."""
        return subject_of(self.group) if self.pattern is None else f"groups {_quoted(self.pattern)}"

    @property
    def source(self) -> str:
        """The place of the row's record in the offsets topic."""
        return f"{self.row['source_partition']}:{self.row['source_offset']}"

    def finding(self, severity: Severity, facts: Mapping[str, Any], *, evidence: str) -> Finding:
        """Return a finding about this subject. Summaries of groups have only the severity info."""
        return Finding(
            severity=severity if self.pattern is None else INFO,
            subject=self.subject,
            group=self.group,
            pattern=self.pattern,
            topic=self.row.get("topic"),  # rows of groups have none
            partition=self.row.get("partition"),
            source_partition=self.row["source_partition"] if self.pattern is None else None,
            facts=facts,
            evidence=evidence,
        )

    def counts(self) -> dict[str, int]:
        """Return the number of offsets and, for a summary, of groups as facts."""
        return {"offsets": self.offsets, **({} if self.pattern is None else {"groups": self.groups})}


def subject_of(group: str | None) -> str:
    return f"group {_quoted(group)}"


def _quoted(name: str | None) -> str:
    return json.dumps(name, ensure_ascii=False)


def expiring_of_each_subject(soon: pa.Table, policies: GroupPolicies, now: int) -> Iterator[Worst]:
    """Yield the subjects with offsets (n rows, with the columns of `expiry`) within the thresholds of their
    group, the soonest to expire first. Their rows also have is_critical.

    Thresholds are at most half (warning) and a quarter (critical) of the time for which an offset is kept:
    with a short retention, every commit would be a warning otherwise.
    """
    ends = to_milliseconds(soon["expires_at"]).to_numpy()
    kept = ends - to_milliseconds(pc.coalesce(soon["clock_starts_at"], soon["commit_timestamp"])).to_numpy()
    codes, groups = numbered(soon["group"])
    of_group = [policies.of(name) for name in groups.to_pylist()]
    warning = np.array([policy.warning_ms for policy in of_group], np.int64)[codes]
    critical = np.array([policy.critical_ms for policy in of_group], np.int64)[codes]
    is_warning = ends - now <= np.minimum(warning, kept // 2)
    is_critical = ends - now <= np.minimum(critical, kept // 4)
    within = where(soon.append_column("is_critical", from_mask(is_critical)), is_warning | is_critical)
    order = [("expires_at", "ascending"), ("topic", "ascending"), ("partition", "ascending")]
    return worst_of_each_subject(within, policies, order=order)


def log_starts_of(offsets: pa.Table, log_starts: Mapping[Partition, int | None]) -> pa.Array:
    """Return the log start of the partition of each of n offsets; null: it is 0 or not known."""
    known = [(topic, number, start) for (topic, number), start in log_starts.items() if start]
    topics, numbers, starts = zip(*known, strict=True) if known else ((), (), ())
    columns = {"topic": pa.array(topics, pa.string()), "partition": pa.array(numbers, pa.int32())}
    places, _ = Numbering.of(pa.table(columns), [*columns])
    codes = places.codes_of(offsets)
    return from_numbers(np.array([*starts, 0], np.int64)[codes], codes >= 0)


def below_start_of_each_subject(
    below: pa.Table, policies: GroupPolicies, log_starts: Mapping[Partition, int | None]
) -> Iterator[Worst]:
    """Yield the subjects with offsets below the start of their log, those with the most deleted records
    first. Their rows also have log_start and gone, the number of deleted records."""
    below = below.append_column("log_start", log_starts_of(below, log_starts))
    below = below.append_column("gone", lag(below["log_start"], below["committed_offset"]))
    order = [("gone", "descending"), ("topic", "ascending"), ("partition", "ascending")]
    return worst_of_each_subject(below, policies, order=order)


def worst_of_each_subject(
    rows: pa.Table, policies: GroupPolicies, *, order: Sequence[tuple[str, str]] = ()
) -> Iterator[Worst]:
    """Yield the subjects of n rows, each with its first row in `order` (as for
    `pyarrow.compute.sort_indices`; of equal rows, the one of the first group; default: the order of the
    rows)."""
    codes, encoded = numbered(rows["group"])
    names = encoded.to_pylist()
    of_group = [policies.of(name) for name in names]
    numbers, number_of_group = _numbered_subjects(names, of_group)
    number_of_row = number_of_group[codes]
    places = np.flatnonzero(number_of_row >= 0)
    counts = np.bincount(number_of_row[places], minlength=len(numbers))
    groups = np.bincount(number_of_group[number_of_group >= 0], minlength=len(numbers))
    if order:
        places = _foremost(places, number_of_row[places], rows, order[0])
        order = [*order, ("group", "ascending")]
        named = rows.select([name for name, _ in order]).take(from_numbers(places))
        places = places[pc.sort_indices(named, order).to_numpy()]
    first = np.full(len(numbers), -1)
    first[number_of_row[places[::-1]]] = places[::-1]  # of repeated indices numpy keeps the last
    found = np.flatnonzero(counts)
    worst = rows.take(from_numbers(first[found])).to_pylist()
    subjects = list(numbers)
    for number, row in zip(found, worst, strict=True):
        group, pattern = subjects[number]
        yield Worst(
            group=group,
            pattern=pattern,
            row=row,
            offsets=int(counts[number]),
            groups=int(groups[number]),
        )


def _foremost(places: Index, numbers: Index, rows: pa.Table, order: tuple[str, str]) -> Index:
    """Return the places whose value in the first column of the order is the first of their number, nulls
    last. Usually these are few, and only they need sorting. For text columns it returns all places."""
    name, direction = order
    column = rows[name]
    if pa.types.is_string(column.type):
        return places
    values = pc.cast(column, pa.int64() if pa.types.is_timestamp(column.type) else column.type)
    known = pc.is_valid(values).to_numpy()[places]
    ranks = pc.fill_null(values, 0).to_numpy()[places] * (1 if direction == "ascending" else -1)
    highest = np.inf if ranks.dtype.kind == "f" else np.iinfo(ranks.dtype).max
    ranks = np.where(known, ranks, highest)
    first = np.full(numbers.max(initial=-1) + 1, highest, ranks.dtype)
    np.minimum.at(first, numbers, ranks)
    foremost: Index = places[ranks == first[numbers]]
    return foremost


def _numbered_subjects(
    names: list[str], policies: list[GroupPolicy]
) -> tuple[dict[tuple[str | None, str | None], int], Index]:
    """Number the subjects (group, or pattern of a summary). Return them and the number of each group; -1:
    excluded."""
    numbers: dict[tuple[str | None, str | None], int] = {}
    of_group = np.full(len(names), -1, np.int64)
    for place, (name, policy) in enumerate(zip(names, policies, strict=True)):
        if not policy.is_excluded:
            subject = (name, None) if policy.pattern is None else (None, policy.pattern)
            of_group[place] = numbers.setdefault(subject, len(numbers))
    return numbers, of_group
