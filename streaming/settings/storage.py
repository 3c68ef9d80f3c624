"""Storage options that others may see: with references to secrets in place of secrets."""

from collections.abc import Mapping, MutableMapping
from typing import Final, TypeGuard

from streaming.settings.secrets import Secret, is_reference, resolved
from streaming.settings.shown import is_shown_option

_PREFIX: Final = "_OFFSETLAKE_STORAGE_OPTION_"
"""Of environment variables for the processes that this one starts. `OFFSETLAKE_...` would be settings."""


def by_reference(options: Mapping[str, str]) -> dict[str, str]:
    """Return `[tables.storage_options]` without secrets: in place of a value that was a reference this
    reference, in place of other secrets a reference to a variable of `export_secrets`."""
    return {name: _reference(name, value) for name, value in options.items()}


def resolved_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return `[tables.storage_options]` with their references resolved."""
    return {name: resolved(value, name=f"[tables.storage_options] {name}") for name, value in options.items()}


def unreferred_secrets(options: Mapping[str, str]) -> list[str]:
    """Return the names of options that may be secret, and whose values are no references."""
    return [
        name
        for name, value in options.items()
        if not _is_reference(value) and not is_shown_option(name, value)
    ]


def export_secrets(options: Mapping[str, str], environment: MutableMapping[str, str]) -> None:
    """Put secrets that are no references into the environment of the processes that this one starts."""
    for name in unreferred_secrets(options):
        environment[_variable(name)] = options[name]


def _is_reference(value: str) -> TypeGuard[Secret]:
    """Return whether a value was nothing but a reference: beside one there may be a part of a secret."""
    return isinstance(value, Secret) and is_reference(value.reference)


def _reference(name: str, value: str) -> str:
    if _is_reference(value):
        return value.reference
    return value if is_shown_option(name, value) else f"${{env:{_variable(name)}}}"


def _variable(name: str) -> str:
    return f"{_PREFIX}{name.upper()}"
