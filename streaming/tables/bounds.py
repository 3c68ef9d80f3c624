"""The bounds of texts in the Delta log: correct and short.

Other engines skip a file whose bounds exclude the value they look for; the dataset of delta-rs also skips a
file that has only one of the two bounds. So every text column has both. Bounds of long texts are prefixes;
the last character of an upper bound is incremented.
"""

from typing import Final

LONGEST_BOUND: Final = 256
"""Characters of a bound; longer bounds would only lengthen the log."""

_LAST: Final = "\U0010ffff"


def least_bound(text: str) -> str:
    """Return a text of at most `LONGEST_BOUND` characters that is not greater than this one."""
    return text[:LONGEST_BOUND]


def greatest_bound(text: str) -> str:
    """Return a text of at most `LONGEST_BOUND` characters that is not less than this one.

    Texts compare by code points, which is the order of their UTF-8 bytes. A text that begins with
    `LONGEST_BOUND` times the last code point has no such bound and is returned whole.
    """
    if len(text) <= LONGEST_BOUND:
        return text
    start = text[:LONGEST_BOUND].rstrip(_LAST)
    return start[:-1] + _next(start[-1]) if start else text


def _next(character: str) -> str:
    """Return the next code point; surrogates (U+D800 to U+DFFF) are skipped."""
    return "\ue000" if character == "\ud7ff" else chr(ord(character) + 1)
