"""Settings as people are shown them: in the words of a settings file, with secrets left out."""

import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final

from streaming.common import http_values
from streaming.common.conf_dir import whole_path
from streaming.common.escapes import json_text
from streaming.common.times import DAY_MS, HOUR_MS, MINUTE_MS
from streaming.settings.kinds import AUTO, OFF, Duration, Entries, FreeTable, Section, Url, kind_of
from streaming.settings.model import Settings
from streaming.settings.secrets import Secret

_HIDDEN: Final = "(hidden)"

_SECRET: Final = re.compile(
    r"(password|secret|jaas|token|credential|signature|(?<![a-z])key(?![a-z]))[^=]*=", re.IGNORECASE
)
"""Finds a secret in `name=value`: by its name, or as an option inside the value (`-Dpassword=...`)."""

_OF_FILES: Final = "_file"
"""So end the names of settings that say where a secret is, and are none."""

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_UNITS: Final = {"d": DAY_MS, "h": HOUR_MS, "m": MINUTE_MS, "s": 1_000, "ms": 1}


def describe(settings: Settings) -> list[str]:
    """Return all settings as lines of a settings file (TOML), with secrets left out."""
    return sorted(f"{name} = {value}" for name, value in _shown(settings, ""))


def shown_duration(milliseconds: int) -> str:
    """Write a duration as settings have it.

    >>> shown_duration(5_000), shown_duration(86_400_000), shown_duration(0)
    ('5s', '24h', '0s')
    """
    if milliseconds == 0:
        return "0s"
    unit = next(
        unit
        for unit, size in _UNITS.items()
        if milliseconds % size == 0 and (unit != "d" or milliseconds > DAY_MS)
    )
    return f"{milliseconds // _UNITS[unit]}{unit}"


def shown_place(location: str) -> str:
    """Return a folder as a whole path, and a URL as it is, unless it holds a password."""
    if http_values.holds_user(location):
        return _HIDDEN
    return whole_path(location)


def _shown(section: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the settings of a section: dotted names, and values as TOML."""
    for field in fields(section):
        kind, value = kind_of(field), getattr(section, field.name)
        name = f"{prefix}{kind.setting(field.name)}"
        match kind:
            case Section():
                yield from _shown(value, f"{name}.")
            case Entries():
                yield name, f"[{', '.join(map(_entry, value))}]"
            case FreeTable():
                for key, item in value.items():
                    hidden = _HIDDEN if kind.has_headers else _unless_secret(f"{name}.{key}", item)
                    yield f"{name}.{_key(key)}", _toml(hidden)
            case Url():
                yield name, _toml(http_values.shown_url(value))
            case Duration():
                unset = AUTO if value is None else OFF if kind.may_be_off and not value else None
                yield name, _toml(unset or shown_duration(value))
            case _:
                yield name, _toml(_unless_secret(name, value))


def _entry(entry: Any) -> str:
    """Write an entry of a list as an inline table, without what it leaves out."""
    absent = {kind_of(one).setting(one.name) for one in fields(entry) if getattr(entry, one.name) is None}
    given = (f"{name} = {value}" for name, value in _shown(entry, "") if name not in absent)
    return f"{{ {', '.join(given)} }}"


def _unless_secret(name: str, value: Any) -> Any:
    is_named = _SECRET.search(f"{name}={value}") and not name.endswith(_OF_FILES)
    is_secret = isinstance(value, Secret) or is_named
    return _HIDDEN if is_secret or http_values.holds_user(str(value)) else value


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else json_text(name)


def _toml(value: str | int) -> str:
    return str(value) if isinstance(value, int) else json_text(value)
