"""Suggestions for a mistyped name: of a group, a topic, a setting or anything else."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

_SUGGESTED: Final = 3
_COMPARED: Final = 500  # names that are compared closely: more would take seconds
_COMPARED_LENGTH: Final = 300  # characters: comparing takes time quadratic in the length
_PLAIN: Final = re.compile(r"[\w.\[\]-]+")


def nearest(text: str, names: Iterable[str]) -> list[str]:
    """Return at most three names that are similar to a mistyped one, the likeliest first.

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
    alike = list(named) if len(named) <= _COMPARED else _with_common_ends(named, wanted)
    found = dict.fromkeys([*get_close_matches(wanted, alike, _SUGGESTED), *containing])
    return [named[name] for name in list(found)[:_SUGGESTED]]


def _with_common_ends(names: Iterable[str], wanted: str) -> list[str]:
    """Return the names that share most of their beginning, or most of their end, with a text."""
    backwards = [name[::-1] for name in names]
    ending = [name[::-1] for name in _neighbours(backwards, wanted[::-1])]
    return list(dict.fromkeys([*_neighbours(names, wanted), *ending]))


def _neighbours(names: Iterable[str], wanted: str) -> list[str]:
    ordered = sorted(names)
    place, reach = bisect_left(ordered, wanted), _COMPARED // 4
    return ordered[max(0, place - reach) : place + reach]


def did_you_mean(names: Sequence[str]) -> str:
    """Return the question whether one of these names was meant; "" without names.

    >>> did_you_mean(["billing", "fill ing"])
    " Did you mean billing or 'fill ing'?"
    """
    *others, last = [name if _PLAIN.fullmatch(name) else repr(name) for name in names] or [""]
    return f" Did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if last else ""
