"""The Delta tables: appending batches, folding them, and reading them as of any batch.

`Tables` is one root with all tables; a `Snapshot` is what they held as of one batch. Reading them needs
nothing above this package.
"""

from streaming.tables.snapshot import LiveRows, Snapshot
from streaming.tables.tables import Tables, TablesMissingError

__all__ = ["LiveRows", "Snapshot", "Tables", "TablesMissingError"]
