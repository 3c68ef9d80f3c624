"""The bounds of texts as the Delta log has them: true ones, and short.

Other engines pass over a file whose bounds leave no room for what they look for; the data set of delta-rs
passes over a file that has only one of two bounds, too. So every text has both: beginnings of long ones, the
greatest counted up by one.
"""

from typing import Final

LONGEST_BOUND: Final = 256
"""Characters of a bound: what is longer is not worth its place in the log."""

_LAST: Final = "\U0010ffff"


def least_bound(text: str) -> str:
    """Return a text of at most `LONGEST_BOUND` characters that is not greater than this one."""
    return text[:LONGEST_BOUND]


def greatest_bound(text: str) -> str:
    """Return a text of at most `LONGEST_BOUND` characters that is not less than this one.

    Texts are compared by their characters, which is by their bytes in UTF-8. One that begins with so many of
    the last character has no such bound, and is returned as a whole.
    """
    if len(text) <= LONGEST_BOUND:
        return text
    start = text[:LONGEST_BOUND].rstrip(_LAST)
    return start[:-1] + _next(start[-1]) if start else text


def _next(character: str) -> str:
    """Return the character after one. Between U+D7FF and U+E000 there are only surrogates, which are none."""
    return "\ue000" if character == "\ud7ff" else chr(ord(character) + 1)
