"""Settings as people are shown them: with secrets left out."""

import re
from collections.abc import Mapping
from typing import Any, Final

from streaming.common import http_values
from streaming.settings.model import Settings
from streaming.settings.secrets import Secret

URLS: Final = frozenset({"alerts.webhook.url", "alerts.alertmanager.url"})
"""Settings that are http or https addresses; what follows the host may be secret and is never shown."""

HEADER_TABLES: Final = frozenset({"alerts.webhook.headers", "alerts.alertmanager.headers"})
"""Tables of HTTP headers, whose values are never shown."""

_SECRET: Final = re.compile(
    r"(password|secret|jaas|token|credential|signature|(?<![a-z])key(?![a-z]))[^=]*=", re.IGNORECASE
)
"""Finds a secret in `name=value`: by its name, or as an option inside the value (`-Dpassword=...`)."""


def describe(settings: Settings) -> list[str]:
    """Return one `name = value` line per setting, with secrets left out."""
    return [f"{name} = {value}" for name, value in sorted(_shown(vars(settings)).items())]


def _shown(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    shown: dict[str, str] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            shown |= _shown(value, f"{name}.")
        elif isinstance(value, tuple):
            shown |= _shown({f"{name}[{number}]": entry for number, entry in enumerate(value, start=1)})
        elif hasattr(value, "__dataclass_fields__"):
            shown |= _shown(vars(value), f"{name}.")
        else:
            shown[name] = _shown_value(name, value)
    return shown


def _shown_value(name: str, value: object) -> str:
    if name in URLS:
        return http_values.shown_url(str(value))
    is_header = name.startswith(tuple(f"{table}." for table in HEADER_TABLES))
    is_secret = isinstance(value, Secret) or is_header or _SECRET.search(f"{name}={value}")
    return "(hidden)" if is_secret or http_values.holds_user(str(value)) else str(value)
