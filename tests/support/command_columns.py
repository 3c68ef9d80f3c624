"""The columns of what each command prints, and the form in which people see them."""

from typing import Final

import pyarrow as pa

from streaming.alerts.listing import ALERT_LIST
from streaming.cli.layout import forms
from streaming.cli.layout.forms import Form
from streaming.lag.log_ends import with_log_ends, with_stakes
from streaming.maintenance.maintenance import REPORT
from streaming.model.schemas import GROUPS, OFFSETS
from streaming.queries.expiring import EXPIRING
from streaming.queries.retired import PRINTED
from streaming.queries.status import STATUS, TOTALS
from streaming.tables.feed import HISTORY

COLUMNS: Final[dict[str, tuple[pa.Schema, Form]]] = {
    "offsets": (with_log_ends(OFFSETS.empty_table(), {}).schema, forms.OFFSETS),
    "groups": (GROUPS, forms.GROUPS),
    "history": (HISTORY, forms.HISTORY),
    "expiring": (with_stakes(EXPIRING.empty_table(), {}).schema, forms.EXPIRING),
    "retired": (PRINTED, forms.RETIRED),
    "status": (STATUS, forms.STATUS),
    "status --totals": (TOTALS, forms.TOTALS),
    "alerts": (ALERT_LIST, forms.ALERTS),
    "maintain": (REPORT, forms.MAINTAIN),
}
