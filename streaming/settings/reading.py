"""Settings: `conf/offsetlake.toml`, a user's file and command-line options become one frozen object."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from streaming.common import http_values
from streaming.common.conf_dir import conf_dir
from streaming.common.times import DAY_MS, parse_duration_ms
from streaming.model.errors import MisuseError
from streaming.settings.contradictions import refuse_contradictions
from streaming.settings.model import (
    AlertmanagerSettings,
    AlertSettings,
    ExpirySettings,
    GroupAlerts,
    JobSettings,
    Settings,
    SourceSettings,
    SparkSettings,
    TableSettings,
    WebhookSettings,
)
from streaming.settings.secrets import Secret, resolved
from streaming.settings.shown import HEADER_TABLES, URLS

FREE_TABLES: Final = frozenset(
    {
        "source.client",
        "tables.storage_options",
        "spark.conf",
        "alerts.webhook.headers",
        "alerts.alertmanager.headers",
        "alerts.alertmanager.labels",
    }
)
"""Tables whose keys are other programs' settings: any key is allowed, values are passed on as text."""

ENTRIES: Final[Mapping[str, Mapping[str, str]]] = {
    "alerts.groups": {"pattern": "required", "treat": "alert", "warning": "", "critical": ""}
}
"""Lists of tables (`[[name]]` in TOML), and the keys of each with their defaults ("": as everywhere)."""

DURATIONS: Final = frozenset(
    {
        "source.connect_timeout",
        "source.topic_poll_every",
        "tables.fold_every",
        "tables.maintain_every",
        "tables.keep_unused_files",
        "tables.history",
        "tables.keep_removed",
        "tables.keep_quarantine",
        "job.trigger",
        "job.heartbeat_every",
        "job.check_topic_every",
        "expiry.read_every",
        "alerts.evaluate_every",
        "alerts.warning",
        "alerts.critical",
        "alerts.behind_warning",
        "alerts.behind_critical",
        "alerts.log_start_every",
        "alerts.close_after",
        "alerts.timeout",
        "alerts.alertmanager.repeat_every",
    }
)

AUTO: Final = "auto"
AUTO_DURATIONS: Final = frozenset({"expiry.retention", "expiry.check_interval"})
"""Durations that may be "auto" instead, which is None in the settings object."""

MAY_BE_ZERO: Final = frozenset({"job.trigger"})
"""Durations that may be 0: the next batch then begins as soon as the last one is done."""

MAY_BE_EMPTY: Final = frozenset({"alerts.webhook.url", "alerts.alertmanager.url", "alerts.groups.pattern"})
"""Settings that may be empty text: a receiver that there is none of, and the empty group id."""

MAY_REFER: Final = (FREE_TABLES - {"spark.conf"}) | URLS
"""Settings that may refer to secrets (`${env:NAME}`); Spark has references of its own in `spark.conf`."""

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "source.check_partition": ("auto", "on", "off"),
    "alerts.log": ("on", "off"),
    "alerts.groups.treat": ("alert", "summarize", "exclude"),
}
"""Settings that are one of a few words."""

LONGEST_MS: Final = 36_500 * DAY_MS
"""A century, which every clock and timestamp bears; more than that is a slip of the pen."""


def read_settings(file: Path | None = None, options: Mapping[str, object] | None = None) -> Settings:
    """Read the defaults, lay `file` (TOML) over them, and `options` (dotted names, None = not given) last.

    Raises `MisuseError` for a file that cannot be read, an unknown name, a value of another type, settings
    that contradict each other, or a reference to a secret that is not there.
    """
    values = _flatten(tomllib.loads((conf_dir() / "offsetlake.toml").read_text(encoding="utf-8")))
    known = dict(values)
    if file is not None:
        values |= _checked(_flatten(_parse(file)), known, where=str(file))
    given = {name: value for name, value in (options or {}).items() if value is not None}
    values |= _checked(given, known, where="the command line")
    settings = _build(values)
    refuse_contradictions(settings)
    return settings


def _parse(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise MisuseError(f"settings file {file}: cannot be read ({error.strerror}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MisuseError(f"settings file {file}: expected TOML, found an error: {error}.") from error


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested tables into dotted names; a free table stays one value."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if name in FREE_TABLES and isinstance(value, dict):
            flat[name] = _flatten(value)  # `a.b = 1` and `"a.b" = 1` mean the same here
        elif isinstance(value, dict):
            flat |= _flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def _checked(values: Mapping[str, Any], known: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """Refuse unknown names and values that a setting cannot have; merge free tables."""
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise MisuseError(
                f"{where}: unknown setting {name!r}. Known settings: {', '.join(sorted(known))}."
            )
        value = _with_secrets(name, value, where=where)
        expected = _unmet_expectation(name, value, known[name])
        if expected is not None:
            raise MisuseError(f"{where}: setting {name!r} expects {expected}, found {_quoted(name, value)}.")
        if name in ENTRIES:
            checked[name] = [*_checked_entries(name, value, where=where), *known[name]]
        else:
            checked[name] = {**known[name], **value} if name in FREE_TABLES else value
    return checked


def _checked_entries(name: str, entries: list[Any], *, where: str) -> list[dict[str, Any]]:
    """Check each table of a list as if it were a table of its own, and fill in what it leaves out."""
    return [
        _checked_entry(f"{name}[{number}]", ENTRIES[name], entry, where=where)
        for number, entry in enumerate(entries, start=1)
    ]


def _checked_entry(name: str, keys: Mapping[str, str], entry: Any, *, where: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise MisuseError(f"{where}: setting {name!r} expects a table, found {entry!r}.")
    known = {f"{name}.{key}": default for key, default in keys.items()}
    given = _checked({f"{name}.{key}": value for key, value in entry.items()}, known, where=where)
    for key, default in keys.items():
        if default == "required" and f"{name}.{key}" not in given:
            raise MisuseError(f"{where}: setting {name!r} expects a {key}, found none.")
    return {key: given.get(f"{name}.{key}", default) for key, default in keys.items()}


def _with_secrets(name: str, value: Any, *, where: str) -> Any:
    """Resolve what a setting refers to, where settings may."""
    if name not in MAY_REFER:
        return value
    if isinstance(value, dict):
        return {key: _resolved(f"{name}.{key}", item, where=where) for key, item in value.items()}
    return _resolved(name, value, where=where)


def _resolved(name: str, value: Any, *, where: str) -> Any:
    return resolved(value, name=f"{where}: {name}") if isinstance(value, str) else value


def _unmet_expectation(name: str, value: object, default: object) -> str | None:
    """Say what a setting with this name and default expects, if the value is not that."""
    if (str if isinstance(value, Secret) else type(value)) is not type(default):
        return _type_name(default)
    general = re.sub(r"\[\d+\]", "", name)  # of an entry in a list: the same for all of them
    if general in CHOICES and value not in CHOICES[general]:
        return f"one of {', '.join(CHOICES[general])}"
    if general in MAY_BE_EMPTY and value == "":
        return None
    if general in URLS and not http_values.is_address(str(value)):
        return http_values.AN_ADDRESS
    match value:
        case "":
            return "text that is not empty"
        case int() if value <= 0:
            return "a number above 0"
        case dict() if not all(isinstance(item, str | int | float) for item in value.values()):
            return "texts, numbers, true or false in its table"
        case dict() if name in HEADER_TABLES and http_values.refused_header(value):
            return http_values.HEADERS
        case _:
            return None


def _type_name(value: object) -> str:
    names = {str: "text in quotes", int: "a whole number", dict: "a table", list: "a list of tables"}
    return names[type(value)]


def _quoted(name: str, value: object) -> str:
    """Quote a value that was refused, unless it may hold a secret."""
    if name in FREE_TABLES and isinstance(value, dict):
        others = [key for key, item in value.items() if not isinstance(item, str | int | float)]
        return f"something else as {', '.join(others)}" if others else str(http_values.refused_header(value))
    return http_values.refused_text(value) if name in MAY_REFER and isinstance(value, str) else repr(value)


def _build(values: Mapping[str, Any]) -> Settings:
    alerts = AlertSettings(
        **_section(values, "alerts"),
        webhook=WebhookSettings(**_section(values, "alerts.webhook")),
        alertmanager=AlertmanagerSettings(**_section(values, "alerts.alertmanager")),
    )
    return Settings(
        source=SourceSettings(**_section(values, "source")),
        tables=TableSettings(**_section(values, "tables")),
        job=JobSettings(**_section(values, "job")),
        expiry=ExpirySettings(**_section(values, "expiry")),
        spark=SparkSettings(**_section(values, "spark")),
        alerts=alerts,
    )


def _section(values: Mapping[str, Any], table: str) -> dict[str, Any]:
    """Return the settings of one table, by the names of its dataclass."""
    section: dict[str, Any] = {}
    for name, value in values.items():
        parent, _, key = name.rpartition(".")
        if parent != table:
            continue
        if name in AUTO_DURATIONS:
            section[f"{key}_ms"] = None if value == AUTO else _duration_ms(value, name=name)
        elif name in DURATIONS:
            section[f"{key}_ms"] = _duration_ms(value, name=name)
        elif name in FREE_TABLES:
            section[key] = MappingProxyType({k: _text(v) for k, v in value.items()})
        elif name in ENTRIES:
            section[key] = tuple(_group_alerts(name, entry) for entry in value)
        else:
            section[key] = value
    return section


def _group_alerts(name: str, entry: Mapping[str, str]) -> GroupAlerts:
    thresholds = {
        f"{key}_ms": _duration_ms(entry[key], name=f"{name} {key}") if entry.get(key) else None
        for key in ("warning", "critical")
    }
    return GroupAlerts(pattern=entry["pattern"], treat=entry["treat"], **thresholds)


def _duration_ms(text: str, *, name: str) -> int:
    """Read the duration of a setting; only few may be 0, and none longer than can be counted with."""
    duration = parse_duration_ms(text, name=name)
    if duration == 0 and name not in MAY_BE_ZERO:
        raise MisuseError(f"setting {name!r} expects a duration above 0, found {text!r}.")
    if duration > LONGEST_MS:
        raise MisuseError(
            f"setting {name!r} expects a duration of at most {LONGEST_MS // DAY_MS}d, found {text!r}."
        )
    return duration


def _text(value: object) -> str:
    """Write a TOML value the way Java and Rust settings spell it (`true`, not `True`)."""
    if isinstance(value, str):
        return value  # a secret stays one
    return str(value).lower() if isinstance(value, bool) else str(value)
