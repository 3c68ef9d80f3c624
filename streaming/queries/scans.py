"""Columns and groups that a statement reads of a table, from the engine's plan: there, unused columns are
removed and conditions are pushed down to the tables."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

_COLUMNS: Final = re.compile(r" projection=\[([\w, ]*)\]")
_FILTERS: Final = re.compile(r", (?:full|partial)_filters=\[")
_TOKEN: Final = re.compile(r'"[^"]*"|[(\[]|[)\]]|, ')
_TEXT: Final = r'Utf8\("[^"]*"\)'
_GROUPS: Final = re.compile(
    rf"(?P<column>(?:\w+\.)*group) "
    rf"(?:= {_TEXT}(?: OR (?P=column) = {_TEXT})*|IN \(\[{_TEXT}(?:, {_TEXT})*\]\))"
)
_VALUE: Final = re.compile(r'Utf8\("([^"]*)"\)')


@dataclass(frozen=True)
class Scanned:
    """The columns read of a table (None: all), and the groups (None: all)."""

    columns: frozenset[str] | None = None
    groups: frozenset[str] | None = None

    @classmethod
    def of(cls, name: str, logical: str, physical: str) -> Self:
        """Parse the plans of a statement that names the table.

        Plans do not escape texts. The logical plan quotes them, the physical one does not: if that has no
        quote character, no text contains one, and conditions can be parsed. (Each scan begins a line: a text
        that looks like one only adds to what is read.)
        """
        scans = re.findall(rf"^ *TableScan: (?:\w+\.)*{name}\b(.*)$", logical, re.MULTILINE)
        are_groups_told = '"' not in physical
        return cls(
            _union([_columns(scan) for scan in scans]),
            _union([_groups(scan) if are_groups_told else None for scan in scans]),
        )

    def reads(self, *columns: str) -> bool:
        """Whether any of the columns is read."""
        return self.columns is None or not self.columns.isdisjoint(columns)


def _union(parts: list[set[str] | None]) -> frozenset[str] | None:
    """Return the union of all parts; None if one is unknown, or there are none."""
    known = [part for part in parts if part is not None]
    return frozenset[str]().union(*known) if parts and len(known) == len(parts) else None


def _columns(scan: str) -> set[str] | None:
    """Return the columns of a scan; None: all."""
    told = _COLUMNS.match(scan)
    return None if told is None else set(filter(None, told[1].split(", ")))


def _groups(scan: str) -> set[str] | None:
    """Return the groups named by one of the conditions of a scan, which must all hold; None if no condition
    does."""
    if begun := _FILTERS.search(scan):
        for condition in _conditions(scan[begun.end() :]):
            if _GROUPS.fullmatch(condition):
                return set(_VALUE.findall(condition))
    return None


def _conditions(filters: str) -> Iterator[str]:
    """Split a list of conditions, up to its closing bracket."""
    depth, start = 0, 0
    for token in _TOKEN.finditer(filters):
        if token[0] in "([":
            depth += 1
        elif token[0] in ")]":
            depth -= 1
        if depth < 0 or (depth == 0 and token[0] == ", "):
            yield filters[start : token.start()]
            start = token.end()
        if depth < 0:
            return
