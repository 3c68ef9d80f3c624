"""The offsets that were removed, as the change feed tells of them."""

from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

from streaming.delta_sql import is_one_of, names, select
from streaming.schemas import CHANGES, KEY, OFFSETS

DROPS: Final = pa.schema(
    [
        *KEY,
        OFFSETS.field("committed_offset"),  # the last one; null = never readable
        *(CHANGES.field(name) for name in ("source_partition", "source_offset", "source_timestamp")),
        CHANGES.field("sequence"),
    ]
)
"""What is read of removed offsets, with the place of the tombstone."""


def drops_between(changes: DeltaTable, cause: str, *, after: int, up_to: int) -> pa.Table:
    """Read the offsets (schema `DROPS`) that were removed for a cause in a range of sequences, by key."""
    keys = names([column.name for column in KEY])
    rows = select(
        f"""
        SELECT {keys}, "before"['committed_offset'] AS "committed_offset",
            "source_partition", "source_offset", "source_timestamp", "sequence"
        FROM changes
        WHERE "sequence" > {after} AND "sequence" <= {up_to} AND "kind" = 'offset' AND "op" = 'remove'
            AND {is_one_of("cause", [cause])}
        ORDER BY {keys}, "sequence"
        """,
        changes=changes,
    )
    return rows.cast(DROPS)
