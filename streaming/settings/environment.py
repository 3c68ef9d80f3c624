"""Settings in environment variables: `OFFSETLAKE_` and a setting's name in capitals, with `_` for `.`."""

import re
from collections.abc import Mapping
from typing import Final

from streaming.model.errors import MisuseError
from streaming.model.suggestions import did_you_mean, nearest
from streaming.settings.kinds import Entries, Flag, FreeTable, Kind, Number

PREFIX: Final = "OFFSETLAKE_"

_AS_THE_OPTION: Final = {"OFFSETLAKE_TABLE_ROOT": "tables.root"}
_NUMBER: Final = re.compile(r"[0-9]{1,100}")  # int() refuses thousands of digits
_FLAGS: Final[Mapping[str, bool]] = {"true": True, "false": False}
_NO_SETTINGS: Final = frozenset({"OFFSETLAKE_JARS", "OFFSETLAKE_IVY_SETTINGS"})  # see streaming.jvm.jars


def variables_of(kinds: Mapping[str, Kind]) -> dict[str, str]:
    """Return the variables of all settings with a single value, mapped to the settings' dotted names."""
    single = [name for name, kind in kinds.items() if not isinstance(kind, FreeTable | Entries)]
    return {f"{PREFIX}{name.replace('.', '_').upper()}": name for name in single} | _AS_THE_OPTION


def given_in(environment: Mapping[str, str], kinds: Mapping[str, Kind]) -> dict[str, tuple[str, object]]:
    """Return the variables that are set and not empty, each with its setting and the value.

    Raises `MisuseError` for a variable with the prefix that belongs to no setting, even an empty one, and for
    two different values of one setting.
    """
    variables = variables_of(kinds)
    given: dict[str, tuple[str, object]] = {}
    by_name: dict[str, str] = {}
    for variable, text in sorted(environment.items()):
        if not _is_setting(variable):
            continue
        if variable not in variables:
            raise MisuseError(
                f"environment variable {variable}: expected the name of a setting with a single value, "
                f"such as OFFSETLAKE_TABLES_ROOT for tables.root.{did_you_mean(nearest(variable, variables))}"
                " Tables and lists of settings are for a settings file."
            )
        if not text:
            continue
        name = variables[variable]
        other = by_name.setdefault(name, variable)
        if environment[other] != text:
            raise MisuseError(
                f"environment variables {other} and {variable}: expected one of them, or the same value; "
                f"found two values. Both are {name}: unset one."
            )
        given[variable] = name, _value(text, kinds[name])
    return given


def _value(text: str, kind: Kind) -> object:
    """Return a text as the value in TOML; as it is, if it is none of this kind."""
    if isinstance(kind, Number) and _NUMBER.fullmatch(text):
        return int(text)
    return _FLAGS.get(text, text) if isinstance(kind, Flag) else text


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a process that gets all settings explicitly."""
    return {name: value for name, value in environment.items() if not _is_setting(name)}


def _is_setting(variable: str) -> bool:
    return variable.startswith(PREFIX) and variable not in _NO_SETTINGS
