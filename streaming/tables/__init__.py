"""The Delta tables: appending batches, folding them, and reading them as they were at any moment.

`Tables` is one root with all tables. Who only reads them needs nothing above this room.
"""

from streaming.tables.tables import Tables, TablesMissingError

__all__ = ["Tables", "TablesMissingError"]
