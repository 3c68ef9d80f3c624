"""What may have been meant by a mistyped name: of a group, a topic, a setting or anything else."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from heapq import nlargest
from typing import Final

_SUGGESTED: Final = 3
_COMPARED: Final = 500  # names that are looked at closely: more would take seconds
_COMPARED_LENGTH: Final = 300  # characters; of longer names comparing takes the square
_PLAIN: Final = re.compile(r"[\w.\[\]-]+")


def nearest(text: str, names: Iterable[str]) -> list[str]:
    """Return at most three names that may have been meant instead of a mistyped one, the likeliest first.

    >>> nearest("Biling", ["audit", "billing", "billing-2"])
    ['billing', 'billing-2']
    """
    wanted = text.casefold().strip()
    if not wanted or len(wanted) > _COMPARED_LENGTH:
        return []
    named: dict[str, str] = {}
    for name in sorted(name for name in names if len(name) <= _COMPARED_LENGTH):
        named.setdefault(name.casefold(), name)
    containing = sorted((name for name in named if wanted in name), key=len)
    alike = list(named)
    if len(alike) > _COMPARED:
        alike = nlargest(_COMPARED, alike, key=lambda name: _common_ends(name, wanted))
    found = dict.fromkeys([*get_close_matches(wanted, alike, _SUGGESTED), *containing])
    return [named[name] for name in list(found)[:_SUGGESTED]]


def _common_ends(one: str, other: str) -> int:
    """Count the characters with which both begin, and with which both end."""
    return _common_start(one, other) + _common_start(one[::-1], other[::-1])


def _common_start(one: str, other: str) -> int:
    differing = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))


def did_you_mean(names: Sequence[str]) -> str:
    """Ask whether one of these names was meant; nothing where there are none.

    >>> did_you_mean(["billing", "fill ing"])
    " Did you mean billing or 'fill ing'?"
    """
    *others, last = [name if _PLAIN.fullmatch(name) else repr(name) for name in names] or [""]
    return f" Did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if last else ""
