"""The format of the tables, which each table keeps as a property."""

from typing import Final

from deltalake import DeltaTable

from streaming.model.errors import MisuseError, OtherFormatError
from streaming.model.schemas import TABLES_FORMAT

FORMAT_PROPERTY: Final = "offsetlake.format"
"""The table property with the number of its format; tables of the first format lack it."""


def refuse_other_format(table: DeltaTable, where: str) -> None:
    """Raise `OtherFormatError` where another release wrote a table."""
    said = table.metadata().configuration.get(FORMAT_PROPERTY, "1")
    try:
        found = int(said)
    except ValueError:
        raise MisuseError(
            f"table {where}: expected a number as its property {FORMAT_PROPERTY}, found {said!r}. Set it "
            f"to the format of the table (this release writes {TABLES_FORMAT})."
        ) from None
    if found != TABLES_FORMAT:
        raise OtherFormatError(f"table {where}", expected=TABLES_FORMAT, found=found)
