"""The offsets that were removed, as the change feed tells of them."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

from streaming.model.schemas import CHANGES, KEY, OFFSETS, TIMESTAMP
from streaming.tables.formats import is_of_groups
from streaming.tables.select import is_one_of, names, select

DROPS: Final = pa.schema(
    [
        *KEY,
        OFFSETS.field("committed_offset"),  # the last one; null = never readable
        *(CHANGES.field(name) for name in ("source_partition", "source_offset", "source_timestamp")),
        CHANGES.field("sequence"),
    ]
)
"""What is read of removed offsets, with the place of the tombstone."""

REMOVALS: Final = pa.schema(
    [
        *KEY,
        OFFSETS.field("committed_offset"),  # the last before it went; null = it was never readable
        pa.field("removed_at", TIMESTAMP),  # of the record that removed it
        CHANGES.field("cause"),  # one of `causes.CAUSES`
        CHANGES.field("sequence"),  # of the batch: which of two removals came later, whatever the clocks say
    ]
)
"""What is read of removed offsets for people."""


def drops_between(changes: DeltaTable, cause: str, *, after: int, up_to: int) -> pa.Table:
    """Read the offsets (schema `DROPS`) that were removed for a cause in a range of sequences, the last
    first."""
    keys = names([column.name for column in KEY])
    rows = select(
        f"""
        SELECT {keys}, "before"['committed_offset'] AS "committed_offset",
            "source_partition", "source_offset", "source_timestamp", "sequence"
        FROM changes
        WHERE "sequence" > {after} AND "sequence" <= {up_to} AND "kind" = 'offset' AND "op" = 'remove'
            AND {is_one_of("cause", [cause])}
        ORDER BY "sequence" DESC, {keys}
        """,
        changes=changes,
    )
    return rows.cast(DROPS)


def removals_of(changes: DeltaTable, groups: Sequence[str] | None, *, up_to: int) -> pa.Table:
    """Read the offsets (schema `REMOVALS`) that were removed up to a sequence.

    Of all groups or of the named ones, in no order. Left out are tombstones of offsets that were not held:
    what they removed is not known.
    """
    conditions = [
        f""""sequence" <= {up_to} AND "kind" = 'offset' AND "op" = 'remove' AND "before" IS NOT NULL""",
        "true" if groups is None else is_of_groups(changes, groups),
    ]
    rows = select(
        f"""
        SELECT {names([column.name for column in KEY])}, "before"['committed_offset'] AS "committed_offset",
            "source_timestamp" AS "removed_at", "cause", "sequence"
        FROM changes WHERE {" AND ".join(conditions)}
        """,
        changes=changes,
    )
    return rows.cast(REMOVALS)
