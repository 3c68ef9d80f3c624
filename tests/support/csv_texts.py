"""Reads texts of CSV as docs/reading.md says."""

import re


def without_escapes(text: str) -> str:
    """Undo the escapes of a text in CSV that the command wrote: of formulas, and of NUL."""
    bare = text.removeprefix("'")
    return re.sub("\u2400([0\u2400])", lambda found: "\0" if found[1] == "0" else "\u2400", bare)
