"""Finds the line of a settings file that sets a value: the TOML parser does not report it."""

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

_MOST_LINES: Final = 500
"""Longer files have no line numbers: they would be parsed too often."""


def line_of(name: str, text: str) -> int | None:
    """Return the line (from 1) at which the TOML statement that sets `name` begins; None: unknown.

    `name` is the dotted name of a setting or a section; `groups[2]` is the second entry of a list. The lines
    up to the end of a statement are valid TOML, so the first such part with the name ends with its statement.
    This holds for dotted and quoted keys, inline tables, lists and multi-line texts alike.

    >>> line_of("tables.history", '[tables]\\n# how long?\\nhistory = "7 days"')
    3
    """
    lines, first = text.split("\n"), 1
    if len(lines) > _MOST_LINES:
        return None
    for last in range(1, len(lines) + 1):
        try:
            tree = tomllib.loads("\n".join(lines[:last]) + "\n")
        except tomllib.TOMLDecodeError:
            continue  # in the middle of a statement
        if name in _names(tree):
            return first
        first = last + 1
    return None


def _names(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all sections, settings and entries."""
    for key, value in tree.items():
        name = f"{prefix}{key}"
        yield name
        if isinstance(value, dict):
            yield from _names(value, f"{name}.")
        elif isinstance(value, list):
            for number, entry in enumerate(value, start=1):
                yield f"{name}[{number}]"
                if isinstance(entry, dict):
                    yield from _names(entry, f"{name}[{number}].")
