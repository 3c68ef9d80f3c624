"""CSV lines: exact for programs, and safe in spreadsheets and in readers of C strings.

Null is nothing, empty text is "": the `csv` module would write both the same way.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

from streaming.common.escapes import json_text

_NUL: Final = str.maketrans({"\0": "\u24000", "\u2400": "\u2400\u2400"})
"""NUL becomes U+2400 (symbol for null) and the digit 0; U+2400 is doubled, so that this can be undone."""

_ACTS: Final = re.compile("['\\t\\r\\n]|\\s*[=+\\-@\uff1d\uff0b\uff0d\uff20]")
"""Starts of text that a spreadsheet may read as a formula: it may skip blanks, and full-width signs count in
some languages. Also the apostrophe, to distinguish it from an added one."""


def harmless(text: str) -> str:
    """Escape a text so that no spreadsheet reads it as a formula, and no reader stops at NUL.

    To undo it, strip one leading apostrophe, then replace the escapes of NUL from left to right.

    >>> harmless("=1+1"), harmless("'a"), harmless("a\\0"), harmless("a=1")
    ("'=1+1", "''a", 'a\u24000', 'a=1')
    """
    written = text.translate(_NUL)
    return f"'{written}" if _ACTS.match(text) else written


def csv_text(value: Any) -> str:
    """Return the text of a value that is not null: JSON for lists and structs."""
    return value if isinstance(value, str) else json_text(value)


def csv_line(values: Iterable[Any]) -> str:
    """Return a line of CSV without line end: nothing for null, "" for empty text."""
    return ",".join(map(_csv_value, values))


def _csv_value(value: Any) -> str:
    if value is None:
        return ""
    text = csv_text(value)
    is_bare = text and not any(sign in text for sign in ',"\r\n')
    return text if is_bare else '"' + text.replace('"', '""') + '"'
