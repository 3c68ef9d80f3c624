"""Settings: `conf/offsetlake.toml`, a user's file and command-line options become one frozen object."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from streaming.conf_dir import conf_dir
from streaming.errors import MisuseError

FREE_TABLES: Final = frozenset({"source.client", "tables.storage_options", "spark.conf"})
"""Tables whose keys are other programs' settings: any key is allowed, values are passed on as text."""

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
        "expiry.read_every",
    }
)

AUTO: Final = "auto"
AUTO_DURATIONS: Final = frozenset({"expiry.retention", "expiry.check_interval"})
"""Durations that may be "auto" instead, which is None in the settings object."""

MAY_BE_ZERO: Final = frozenset({"job.trigger"})
"""Durations that may be 0: the next batch then begins as soon as the last one is done."""

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""The name of Kafka's own offsets topic."""

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {"source.check_partition": ("auto", "on", "off")}
"""Settings that are one of a few words."""

_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|h|d)")
_SECRET: Final = re.compile(
    r"(password|secret|jaas|token|credential|signature|(?<![a-z])key(?![a-z]))[^=]*=", re.IGNORECASE
)
"""Finds a secret in `name=value`: by its name, or as an option inside the value (`-Dpassword=...`)."""


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """Which topic is read, and how its brokers are reached.

    `client` holds Kafka's own (Java) names.
    """

    bootstrap_servers: str
    topic: str
    check_partition: str
    max_records_per_batch: int
    connect_timeout_ms: int
    topic_poll_every_ms: int
    client: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """Where the Delta tables are, how often they are folded and maintained, and how long they keep what."""

    root: str
    fold_every_ms: int
    fold_rows: int
    maintain_every_ms: int
    keep_unused_files_ms: int
    history_ms: int
    keep_removed_ms: int
    keep_quarantine_ms: int
    storage_options: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """How the query runs.

    `state_partitions` is pinned to the checkpoint by Spark.
    """

    checkpoint: str
    trigger_ms: int
    state_partitions: int
    heartbeat_every_ms: int


@dataclass(frozen=True, kw_only=True)
class ExpirySettings:
    """How long brokers keep offsets and how often they look (None: the brokers are asked), and how often
    they are asked."""

    retention_ms: int | None
    check_interval_ms: int | None
    read_every_ms: int


@dataclass(frozen=True, kw_only=True)
class SparkSettings:
    """What is handed to Spark as it is."""

    master: str
    driver_memory: str
    log_file: str
    conf: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of one run; made by `read_settings` and never changed."""

    source: SourceSettings
    tables: TableSettings
    job: JobSettings
    expiry: ExpirySettings
    spark: SparkSettings

    def describe(self) -> list[str]:
        """Return one `name = value` line per setting, with secrets left out."""
        return [f"{name} = {value}" for name, value in sorted(_shown(vars(self)).items())]


def read_settings(file: Path | None = None, options: Mapping[str, object] | None = None) -> Settings:
    """Read the defaults, lay `file` (TOML) over them, and `options` (dotted names, None = not given) last.

    Raises `MisuseError` for a file that cannot be read, an unknown name or a value of another type.
    """
    values = _flatten(tomllib.loads((conf_dir() / "offsetlake.toml").read_text(encoding="utf-8")))
    known = dict(values)
    if file is not None:
        values |= _checked(_flatten(_parse(file)), known, where=str(file))
    given = {name: value for name, value in (options or {}).items() if value is not None}
    values |= _checked(given, known, where="the command line")
    return _build(values)


def parse_duration_ms(text: str, *, name: str) -> int:
    """Read `500ms`, `10s`, `5m`, `24h` or `7d` as milliseconds."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise MisuseError(
            f"{name}: expected a duration such as 500ms, 10s, 5m, 24h or 7d, found {text!r}. "
            "Write a whole number followed by its unit."
        )
    return int(found[1]) * _UNIT_MS[found[2]]


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
        expected = _unmet_expectation(value, known[name])
        if expected is not None:
            raise MisuseError(f"{where}: setting {name!r} expects {expected}, found {value!r}.")
        if value not in CHOICES.get(name, (value,)):
            words = ", ".join(CHOICES[name])
            raise MisuseError(f"{where}: setting {name!r} expects one of {words}, found {value!r}.")
        checked[name] = {**known[name], **value} if name in FREE_TABLES else value
    return checked


def _unmet_expectation(value: object, default: object) -> str | None:
    """Say what a setting with this default expects, if the value is not that."""
    if type(value) is not type(default):
        return _type_name(default)
    match value:
        case "":
            return "text that is not empty"
        case int() if value <= 0:
            return "a number above 0"
        case dict() if not all(isinstance(item, str | int | float) for item in value.values()):
            return "texts, numbers, true or false in its table"
        case _:
            return None


def _type_name(value: object) -> str:
    return {str: "text in quotes", int: "a whole number", dict: "a table"}[type(value)]


def _build(values: Mapping[str, Any]) -> Settings:
    names = ("source", "tables", "job", "expiry", "spark")
    sections: dict[str, dict[str, Any]] = {name: {} for name in names}
    for name, value in values.items():
        section, key = name.split(".", 1)
        if name in AUTO_DURATIONS:
            sections[section][f"{key}_ms"] = None if value == AUTO else _duration_ms(value, name=name)
        elif name in DURATIONS:
            sections[section][f"{key}_ms"] = _duration_ms(value, name=name)
        elif name in FREE_TABLES:
            sections[section][key] = MappingProxyType({k: _text(v) for k, v in value.items()})
        else:
            sections[section][key] = value
    return Settings(
        source=SourceSettings(**sections["source"]),
        tables=TableSettings(**sections["tables"]),
        job=JobSettings(**sections["job"]),
        expiry=ExpirySettings(**sections["expiry"]),
        spark=SparkSettings(**sections["spark"]),
    )


def _duration_ms(text: str, *, name: str) -> int:
    """Read the duration of a setting; only few may be 0."""
    duration = parse_duration_ms(text, name=name)
    if duration == 0 and name not in MAY_BE_ZERO:
        raise MisuseError(f"setting {name!r} expects a duration above 0, found {text!r}.")
    return duration


def _text(value: object) -> str:
    """Write a TOML value the way Java and Rust settings spell it (`true`, not `True`)."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    shown: dict[str, str] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            shown |= _shown(value, f"{prefix}{key}.")
        elif hasattr(value, "__dataclass_fields__"):
            shown |= _shown(vars(value), f"{prefix}{key}.")
        else:
            shown[f"{prefix}{key}"] = "(hidden)" if _SECRET.search(f"{key}={value}") else str(value)
    return shown
