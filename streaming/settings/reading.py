"""Settings: `conf/offsetlake.toml`, a user's file and command-line options become one frozen object."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from streaming.common.conf_dir import conf_dir
from streaming.model.errors import MisuseError
from streaming.settings.contradictions import refuse_contradictions
from streaming.settings.environment import given_in
from streaming.settings.kinds import Entries, FreeTable, Kind, Section, kind_of, kinds_of, quotation
from streaming.settings.lines import line_of
from streaming.settings.model import Settings
from streaming.settings.secrets import resolved
from streaming.settings.unknown import sections_of, unknown

T = TypeVar("T")

Place = Callable[[str], str]
"""Returns where a setting (or a section) is set, for error messages."""

_KINDS: Final = kinds_of(Settings)


def read_settings(
    file: Path | None = None,
    options: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Read the defaults and override them: by `file` (TOML), then by the variables `OFFSETLAKE_*` of
    `environment`, then by `options` (dotted names, None = not given). If a checkpoint is given and Spark's
    log is not, the log is beside the checkpoint.

    Raises `MisuseError` for a file that cannot be read, an unknown name, a value of the wrong type,
    conflicting settings, or a reference to a missing secret.
    """
    defaults = _flatten(tomllib.loads((conf_dir() / "offsetlake.toml").read_text(encoding="utf-8")))
    laid: dict[str, Any] = {}
    if file is not None:
        text = _text(file)
        laid |= _merged(defaults, _checked(_parse(text, file), _KINDS, _place_in(file, text)))
    for variable, (name, value) in given_in(environment or {}, _KINDS).items():
        laid |= _checked({name: value}, _KINDS, partial(_place_of, variable))
    given = {name: value for name, value in (options or {}).items() if value is not None}
    laid |= _merged(defaults, _checked(given, _KINDS, lambda _: "the command line"))
    beside = {"spark.log_file": _log_beside(laid.get("job.checkpoint"), defaults["spark.log_file"])}
    settings = _built(Settings, defaults | beside | laid)
    refuse_contradictions(settings)
    return settings


def _log_beside(checkpoint: str | None, default: str) -> str:
    """Return the default file of Spark's log: beside the checkpoint if that is local, else `default`."""
    folder = (checkpoint or "").removeprefix("file://")
    if not folder or "://" in folder:
        return default
    path = Path(folder) if Path(folder).name not in ("", "..") else Path(folder).resolve()
    return str(path.with_name(Path(default).name)) if path.name else default


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise MisuseError(f"settings file {file}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise MisuseError(f"settings file {file}: expected TOML, found an error: {error}.") from error


def _parse(text: str, file: Path) -> dict[str, Any]:
    """Return the settings of a file, by dotted name."""
    try:
        return _flatten(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        found = f"an error: {error}"
    except ValueError:  # of int
        found = "a number of too many digits"
    except RecursionError:
        found = "lists or tables within too many others"
    raise MisuseError(f"settings file {file}: expected TOML, found {found}.")


def _place_in(file: Path, text: str) -> Place:
    def place(name: str) -> str:
        line = line_of(name, text)
        return str(file) if line is None else f"{file}, line {line}"

    return place


def _place_of(variable: str, _name: str) -> str:
    return f"environment variable {variable}"


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested tables into dotted names; a free table stays one value, and the name of an empty unknown
    table ends with a dot.
    """
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if _is_table(value, _KINDS.get(name)):
            flat[name] = _flatten(value)  # `a.b = 1` and `"a.b" = 1` mean the same here
        elif isinstance(value, dict):
            within = _flatten(value, f"{name}.")
            flat |= within if within or name in sections_of(_KINDS) else {f"{name}.": None}
        else:
            flat[name] = value
    return flat


def _is_table(value: Any, kind: Kind | None) -> bool:
    return isinstance(kind, FreeTable) and isinstance(value, dict)


def _checked(values: Mapping[str, Any], kinds: Mapping[str, Kind], place: Place) -> dict[str, Any]:
    """Resolve references to secrets, and refuse unknown names and invalid values."""
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if name not in kinds:
            part, sentence = unknown(name, kinds)
            raise MisuseError(f"{place(part)}: {sentence}")
        kind = kinds[name]
        try:
            checked[name] = _checked_value(name, value, kind)
        except MisuseError as error:
            raise MisuseError(f"{place(name)}: {error}") from error
        if isinstance(kind, Entries):
            checked[name] = _checked_entries(kind, name, value, place)
    return checked


def _checked_value(name: str, value: Any, kind: Kind) -> Any:
    """Resolve references to secrets, and refuse an invalid value."""
    value = _with_secrets(name, value) if kind.may_refer else value
    expected = kind.expectation(value)
    if expected is not None:
        raise MisuseError(f"setting {name!r} expects {expected}, found {kind.quoted(value)}.")
    if not isinstance(kind, Entries):
        kind.read(value, name=name)  # only for its errors: here the place is known
    return value


def _checked_entries(kind: Entries, name: str, entries: list[Any], place: Place) -> list[dict[str, Any]]:
    """Check each table of a list as if it were a table of its own."""
    return [
        _checked_entry(kind, f"{name}[{number}]", entry, place)
        for number, entry in enumerate(entries, start=1)
    ]


def _checked_entry(kind: Entries, name: str, entry: Any, place: Place) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise MisuseError(f"{place(name)}: setting {name!r} expects a table, found {quotation(entry)}.")
    kinds = kinds_of(kind.of, f"{name}.")
    given = {
        (full := f"{name}.{key}"): _flatten(value) if _is_table(value, kinds.get(full)) else value
        for key, value in entry.items()
    }
    checked = _checked(given, kinds, place)
    for key in kind.required():
        if key not in entry:
            raise MisuseError(f"{place(name)}: setting {name!r} expects a {key}, found none.")
    return {key: checked[f"{name}.{key}"] for key in entry}


def _merged(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Merge free tables with those of the defaults, and put list entries before the default ones."""
    merged = dict(values)
    for name, value in values.items():
        match _KINDS[name]:
            case FreeTable():
                merged[name] = {**defaults[name], **value}
            case Entries():
                merged[name] = [*value, *defaults[name]]
    return merged


def _with_secrets(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _resolved(f"{name}.{key}", item) for key, item in value.items()}
    return _resolved(name, value)


def _resolved(name: str, value: Any) -> Any:
    return resolved(value, name=name) if isinstance(value, str) else value


def _built(section: type[T], values: Mapping[str, Any], prefix: str = "") -> T:
    """Create the dataclass of a section from checked values by dotted name."""
    held: dict[str, Any] = {}
    for field in fields(section):  # type: ignore[arg-type]  # all sections are dataclasses
        kind = kind_of(field)
        name = f"{prefix}{kind.setting(field.name)}"
        if isinstance(kind, Section):
            held[field.name] = _built(kind.of, values, f"{name}.")
        else:
            held[field.name] = kind.read(values[name], name=name)
    return section(**held)
