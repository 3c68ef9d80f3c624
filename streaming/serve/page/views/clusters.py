"""`/clusters`: all clusters, one line each, if there are several."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from markupsafe import Markup

from streaming.common.arrays import from_texts
from streaming.common.timestamps import to_timestamps
from streaming.model.schemas import TIMESTAMP
from streaming.serve.page import cells
from streaming.serve.page.asked import Asked, NotAssessedError, PageCluster
from streaming.serve.page.columns import count_column
from streaming.serve.page.listing import Column, Row, listing
from streaming.serve.page.view import Document, Page
from streaming.serve.page.views.overview import numbers_of

_COUNTED: Final = (
    *("groups", "committed_offsets", "offsets_partitions", "offsets_partitions_complete"),
    *("alerts_open", "alerts_critical", "expiring_within_a_day"),
)


def page(asked: Asked) -> Page:
    return Page(
        title="Clusters",
        template="clusters.html",
        about=None,
        context={"found": listing(asked, _rows(asked), _columns(asked), empty="There is no cluster.")},
    )


def document(asked: Asked) -> Document:
    return Document(rows=_rows(asked), about=asked.about)


def _rows(asked: Asked) -> pa.Table:
    """Return the numbers of each cluster; all but those of its tables are null until it was read."""
    for cluster in asked.clusters:  # so that all assess at the same time
        cluster.served.refresher.ask()
    found = [_numbers(asked, cluster) for cluster in asked.clusters]
    columns: dict[str, Any] = {
        "cluster": from_texts([cluster.name for cluster in asked.clusters]),
        "heartbeat": to_timestamps(_column(found, "heartbeat_at", pa.int64())),
        **{name: _column(found, name, pa.int64()) for name in _COUNTED},
        "largest_lag_seconds": _column(found, "largest_lag_seconds", pa.float64()),
        "problem": pa.array([_problem(asked, cluster) for cluster in asked.clusters], pa.string()),
    }
    assert columns["heartbeat"].type == TIMESTAMP
    return pa.table(columns)


def _numbers(asked: Asked, cluster: PageCluster) -> dict[str, Any]:
    own = Asked(path=asked.path, parameters={}, cluster=cluster, now=asked.now)
    try:
        return numbers_of(own) if own.snapshot.progress.partitions else {}
    except NotAssessedError:
        return {}


def _column(rows: Sequence[dict[str, Any]], name: str, kind: pa.DataType) -> pa.Array:
    return pa.array([row.get(name) for row in rows], kind)


def _problem(asked: Asked, cluster: PageCluster) -> str | None:
    """Return why the numbers of a cluster are not complete; None: they are."""
    about = Asked(path=asked.path, parameters={}, cluster=cluster, now=asked.now).about
    return next(iter([*cluster.failures(), *about.silence(), *about.shortcomings()]), None)


def _columns(asked: Asked) -> list[Column]:
    def name(row: Row) -> Markup:
        return cells.link(row["cluster"], f"/?cluster={row['cluster']}")

    def complete(row: Row) -> str:
        known = row["offsets_partitions"]
        return "" if known is None else f"{row['offsets_partitions_complete']} of {known}"

    def alerts(row: Row) -> Markup:
        critical = Markup(" ") + cells.pill("critical") if row["alerts_critical"] else Markup("")
        return cells.count(row["alerts_open"]) + critical

    return [
        Column(head="Cluster", cell=name, sort="cluster"),
        Column(head="Job's heartbeat", cell=lambda row: cells.ago(row["heartbeat"], asked.now)),
        Column(head="Partitions complete", cell=complete, is_number=True),
        Column(head="Groups", cell=lambda row: cells.count(row["groups"]), sort="groups", is_number=True),
        count_column("Offsets", "committed_offsets"),
        Column(head="Open alerts", cell=alerts, sort="alerts_open", is_number=True),
        count_column("Expire within a day", "expiring_within_a_day"),
        Column(
            head="Longest lag time",
            cell=lambda row: cells.span(row["largest_lag_seconds"]),
            sort="largest_lag_seconds",
            is_number=True,
            is_first_high=True,
        ),
        Column(head="Problem", cell=lambda row: cells.sentence(row["problem"] or "")),
    ]
