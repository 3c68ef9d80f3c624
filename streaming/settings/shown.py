"""Prints settings in the form of a settings file, without secrets."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from streaming.common import http_values
from streaming.common.conf_dir import whole_path
from streaming.common.escapes import json_text
from streaming.common.times import DAY_MS, HOUR_MS, MINUTE_MS
from streaming.settings.client_names import KNOWN, PASSWORDS
from streaming.settings.kinds import (
    AUTO,
    OFF,
    Credential,
    Duration,
    Entries,
    FreeTable,
    Patterns,
    Section,
    Size,
    Url,
    kind_of,
    shown_size,
)
from streaming.settings.listener_names import LISTENER_NAMES
from streaming.settings.model import Settings
from streaming.settings.secrets import Secret, is_reference, looks_secret

_HIDDEN: Final = "(hidden)"

_STORAGE: Final = re.compile(
    r"(aws_|azure_|azure_storage_|google_)?"
    r"(region|default_region|endpoint|endpoint_url|endpoint_url_s3|bucket|bucket_name|account_name|container_name"
    r"|client_id|tenant_id|authority_id|use_emulator|use_azure_cli|use_fabric_endpoint|virtual_hosted_style_request"
    r"|unsigned_payload|skip_signature|checksum_algorithm|conditional_put|copy_if_not_exists|disable_tagging"
    r"|s3_express|s3_allow_unsafe_rename|s3_locking_provider|request_payer)"
    r"|delta_dynamo_table_name|allow_http|allow_invalid_certificates|(connect_|pool_idle_)?timeout|http[12]_only"
    r"|proxy_url|max_retries|retry_timeout|user_agent",
    re.IGNORECASE,
)
_SPARK: Final = re.compile(
    r"spark\.(app\.name|authenticate|cores\.max|default\.parallelism|local\.dir|jars(\.packages)?|pyspark\.python"
    r"|(driver|executor)\.(cores|memory|memoryOverhead|memoryOverheadFactor|instances|host|bindAddress|port"
    r"|maxResultSize|extraClassPath)|(driver\.)?blockManager\.port|port\.maxRetries|task\.(cpus|maxFailures)"
    r"|kubernetes\.(namespace|container\.image)|eventLog\.(enabled|dir|compress)|hadoop\.fs\.(defaultFS|\w+\.impl)"
    r"|((ui|memory|shuffle|scheduler|network|dynamicAllocation|speculation|cleaner|buffer|python)"
    r"|sql\.(codegen|execution|session|shuffle|streaming|ui))\.[\w.]+)"
)
_HARMLESS: Final[Mapping[str, Callable[[str], object]]] = {
    "source.client": (KNOWN - PASSWORDS).__contains__,
    "broker": (LISTENER_NAMES - PASSWORDS).__contains__,
    "tables.storage_options": _STORAGE.fullmatch,
    "spark.conf": _SPARK.fullmatch,
}
"""The known settings of other programs; their values are shown unless they look secret, too."""

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_UNITS: Final = {"d": DAY_MS, "h": HOUR_MS, "m": MINUTE_MS, "s": 1_000, "ms": 1}


def describe(settings: Settings) -> list[str]:
    """Return all settings as lines of a settings file (TOML), without secrets."""
    return sorted(f"{name} = {value}" for name, value in _shown(settings, ""))


def shown_duration(milliseconds: int) -> str:
    """Return a duration as settings have it.

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
    """Return a folder as an absolute path, a URL unchanged (settings refuse a URL with a secret)."""
    return whole_path(location)


def is_shown_option(name: str, value: str) -> bool:
    """Return whether an option of `[tables.storage_options]` and its whole value are known to be harmless."""
    return _unless_secret("tables.storage_options", name, value) == value


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
                    shown = _HIDDEN if kind.has_headers else _unless_secret(name, key, item)
                    yield f"{name}.{_key(key)}", _toml(shown)
            case Credential():
                yield name, _toml(_HIDDEN if value else "")
            case Patterns():
                yield name, f"[{', '.join(map(_toml, value))}]"
            case Url():
                yield name, _toml(http_values.shown_url(value))
            case Duration():
                unset = AUTO if value is None else OFF if kind.may_be_off and not value else None
                yield name, _toml(unset or shown_duration(value))
            case Size():
                yield name, _toml(AUTO if value is None else shown_size(value))
            case _ if value is None:
                yield name, _toml(AUTO)
            case _:
                yield name, _toml(_HIDDEN if http_values.holds_user(str(value)) else value)


def _entry(entry: Any) -> str:
    """Return an entry of a list as an inline table, without settings that are None."""
    absent = {kind_of(one).setting(one.name) for one in fields(entry) if getattr(entry, one.name) is None}
    given = (f"{name} = {value}" for name, value in _shown(entry, "") if name not in absent)
    return f"{{ {', '.join(given)} }}"


def _unless_secret(table: str, name: str, value: str) -> str:
    """Return the value of a setting of another program if it is known to be harmless, as all labels are."""
    if is_reference(value):
        return value
    is_known = table not in _HARMLESS or _HARMLESS[table](name)
    if not is_known or isinstance(value, Secret) or looks_secret(name, value):
        return _HIDDEN
    return http_values.without_query(value)


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else json_text(name)


def _toml(value: str | int) -> str:
    return str(value).lower() if isinstance(value, int) else json_text(value)
