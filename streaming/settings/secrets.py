"""Secrets that settings only refer to: `${env:NAME}` and `${file:PATH:KEY}` in the values of settings.

The spelling is that of Kafka's config providers (KIP-297, KIP-887: EnvVarConfigProvider and
FileConfigProvider under their usual names `env` and `file`), which Kafka's own tools resolve in these files.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from streaming.model.errors import MisuseError
from streaming.settings.properties import read_properties

_REFERENCE: Final = re.compile(r"\$\{([^}:]*):([^}]*)\}")
_FILE_AND_KEY: Final = re.compile(r"(.+):([^:]+)")
_OF_PROVIDERS: Final = "config.providers"


class Secret(str):
    """A text that a reference gave: passed on as any other, but never shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "(hidden)"


def resolved(value: str, *, name: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the value of setting `name` with its references resolved: a `Secret` if it has any.

    What a reference gives is taken as it is, references in it included. Raises `MisuseError` for a reference
    to what is not there.
    """

    def referred(found: re.Match[str]) -> str:
        match found[1]:
            case "env":
                return _from_environment(found, name, environment)
            case "file":
                return _from_file(found, name)
            case _:
                raise MisuseError(  # without the text: it may be part of a password
                    f"{name}: expected ${{env:NAME}} or ${{file:PATH:KEY}}, found another kind of reference. "
                    "If it is none but part of a secret, put the secret into the environment or a file."
                )

    text = _REFERENCE.sub(referred, value)
    return Secret(text) if _REFERENCE.search(value) else value


def resolved_client(client: Mapping[str, str], *, where: str) -> dict[str, str]:
    """Return settings of a Kafka client with their references resolved.

    Left out is what tells Kafka's own tools how to resolve them (`config.providers`).
    """
    return {
        name: resolved(value, name=f"{where}: {name}")
        for name, value in client.items()
        if name != _OF_PROVIDERS and not name.startswith(f"{_OF_PROVIDERS}.")
    }


def _from_environment(found: re.Match[str], name: str, environment: Mapping[str, str]) -> str:
    if found[2] not in environment:
        raise MisuseError(
            f"{name}: expected {found[0]} to name an environment variable, found that it is not set. "
            "Set and export it."
        )
    return environment[found[2]]


def _from_file(found: re.Match[str], name: str) -> str:
    parts = _FILE_AND_KEY.fullmatch(found[2])
    if parts is None:
        raise MisuseError(f"{name}: expected ${{file:PATH:KEY}}, found {found[0]}.")
    try:
        properties = read_properties(Path(parts[1]))
    except MisuseError as error:
        raise MisuseError(f"{name}: {found[0]}: {error}") from error
    if parts[2] not in properties:
        raise MisuseError(
            f"{name}: expected {found[0]} to name a key of a properties file, found none in {parts[1]}."
        )
    return properties[parts[2]]
