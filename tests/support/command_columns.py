"""The columns of what each command prints, and the form in which people see them."""

from typing import Final

import pyarrow as pa

from streaming.alerts.listing import ALERT_LIST
from streaming.assessment.explained import LAG_SECONDS_REASON
from streaming.assessment.owners import OWNER
from streaming.cli.layout import forms
from streaming.cli.layout.forms import Form
from streaming.lag.health import GROUP_HEALTH
from streaming.lag.health_over_time import STATUS_CHANGES
from streaming.lag.lagging import LAGGING
from streaming.lag.log_ranges import LAG, with_log_ends, with_stakes
from streaming.lag.recreated_topic import OF_RECREATED_TOPIC
from streaming.lag.summary import LAG_BY
from streaming.maintenance.maintenance import REPORT
from streaming.model.schemas import GROUPS, KEY, OFFSETS, TIMESTAMP
from streaming.queries.expiring import EXPIRING
from streaming.queries.leftovers import LEFTOVERS
from streaming.queries.members import MEMBERS, in_words
from streaming.queries.removed import PRINTED
from streaming.queries.status import STATUS, TOTALS
from streaming.tables.feed import HISTORY

SERIES: Final = pa.schema(
    [("at", TIMESTAMP), *KEY, ("committed_offset", pa.int64()), *LAG, ("commit_timestamp", TIMESTAMP)]
)


def _members(*, verbose: bool) -> pa.Schema:
    return in_words(MEMBERS.empty_table(), verbose=verbose).schema


COLUMNS: Final[dict[str, tuple[pa.Schema, Form]]] = {
    "offsets": (
        pa.schema(
            [
                *with_log_ends(OFFSETS.empty_table(), {}).schema,
                LAG_SECONDS_REASON,
                OF_RECREATED_TOPIC,
                *OWNER,
            ]
        ),
        forms.OFFSETS,
    ),
    "groups": (GROUPS, forms.GROUPS),
    "groups --members": (_members(verbose=False), forms.MEMBERS),
    "groups --members --verbose": (_members(verbose=True), forms.MEMBERS_VERBOSE),
    "lag": (pa.schema([*LAG_BY["group"], *LAGGING]), forms.LAG),
    "lag --by topic": (pa.schema([*LAG_BY["topic"], *LAGGING]), forms.LAG_BY_TOPIC),
    "health": (GROUP_HEALTH, forms.HEALTH),
    "health --since": (STATUS_CHANGES, forms.STATUS_CHANGES),
    "history": (with_log_ends(HISTORY.empty_table(), {}).schema, forms.HISTORY),
    "history --event rewind": (
        with_log_ends(HISTORY.empty_table(), {}).schema.append(pa.field("by", pa.string())),
        forms.REWINDS,
    ),
    "history --every": (SERIES, forms.SERIES),
    "expiring": (with_stakes(EXPIRING.empty_table(), {}).schema, forms.EXPIRING),
    "leftovers": (LEFTOVERS, forms.LEFTOVERS),
    "removed": (PRINTED, forms.REMOVED),
    "status": (STATUS, forms.STATUS),
    "status --totals": (TOTALS, forms.TOTALS),
    "alerts": (ALERT_LIST, forms.ALERTS),
    "maintain": (REPORT, forms.MAINTAIN),
}
