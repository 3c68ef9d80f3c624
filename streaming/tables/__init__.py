"""The Delta tables: appending batches, folding them, and reading them as of any batch.

`Tables` holds all tables of one root; a `Snapshot` is their content as of one batch. Reading needs no package
above this one.
"""

from streaming.tables.snapshot import LiveRows, Snapshot
from streaming.tables.tables import Tables, TablesMissingError

__all__ = ["LiveRows", "Snapshot", "Tables", "TablesMissingError"]
