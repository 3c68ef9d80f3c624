"""`/group/history`: the history of a group, a part of its page that is loaded on its own."""

from typing import Any, Final

import pyarrow as pa

from streaming.common.times import HOUR_MS, iso
from streaming.common.timestamps import to_milliseconds
from streaming.lag.rewinds import brief_words_of
from streaming.queries.as_of import AsOf
from streaming.queries.removed import removed
from streaming.serve.page.asked import Asked, AskedTables, NotFoundError
from streaming.serve.page.charts import Band, Chart, Line, bars, lines, states
from streaming.serve.page.columns import position_cell
from streaming.serve.page.listing import Row, python_rows
from streaming.serve.page.view import Document, Page
from streaming.serve.page.views.group import group_of, is_live, not_there

SPANS: Final = {"hour": HOUR_MS, "6 hours": 6 * HOUR_MS, "day": 24 * HOUR_MS, "week": 7 * 24 * HOUR_MS}
_MOMENTS: Final = 120
_LEAST_MOMENTS: Final = 4
_MOST_POINTS: Final = 150_000
_MOST_CHANGES: Final = 500_000
"""Changes of offsets of a group that one page reads; of each, some 300 bytes are in memory."""

_EVENTS: Final = 100
_NAMED: Final = 3


def page(asked: Asked) -> Page:
    """Return the history of a group: states, lag and positions, commits by hour, rewinds and removals."""
    group, span = group_of(asked), asked.word("span", tuple(SPANS), "6 hours")

    def ask(tables: AskedTables) -> Page:
        end = tables.at.moment
        start = tables.start(end - SPANS[span])
        first = tables.start(end - SPANS["week"])
        hours = tables.at.commits_by_hour([group], since=min(first, start))
        wanted, start = start, readable_since(hours, start, end)
        every_ms = max(1, (end - start) // _moments(asked, group))
        answer = tables.lag.lag_sums_over_time([group], since=start, until=end, every_ms=every_ms)
        had_offsets = any(answer.rows["partitions"].to_pylist())
        bands, commits = state_bands(tables, group, start), _commits_by_hour(hours, first, end)
        events = _events(asked, tables, group, start)
        if not bands and not had_offsets and commits is None and not events:
            raise NotFoundError(
                f"group {group!r}: expected one with changes within the last week, found none as of "
                f"{iso(end, 'seconds')}. See Removed."
            )
        return Page(
            title="History of a group",
            template="group-history.html",
            about=answer.as_of,
            is_live=False,
            context={
                "group": group,
                "span": span,
                "spans": list(SPANS),
                "states": states(start, end, bands),
                **_charts(answer.rows),
                "why_no_lag": answer.as_of.why_no_lag,
                "cut_at": start if start > wanted else None,
                "commits": commits,
                "events": events,
            },
        )

    return asked.ask(ask, about=group, held_as=("history", group, span))


def document(asked: Asked) -> Document:
    """Return the rows of `offsetlake history GROUP --since`."""
    group, span = group_of(asked), asked.word("span", tuple(SPANS), "6 hours")

    def ask(tables: AskedTables) -> Document:
        start = tables.at.moment - SPANS[span]
        answer = tables.lag.list_history([group], since=start)
        if not len(answer.rows) and not _has_history(tables, group, answer.as_of, start):
            raise NotFoundError(not_there(group, answer.as_of, tables.offsets.appears))
        return Document(rows=answer.rows, about=answer.as_of, errors=answer.errors)

    return asked.ask(ask, about=group)


def _has_history(tables: AskedTables, group: str, about: AsOf, start: int) -> bool:
    """Return whether `page` has anything to show."""
    return (
        is_live(tables, group, about)
        or len(tables.at.history([group], since=tables.start(tables.at.moment - SPANS["week"]))) > 0
        or bool(state_bands(tables, group, tables.start(start)))
    )


def state_bands(tables: AskedTables, group: str, since: int) -> list[Band]:
    """Return the states of a group since a moment (ms), as far as changes of it are kept."""
    over_time = tables.at.groups_over_time([group], since=since, until=tables.at.moment)
    rows = sorted(python_rows(over_time.select(["state", "written_at"])), key=lambda row: row["written_at"])
    ends: list[int | None] = [*(row["written_at"] for row in rows), None][1:]
    found: list[Band] = []
    for row, end in zip(rows, ends, strict=True):
        state = row["state"] or "not there"
        if found and found[-1].label == state:
            found[-1] = Band(label=state, kind=found[-1].kind, start=found[-1].start, end=end)
        else:
            found.append(Band(label=state, kind=_kind(state), start=row["written_at"], end=end))
    return found


def _kind(state: str) -> str:
    return {"Stable": "good", "Empty": "none", "not there": "absent"}.get(state, "fair")


def _moments(asked: Asked, group: str) -> int:
    """Return the number of moments of charts: fewer of a group with many partitions."""
    place = asked.snapshot.groups.place(group)
    partitions = 1 if place is None else int(asked.snapshot.offsets.counts[place])
    return max(_LEAST_MOMENTS, min(_MOMENTS, _MOST_POINTS // max(1, partitions)))


def _charts(sums: pa.Table) -> dict[str, Chart | None]:
    """Return the lag, and positions against log ends, summed over partitions (schema `LAG_SUMS`).

    Positions are unknown, too, while there are fewer partitions than at other times: their sum would jump.
    """
    at, partitions = to_milliseconds(sums["at"]).to_pylist(), sums["partitions"].to_pylist()

    def positions(name: str) -> list[float | None]:
        values = zip(sums[name].to_pylist(), partitions, strict=True)
        return [value if count == max(partitions) else None for value, count in values]

    return {
        "lag_chart": lines(
            at,
            [Line(label="lag", kind="lag", values=sums["lag"].to_pylist())],
            unit="records",
            from_zero=True,
        ),
        "position_chart": lines(
            at,
            [
                Line(label="log end offset", kind="end", values=positions("log_end_offset")),
                Line(label="committed offset", kind="committed", values=positions("committed_offset")),
            ],
            unit="offsets",
        ),
    }


def readable_since(hours: pa.Table, start: int, end: int) -> int:
    """Return the moment (ms) since which a group has about `_MOST_CHANGES` changes until `end`, given those
    by hour (schema `COMMITS_BY_HOUR`); `start` if it has no more."""
    left = _MOST_CHANGES
    counts = zip(to_milliseconds(hours["hour"]).to_pylist(), hours["changes"].to_pylist(), strict=True)
    hour: int
    count: int
    for hour, count in sorted(counts, reverse=True):
        if count > left:
            stop = min(hour + HOUR_MS, end)
            return max(start, stop - (stop - hour) * left // count)
        left -= count
    return start


def _commits_by_hour(hours: pa.Table, since: int, until: int) -> Chart | None:
    """Return the number of commits in each hour (UTC) between two moments (ms), from `COMMITS_BY_HOUR`."""
    if not len(hours):
        return None
    start = since // HOUR_MS * HOUR_MS
    counts = [0] * int((until - start) // HOUR_MS + 1)
    for hour, commits in zip(
        to_milliseconds(hours["hour"]).to_pylist(), hours["commits"].to_pylist(), strict=True
    ):
        if start <= hour <= until:
            counts[(hour - start) // HOUR_MS] = commits or 0
    return bars(
        [start + number * HOUR_MS for number in range(len(counts))], counts, step=HOUR_MS, unit="commits"
    )


def _events(asked: Asked, tables: AskedTables, group: str, since: int) -> list[dict[str, Any]]:
    """Return rewinds and removals, the newest first."""
    rewinds = python_rows(tables.lag.rewinds([group], since=since).rows)
    gone = python_rows(removed(tables.at, [group], since=since).rows)
    found = [
        {
            "at": row["committed_at"],
            "what": f"rewound from {row['offset_before']:,} to {row['committed_offset']:,}",
            "who": who(row),
            "where": position_cell(asked, row),
        }
        for row in rewinds
        if row["committed_offset"] is not None and row["offset_before"] is not None
    ]
    found += [
        {
            "at": row["removed_at"],
            "what": "removed" if row["removed_offset"] is None else f"removed at {row['removed_offset']:,}",
            "who": row["cause"] or "",
            "where": position_cell(asked, row),
        }
        for row in gone
    ]
    return sorted(found, key=lambda event: -(event["at"] or 0))[:_EVENTS]


def who(row: Row) -> str | None:
    """Return in words who can have made a commit; None: not known."""
    return brief_words_of(row["was_empty"], row["members"], most=_NAMED)
