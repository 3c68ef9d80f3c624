"""The type of an alert rule, and functions that several rules use."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce

import numpy as np
import pyarrow as pa

from streaming.alerts.episodes import Episode, Finding, Judgement
from streaming.alerts.rules.view import RuleContext
from streaming.common.arrays import Mask, where
from streaming.common.times import iso, to_ms


@dataclass(frozen=True, kw_only=True)
class AlertRule:
    """One alert rule.

    `judge` returns the findings. `sentence` is the message about a finding, or a function that returns it,
    with the names of facts in braces, and `{subject}`, `{place}` (the worst topic partition), `{offsets}` and
    `{partitions}` (their number, and the number of groups). `labels` returns the labels by which Alertmanager
    distinguishes alerts of this rule, besides severity and group. With `remembers_closed` the rule also gets
    the newest closed episode of each subject, and maintenance never drops these
    (`schemas.UNKNOWN_RECORD_VERSION`).

    `of_offsets` selects the offsets for `judge`, given a part of all offsets; `of_positions` selects rows of
    both tables of `LagRows`. Without them `judge` gets none. They should select few rows: of a large table,
    only the selected rows of all parts are in memory together.
    """

    id: str
    judge: Callable[[RuleContext], Judgement]
    sentence: str | Callable[[Finding], str]
    labels: Callable[[Finding], Mapping[str, object]] = lambda _: {}
    remembers_closed: bool = False
    of_offsets: Callable[[RuleContext], Mask] | None = None
    of_positions: Callable[[RuleContext, pa.Table], Mask] | None = None

    def offsets_in(self, view: RuleContext) -> Mask:
        return np.zeros(len(view.offsets), np.bool_) if self.of_offsets is None else self.of_offsets(view)

    def positions_in(self, view: RuleContext, rows: pa.Table) -> Mask:
        return np.zeros(len(rows), np.bool_) if self.of_positions is None else self.of_positions(view, rows)


def selected_by(rules: Iterable[AlertRule], view: RuleContext) -> RuleContext:
    """Return the view with only those offsets and positions that any of the rules selects."""
    rules = list(rules)

    def positions(rows: pa.Table) -> pa.Table:
        return where(rows, _any(rule.positions_in(view, rows) for rule in rules))

    lag = view.lag
    return replace(
        view,
        offsets=where(view.offsets, _any(rule.offsets_in(view) for rule in rules)),
        lag=lag and replace(lag, offsets=positions(lag.offsets), uncommitted=positions(lag.uncommitted)),
    )


def _any(masks: Iterable[Mask]) -> Mask:
    return reduce(np.logical_or, masks)


def is_recent(view: RuleContext) -> Callable[[Episode], bool]:
    """Return a predicate: whether an open episode changed within `close_after`."""
    return lambda episode: view.now - episode.updated_at < view.settings.close_after_ms


def text(moment: datetime | None) -> str | None:
    """Return a time as text for facts (ISO 8601, UTC)."""
    return None if moment is None else iso(to_ms(moment))
