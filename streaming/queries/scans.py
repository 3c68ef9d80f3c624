"""What a statement reads of a table: the engine says so in its plan, where columns that nobody names are left
out, and conditions stand at the tables that they are about."""

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
    """The columns that are read of a table, and of which groups (None: all)."""

    columns: frozenset[str] | None = None
    groups: frozenset[str] | None = None

    @classmethod
    def of(cls, name: str, logical: str, physical: str) -> Self:
        """Take them from the plans of a statement that names the table.

        Texts are not escaped in plans. The logical one has them in quotes, the physical one without: where
        that has no quote, no text has any, and conditions are read. (Each scan begins a line: what looks like
        one in a text only adds to what is read.)
        """
        scans = re.findall(rf"^ *TableScan: (?:\w+\.)*{name}\b(.*)$", logical, re.MULTILINE)
        are_groups_told = '"' not in physical
        return cls(
            _union([_columns(scan) for scan in scans]),
            _union([_groups(scan) if are_groups_told else None for scan in scans]),
        )

    def reads(self, *columns: str) -> bool:
        """Tell whether any of some columns is read."""
        return self.columns is None or not self.columns.isdisjoint(columns)


def _union(parts: list[set[str] | None]) -> frozenset[str] | None:
    """Return all that are in any part; None: one is not known, or there is none."""
    known = [part for part in parts if part is not None]
    return frozenset[str]().union(*known) if parts and len(known) == len(parts) else None


def _columns(scan: str) -> set[str] | None:
    """Return the columns of a scan; None: all."""
    told = _COLUMNS.match(scan)
    return None if told is None else set(filter(None, told[1].split(", ")))


def _groups(scan: str) -> set[str] | None:
    """Return the groups that one of the conditions of a scan, which must all hold, names; None: none does."""
    if begun := _FILTERS.search(scan):
        for condition in _conditions(scan[begun.end() :]):
            if _GROUPS.fullmatch(condition):
                return set(_VALUE.findall(condition))
    return None


def _conditions(filters: str) -> Iterator[str]:
    """Divide a list of conditions, up to the bracket that ends it."""
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
