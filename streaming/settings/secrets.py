"""Secrets in settings: references to them, `${env:NAME}` and `${file:PATH:KEY}`, and values that look secret.

The syntax is that of Kafka's config providers (KIP-297, KIP-887: EnvVarConfigProvider and FileConfigProvider
under their usual names `env` and `file`), which Kafka's own tools resolve in these files.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Self

from streaming.common.http_values import holds_user
from streaming.model.errors import MisuseError
from streaming.settings.properties import read_properties

_REFERENCE: Final = re.compile(r"\$\{([^}:]*):([^}]*)\}")
_FILE_AND_KEY: Final = re.compile(r"(.+):([^:]+)")
_OF_PROVIDERS: Final = "config.providers"

_SECRET_NAME: Final = re.compile(
    r"passw|passphrase|passcode|secret|jaas|token|credential|signature|authorization"
    r"|(?<![a-z])(key|pass|pwd|sas|sig|pat)(?![a-z])|(access|account|api|master|private|shared)key(?![a-z])"
    r"|basic\.auth\.user\.info",
    re.IGNORECASE,
)
_NO_SECRET_NAME: Final = re.compile(
    r"(file|path|location|provider|class|type|enabled|mechanism|regex|ratio|size|sizeBits|length|bitLength"
    r"|timeout|interval|endpoint|url|uri|(de)?serializer|(?<![a-z])id)$"
    r"|provider\.type\.|\.credentials\.\w*(retry|renewal)\w*$|^spark\.kerberos\."
    r"|^spark\.kubernetes\.(driver|executor)\.(secrets|secretKeyRef)\.",
    re.IGNORECASE,
)
"""Names that contain a word for secrets, but are of its location, its kind or its size."""

_ASSIGNMENT: Final = re.compile(r"(?:-D)?([\w.-]+)=([^\s&;,]+)")
_ANY_REFERENCE: Final = re.compile(r"\$\{[^}]*\}")
_ONLY_REFERENCE: Final = re.compile(r"\"?\$\{[^}]*\}\"?|")


class Secret(str):
    """A text with the content of references: passed on like any other, but never shown.

    `reference` is the text with the references themselves.
    """

    __slots__ = ("reference",)

    reference: str

    def __new__(cls, text: str, reference: str = "") -> Self:
        """Return the text of a reference."""
        secret = super().__new__(cls, text)
        secret.reference = reference
        return secret

    def __repr__(self) -> str:
        return "(hidden)"


def resolved(value: str, *, name: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the value of setting `name` with its references resolved: a `Secret` if it has any.

    References in a resolved text are not resolved. Raises `MisuseError` for a reference to a missing
    variable, file or key.
    """

    def referred(found: re.Match[str]) -> str:
        match found[1]:
            case "env":
                return _from_environment(found, name, environment)
            case "file":
                return _from_file(found, name)
            case _:
                raise MisuseError(  # without quoting the text: it may be part of a password
                    f"{name}: expected ${{env:NAME}} or ${{file:PATH:KEY}}, found another kind of reference. "
                    "If it is none but part of a secret, put the secret into the environment or a file."
                )

    text = _REFERENCE.sub(referred, value)
    return Secret(text, value) if _REFERENCE.search(value) else value


def files_referred_to(values: Iterable[str]) -> list[Path]:
    """Return the files in the references of these values."""
    found = (match for value in values for match in _REFERENCE.finditer(value) if match[1] == "file")
    return [Path(parts[1]) for match in found if (parts := _FILE_AND_KEY.fullmatch(match[2]))]


def resolved_client(client: Mapping[str, str], *, where: str) -> dict[str, str]:
    """Return settings of a Kafka client with their references resolved.

    `config.providers`, with which Kafka's own tools resolve them, is left out.
    """
    return {
        name: resolved(value, name=f"{where}: {name}")
        for name, value in client.items()
        if name != _OF_PROVIDERS and not name.startswith(f"{_OF_PROVIDERS}.")
    }


def is_reference(value: str) -> bool:
    """Return whether a value is only a reference, in any syntax, or empty."""
    return not isinstance(value, Secret) and _ONLY_REFERENCE.fullmatch(value) is not None


def looks_secret(name: str, value: str) -> bool:
    """Return whether a setting seems to contain a secret, by its name or within its value.

    A value that is only a reference, in any syntax, does not.

    >>> looks_secret("s3a.secret.key", "x"), looks_secret("extraJavaOptions", "-Xss4m -Dpass=x")
    (True, True)
    >>> looks_secret("s3a.secret.key", "${env.X}"), looks_secret("sasl.secret.file", "/run/secrets/x")
    (False, False)
    """
    given = [(name, value), *_ASSIGNMENT.findall(value)]
    return holds_user(value) or _has_secret(given)


def looks_secret_beside_references(name: str, value: str) -> bool:
    """Return whether a setting seems to contain a secret, other than in the references in its value.

    Of a value with assignments, such as a JAAS entry, each assignment counts by its own name.

    >>> looks_secret_beside_references("sasl.jaas.config", 'X required username="a" password="${env:P}";')
    False
    >>> looks_secret_beside_references("sasl.jaas.config", 'X required username="${env:U}" password="x";')
    True
    """
    plain = _ANY_REFERENCE.sub("${}", value)  # a reference may have spaces
    given = _ASSIGNMENT.findall(plain) or [(name, plain)]
    return holds_user(plain.replace("${}@", "")) or _has_secret(given)


def _has_secret(given: Iterable[tuple[str, str]]) -> bool:
    return any(_sounds_secret(name) and not is_reference(value) for name, value in given)


def refuse_secrets(values: Mapping[str, str], *, where: str) -> None:
    """Raise `MisuseError` for the first secret among settings that everybody on the machine can see."""
    for name, value in values.items():
        if looks_secret(name, value):
            raise MisuseError(
                f"{where}: expected no secrets, found one as {name}: Spark passes these settings on the "
                "command line of its process, which every user of the machine can see. Put it into the "
                'environment and refer to it: "${env.NAME}" in spark.hadoop..., which Hadoop resolves, '
                '"${env:NAME}" in others, which Spark does; options of the JVM: in JDK_JAVA_OPTIONS '
                "(docs/security.md)."
            )


def _sounds_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and not _NO_SECRET_NAME.search(name)


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
