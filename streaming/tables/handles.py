"""Tables that were opened for a commit or an answer, for the next one.

Opening a table sends an object store one LIST, and up to 2 n + 12 GET for n commits since the last
checkpoint. Bringing an open one up to date sends one LIST, and at most two GET for each new commit.
"""

from time import time
from typing import Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

_KEPT_S: Final = 60.0
"""A process that was suspended for longer opens the tables: they may have been deleted and created again."""


class TableHandles:
    """Open tables that nothing uses at present. One that is taken belongs to the caller until it is put back,
    so threads can share this object."""

    def __init__(self) -> None:
        self._idle: dict[str, tuple[DeltaTable, float]] = {}

    def taken(self, uri: str) -> DeltaTable | None:
        """Return the current version of a table that was put back; None: open it."""
        table, since = self._idle.pop(uri, (None, 0.0))
        if table is None or abs(time() - since) > _KEPT_S:
            return None
        try:
            table.update_incremental()
        except (DeltaError, OSError):  # its log was replaced, or opening it finds the reason
            return None
        return table

    def put_back(self, uri: str, table: DeltaTable) -> None:
        """Keep a table that the caller uses no more."""
        self._idle[uri] = table, time()
