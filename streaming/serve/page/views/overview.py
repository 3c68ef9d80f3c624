"""`/`: how complete everything is, what is wrong, what will be lost, who is furthest behind."""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import from_texts, to_numbers
from streaming.common.times import DAY_MS, HOUR_MS
from streaming.common.timestamps import to_milliseconds
from streaming.queries.removed import removed
from streaming.serve.assessment.assessment import Assessment
from streaming.serve.page.asked import Asked, AskedTables
from streaming.serve.page.assessed import expiring_rows, group_rows, loaded_offsets
from streaming.serve.page.listing import ordered, python_rows
from streaming.serve.page.view import Document, Page
from streaming.serve.page.views.group_history import who

_FEW: Final = 5
_EVENTS: Final = 10
_EVENTS_MS: Final = 6 * HOUR_MS


def page(asked: Asked) -> Page:
    rows, alerts = asked.remembered(group_rows), asked.snapshot.alerts
    expiring = asked.remembered(_soonest)
    return Page(
        title="Overview",
        template="overview.html",
        about=asked.about,
        lag_at=asked.assessment.moment,
        context={
            **numbers_of(asked),
            "is_retention_known": asked.retention_ms is not None,
            "alerts": python_rows(alerts.slice(0, _FEW)),
            "expiring": python_rows(expiring.slice(0, _FEW)),
            "behind": python_rows(rows.take(pa.array(ordered(rows, "lag_seconds", is_falling=True)[:_FEW]))),
            "has_groups": len(rows) > 0,
        },
    )


def document(asked: Asked) -> Document:
    """Return the numbers of the page, one row each: name and value."""
    numbers = numbers_of(asked)
    values = [None if value is None else float(value) for value in numbers.values()]
    rows = pa.table({"name": from_texts(list(numbers)), "value": pa.array(values, pa.float64())})
    return Document(rows=rows, about=asked.about)


def events(asked: Asked) -> Page:
    """Return the newest rewinds and removed offsets."""

    def ask(tables: AskedTables) -> Page:
        since = tables.at.moment - _EVENTS_MS
        back = tables.lag.rewinds_among(tables.at.recent_rewinds(asked.cluster.rewinds, since=since)).rows
        gone = removed(tables.at, since=since)
        newest = back.take(pa.array(ordered(back, "committed_at", is_falling=True)[:_EVENTS]))
        return Page(
            title="Rewinds and removed offsets",
            template="events.html",
            about=gone.about,
            is_live=False,
            context={
                "rewinds": [{**row, "who": who(row)} for row in python_rows(newest)],
                "rewinds_in_all": len(back),
                "removed": python_rows(gone.rows.slice(0, _EVENTS)),
                "removed_in_all": len(gone.rows),
                "hours": _EVENTS_MS // HOUR_MS,
            },
        )

    return asked.ask(ask)


def events_document(asked: Asked) -> Document:
    """Return the rewinds of the last hours."""

    def ask(tables: AskedTables) -> Document:
        answer = tables.lag.rewinds(None, since=tables.at.moment - _EVENTS_MS)
        return Document(rows=answer.rows, about=answer.as_of)

    return asked.ask(ask)


def numbers_of(asked: Asked) -> dict[str, Any]:
    """Return the numbers of a cluster by name; None: unknown."""
    rows, states = asked.remembered(group_rows), list(asked.about.states.values())
    moments = to_numbers(to_milliseconds(asked.remembered(expiring_rows)["expires_at"]))
    severities = asked.snapshot.alerts["severity"].to_pylist()
    within_a_day = int((moments <= asked.now + DAY_MS).sum())
    return {
        "groups": len(rows),
        "groups_with_members": int(pc.sum(pc.greater(rows["members"], 0)).as_py() or 0),
        "committed_offsets": loaded_offsets(asked.assessment.snapshot),
        "offsets_partitions": len(states),
        "offsets_partitions_complete": states.count("current"),
        "commits_per_minute": asked.cluster.commits_per_minute(asked.now),
        "alerts_open": len(severities),
        "alerts_critical": severities.count("critical"),
        "alerts_warning": severities.count("warning"),
        "expiring_within_a_day": None if asked.retention_ms is None else within_a_day,
        "largest_lag_seconds": pc.max(rows["lag_seconds"]).as_py(),
        "largest_lag_is_at_least": bool(pc.any(rows["lag_is_at_least"]).as_py()),
        "heartbeat_at": asked.snapshot.progress.heartbeat or None,
    }


def _soonest(assessment: Assessment) -> pa.Table:
    """Return the soonest expiries by group and topic: with the first moment and the number of offsets."""
    rows = expiring_rows(assessment)
    if not len(rows):
        return rows.append_column("offsets", pa.nulls(0, pa.int64()))
    found = rows.group_by(["group", "topic"], use_threads=False).aggregate(
        [("expires_at", "min"), ("partition", "count"), ("rule", "first")]
    )
    names = {"expires_at_min": "expires_at", "partition_count": "offsets", "rule_first": "rule"}
    found = found.rename_columns([names.get(name, name) for name in found.column_names])
    return found.sort_by([("expires_at", "ascending")])
