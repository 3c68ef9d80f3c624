"""Settings as people are shown them: with secrets left out."""

import re
from dataclasses import fields
from typing import Any, Final

from streaming.common import http_values
from streaming.settings.kinds import Entries, FreeTable, Section, Url, kind_of
from streaming.settings.model import Settings
from streaming.settings.secrets import Secret

_HIDDEN: Final = "(hidden)"

_SECRET: Final = re.compile(
    r"(password|secret|jaas|token|credential|signature|(?<![a-z])key(?![a-z]))[^=]*=", re.IGNORECASE
)
"""Finds a secret in `name=value`: by its name, or as an option inside the value (`-Dpassword=...`)."""


def describe(settings: Settings) -> list[str]:
    """Return one `name = value` line per setting, with secrets left out."""
    return [f"{name} = {value}" for name, value in sorted(_shown(settings).items())]


def _shown(section: Any, prefix: str = "") -> dict[str, str]:
    shown: dict[str, str] = {}
    for field in fields(section):
        kind, value, name = kind_of(field), getattr(section, field.name), f"{prefix}{field.name}"
        match kind:
            case Section():
                shown |= _shown(value, f"{name}.")
            case Entries():
                for number, entry in enumerate(value, start=1):
                    shown |= _shown(entry, f"{name}[{number}].")
            case FreeTable():
                for key, item in value.items():
                    shown[f"{name}.{key}"] = _HIDDEN if kind.has_headers else _value(f"{name}.{key}", item)
            case Url():
                shown[name] = http_values.shown_url(value)
            case _:
                shown[name] = _value(name, value)
    return shown


def _value(name: str, value: object) -> str:
    is_secret = isinstance(value, Secret) or _SECRET.search(f"{name}={value}")
    return _HIDDEN if is_secret or http_values.holds_user(str(value)) else str(value)
