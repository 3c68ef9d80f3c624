"""The errors that `offsetlake` explains to its user, each with the exit code of the command.

A message says what was being done, what was expected, what was found and what to do about it.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class OffsetlakeError(Exception):
    """Something outside the program failed (a broker, a registry, a disk): exit code 1."""

    exit_code = 1


class MisuseError(OffsetlakeError):
    """The program was asked for something it cannot do (an option, a setting): exit code 2."""

    exit_code = 2


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """Return the known names that a name may have been meant to be, at most three, the nearest first.

    >>> nearest("biling", ["audit", "billing"])
    ['billing']
    """
    return get_close_matches(name, list(known), n=3, cutoff=cutoff)


def did_you_mean(names: Sequence[str]) -> str:
    """Ask whether one of these names was meant; nothing where there are none.

    >>> did_you_mean(["billing", "filling"])
    ' Did you mean billing or filling?'
    """
    return f" Did you mean {' or '.join(names)}?" if names else ""
