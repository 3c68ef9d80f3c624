"""The table `alerts`: one row per episode, with its deliveries to each receiver.

An evaluation writes its changes in one commit, together with the sequence of `changes` up to which it has
read (an application transaction). The commit succeeds only on the version of the table that was read: of two
concurrent evaluations, the second sees what the first wrote. Deliveries are recorded in separate commits.
"""

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError

from streaming.alerts.episodes import Episode, Finding
from streaming.common.retries import retried
from streaming.common.times import from_ms, to_ms
from streaming.model.errors import OffsetlakeError
from streaming.model.schemas import ALERTS, TIMESTAMPS
from streaming.tables.files import replace_rows
from streaming.tables.select import FilesGoneError, names, select
from streaming.tables.tables import Tables

MARK: Final = "offsetlake.alerts"
"""Application id of the sequence of `changes` up to which dropped offsets were evaluated."""

REWINDS_MARK: Final = "offsetlake.alerts.rewinds"
"""Application id of the sequence of `changes` up to which rewinds were evaluated and are decided."""

_ATTEMPTS: Final = 5
_EPISODE_COLUMNS: Final = [name for name in ALERTS.names if name != "deliveries"]

T = TypeVar("T")


class AlertsConflictError(OffsetlakeError):
    """Another writer changed the alerts at the same time; nothing was written."""


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """The last delivery of an episode to one receiver; revision 0: none yet. Times are in milliseconds.

    A revision that the receiver has finally refused counts like a delivered one, and has an `error`.
    """

    receiver: str
    revision: int = 0
    severity: str | None = None
    delivered_at: int | None = None
    failing_since: int | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class TrackedEpisode:
    """An episode, and its deliveries by receiver."""

    episode: Episode
    deliveries: Mapping[str, Delivery]

    def to(self, receiver: str) -> Delivery:
        """Return the delivery to a receiver; revision 0 if it has none."""
        return self.deliveries.get(receiver, Delivery(receiver=receiver))

    def is_pending_for(self, receiver: str) -> bool:
        """Return whether a delivery to the receiver is pending: never for receivers added after the
        episode closed."""
        is_meant = self.episode.is_open or receiver in self.deliveries
        return is_meant and self.to(receiver).revision < self.episode.revision

    def is_refused_by(self, receiver: str) -> bool:
        """Return whether the receiver has finally refused the newest revision."""
        return not self.is_pending_for(receiver) and self.to(receiver).error is not None


@dataclass(frozen=True)
class AlertState:
    """The alerts as of one version of the table."""

    table: DeltaTable
    rows: pa.Table

    @property
    def mark(self) -> int:
        """The sequence of `changes` up to which dropped offsets were evaluated."""
        return self.table.transaction_version(MARK) or 0

    @property
    def rewinds_mark(self) -> int:
        """The sequence of `changes` up to which rewinds were evaluated; in tables without it, `mark`."""
        recorded = self.table.transaction_version(REWINDS_MARK)
        return self.mark if recorded is None else recorded

    def episodes(self) -> list[TrackedEpisode]:
        return _tracked(self.rows)

    def open_episodes(self) -> list[TrackedEpisode]:
        return _tracked(self.rows.filter(pc.is_null(self.rows["closed_at"])))

    def newest_of_rule(self, rule: str) -> list[Episode]:
        """Return the newest episode of each subject of a rule, open or closed."""
        episodes = [
            tracked.episode for tracked in _tracked(self.rows.filter(pc.equal(self.rows["rule"], rule)))
        ]
        episodes.sort(key=lambda episode: episode.opened_at)
        return list({episode.finding.subject: episode for episode in episodes}.values())

    def last_revision(self, identity: str) -> int:
        """Return the revision of the episode with this id; 0 if there is none."""
        return self._revisions.get(identity, 0)

    @cached_property
    def _revisions(self) -> Mapping[str, int]:
        return dict(zip(self.rows["id"].to_pylist(), self.rows["revision"].to_pylist(), strict=True))

    def pending(self, receiver: str) -> list[TrackedEpisode]:
        """Return the episodes that are pending for the receiver, in the order in which they changed."""
        is_open = pc.is_null(self.rows["closed_at"])
        candidates = _tracked(self.rows.filter(pc.or_(is_open, self._has_behind())))
        pending = [tracked for tracked in candidates if tracked.is_pending_for(receiver)]
        return sorted(pending, key=lambda tracked: (tracked.episode.updated_at, tracked.episode.id))

    def undelivered(self) -> list[TrackedEpisode]:
        """Return the episodes that are pending for any receiver."""
        return _tracked(self.rows.filter(self._has_behind()))

    def news_for_others(self, receivers: Sequence[str], *, before: int) -> list[TrackedEpisode]:
        """Return the episodes that changed before a moment (ms) and are pending for receivers other than
        these."""
        return [
            tracked
            for tracked in self.undelivered()
            if tracked.episode.updated_at < before and _without_news(tracked, receivers) != tracked.deliveries
        ]

    def _has_behind(self) -> pa.Array:
        """Return for each row whether its revision is pending for a receiver."""
        deliveries, parents = _flattened(self.rows["deliveries"])
        newest = self.rows["revision"].combine_chunks().take(parents)
        is_behind = pc.less(pc.struct_field(deliveries, "revision"), newest)
        numbers = pa.array(range(len(self.rows)), pa.int64())
        return pc.is_in(numbers, value_set=parents.filter(is_behind).cast(pa.int64()))


class AlertTable:
    """The table of alerts. All threads of a process share one object."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lock = threading.Lock()  # avoids conflicts between threads of this process

    def read(self) -> AlertState:
        return retried(FilesGoneError, self._read)  # maintenance removed files meanwhile

    def update(
        self,
        state: AlertState,
        change: Callable[[AlertState], list[Episode]],
        *,
        mark: int,
        rewinds_mark: int | None = None,
        receivers: Sequence[str],
    ) -> list[Episode]:
        """Write the episodes that `change` returns for the alerts, with the new marks (`rewinds_mark` None:
        as `mark`), and return them.

        `state` was just read. Nothing is written if nothing changes. Opened episodes become pending for
        `receivers`. If others wrote in between, `change` is called again with the new state. Raises
        `AlertsConflictError`.
        """
        marks = {MARK: mark, REWINDS_MARK: mark if rewinds_mark is None else rewinds_mark}
        with self._lock:
            return self._until_written(lambda held: self._update(held, change, marks, receivers), state)

    def note(self, deliveries: Mapping[str, Delivery]) -> None:
        """Record deliveries, by episode id. Raises `AlertsConflictError`."""
        with self._lock:
            self._until_written(lambda state: self._note(state, deliveries))

    def drop_news_for_others(self, receivers: Sequence[str], *, before: int) -> None:
        """Drop what changed before a moment (ms) and is pending for receivers other than these. Raises
        `AlertsConflictError`."""
        with self._lock:
            self._until_written(lambda state: self._drop(state, receivers, before))

    def _read(self) -> AlertState:
        table = self._tables.delta("alerts")
        rows = select(f"SELECT {names(ALERTS.names)} FROM alerts", alerts=table)
        return AlertState(table, rows.cast(ALERTS).combine_chunks())

    def _until_written(self, write: Callable[[AlertState], T], state: AlertState | None = None) -> T:
        """Write on top of `state` (None: read it first). Retry if others (maintenance, an evaluation,
        another process) wrote in between."""
        read = chain([] if state is None else [state], iter(self.read, None))
        try:
            return retried(CommitFailedError, lambda: write(next(read)), _ATTEMPTS)
        except CommitFailedError as error:
            raise AlertsConflictError(
                f"writing alerts under {self._tables.root}: expected no other writer meanwhile, "
                f"found other commits at {_ATTEMPTS} attempts. Nothing was written; it will be retried."
            ) from error

    def _update(
        self,
        state: AlertState,
        change: Callable[[AlertState], list[Episode]],
        marks: Mapping[str, int],
        receivers: Sequence[str],
    ) -> list[Episode]:
        changed = change(state)
        if changed:
            rows = [
                _row(TrackedEpisode(episode=episode, deliveries=_no_deliveries(receivers)))
                for episode in changed
            ]
            held = {MARK: state.mark, REWINDS_MARK: state.rewinds_mark}
            reached = [Transaction(name, max(mark, held[name])) for name, mark in marks.items()]
            self._merge(state, rows, _EPISODE_COLUMNS, reached)
        return changed

    def _note(self, state: AlertState, deliveries: Mapping[str, Delivery]) -> None:
        wanted = pc.is_in(state.rows["id"], value_set=pa.array(deliveries, pa.string()))
        recorded = [
            _with_delivery(tracked, deliveries[tracked.episode.id])
            for tracked in _tracked(state.rows.filter(wanted))
        ]
        self._merge(state, [_row(tracked) for tracked in recorded], ["deliveries"], [])

    def _drop(self, state: AlertState, receivers: Sequence[str], before: int) -> None:
        left = [
            replace(tracked, deliveries=_without_news(tracked, receivers))
            for tracked in state.news_for_others(receivers, before=before)
        ]
        if left:
            self._merge(state, [_row(tracked) for tracked in left], ["deliveries"], [])

    def _merge(
        self, state: AlertState, rows: list[dict[str, Any]], updated: list[str], marks: list[Transaction]
    ) -> None:
        """Write rows on top of the version that was read. Raises `CommitFailedError` on a conflict.

        Of rows whose id exists already, only the columns `updated` are replaced.
        """
        if not rows:
            return
        commit = CommitProperties(app_transactions=marks, max_commit_retries=0)
        merged = _merged(state.rows, pa.Table.from_pylist(rows, ALERTS), updated)
        replace_rows(state.table, self._tables.storage(state.table), merged, commit)


def _merged(held: pa.Table, rows: pa.Table, updated: Sequence[str]) -> pa.Table:
    """Return the rows `held`, with `rows` (schema `ALERTS`) appended, or, for ids that exist, with the
    columns `updated` replaced."""
    places = pc.index_in(rows["id"], value_set=held["id"])
    before, is_new = held.take(places), pc.is_null(places)
    columns = [
        rows[name] if name in updated else pc.if_else(is_new, rows[name], before[name])
        for name in ALERTS.names
    ]
    others = held.filter(pc.invert(pc.is_in(held["id"], value_set=rows["id"])))
    return pa.concat_tables([others, pa.table(columns, schema=ALERTS)])


def _flattened(lists: pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """Return the concatenated items of all lists, and the number of the list of each item."""
    array = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], lists.type)
    return pc.list_flatten(array), pc.list_parent_indices(array)


def _no_deliveries(receivers: Iterable[str]) -> dict[str, Delivery]:
    return {receiver: Delivery(receiver=receiver) for receiver in receivers}


def _without_news(tracked: TrackedEpisode, receivers: Sequence[str]) -> dict[str, Delivery]:
    """Return the deliveries without those pending for receivers other than these."""
    return {
        name: delivery
        for name, delivery in tracked.deliveries.items()
        if name in receivers or not tracked.is_pending_for(name)
    }


def _with_delivery(tracked: TrackedEpisode, delivery: Delivery) -> TrackedEpisode:
    return replace(tracked, deliveries={**tracked.deliveries, delivery.receiver: delivery})


def _row(tracked: TrackedEpisode) -> dict[str, Any]:
    episode = tracked.episode
    row = vars(episode) | vars(episode.finding)
    row["facts"] = json.dumps(episode.finding.facts, ensure_ascii=False)
    row["deliveries"] = [_in_table(vars(delivery)) for _, delivery in sorted(tracked.deliveries.items())]
    return _in_table({name: row[name] for name in ALERTS.names})


def _tracked(rows: pa.Table) -> list[TrackedEpisode]:
    return [_tracked_of(_in_memory(row)) for row in rows.to_pylist()]


def _tracked_of(row: Mapping[str, Any]) -> TrackedEpisode:
    finding = {field.name: row[field.name] for field in fields(Finding) if field.name in row}
    episode = {field.name: row[field.name] for field in fields(Episode) if field.name in row}
    deliveries = [Delivery(**_in_memory(delivery)) for delivery in row["deliveries"] or []]
    return TrackedEpisode(
        episode=Episode(**episode, finding=Finding(**finding | {"facts": json.loads(row["facts"])})),
        deliveries={delivery.receiver: delivery for delivery in deliveries},
    )


def _in_table(row: Mapping[str, Any]) -> dict[str, Any]:
    """Convert milliseconds to datetimes, from which Arrow makes timestamps."""
    return {name: from_ms(value) if name in TIMESTAMPS else value for name, value in row.items()}


def _in_memory(row: Mapping[str, Any]) -> dict[str, Any]:
    """Convert datetimes to milliseconds."""
    return {name: to_ms(value) if isinstance(value, datetime) else value for name, value in row.items()}
