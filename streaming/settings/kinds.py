"""The kinds of settings: what one of each kind is in TOML, what is refused, and what its field holds.

A field of `streaming.settings.model` names its kind in its type; text and numbers need not.
"""

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final

from streaming.common import http_values
from streaming.common.times import DAY_MS, parse_duration_ms
from streaming.model.errors import MisuseError
from streaming.settings.client_names import refuse_mistaken
from streaming.settings.secrets import Secret, refuse_secrets

OFF: Final = "off"
"""Stands in TOML for a duration after which nothing is to happen, which is 0 in its field."""

AUTO: Final = "auto"
"""Stands in TOML for a duration that something else says, most often the brokers; None in its field."""

LONGEST_MS: Final = 36_500 * DAY_MS
"""A century, which every clock and timestamp bears; more than that is a slip of the pen."""

SERVERS: Final = "host:port, or several separated by commas (ports up to 65535, IPv6 addresses in brackets)"
HOST_AND_PORT: Final = "host:port (ports up to 65535, IPv6 addresses in brackets)"
_SERVER: Final = re.compile(
    r"(?:[A-Za-z0-9_-]+://)?(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\])"
    r":(?P<port>[0-9]{1,5})"
)

_TYPE_NAMES: Final = {
    str: "text in quotes",
    int: "a whole number",
    dict: "a table",
    list: "a list of tables",
}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What all kinds have.

    `toml` is the type in TOML. Where the setting `may_refer`, `${env:NAME}` and `${file:PATH:KEY}` in it are
    resolved, and what is refused of it is not shown.
    """

    toml: ClassVar[type] = str
    may_refer: bool = False

    def setting(self, field: str) -> str:
        """Return the name of the setting that a field holds."""
        return field

    def expectation(self, value: object) -> str | None:
        """Say what the setting expects, if the value is not that."""
        if (str if isinstance(value, Secret) else type(value)) is not self.toml:
            return _TYPE_NAMES[self.toml]
        return self.further_expectation(value)

    def further_expectation(self, value: Any) -> str | None:
        """Say what the setting expects, if a value of its type is not that."""
        return None if value else "text that is not empty"

    def quoted(self, value: object) -> str:
        """Quote a value that was refused, unless it may hold a secret."""
        text = repr(value)
        if self.may_refer or "@" in text:  # what is before it may be a password
            return http_values.refused_text(value if isinstance(value, str) else "")
        return text

    def read(self, value: Any, *, name: str) -> Any:
        """Return what the field holds; raises `MisuseError` for what only shows itself now."""
        return value


@dataclass(frozen=True, kw_only=True)
class Text(Kind):
    """A text, which only few settings may leave empty."""

    may_be_empty: bool = False

    def further_expectation(self, value: Any) -> str | None:
        """Refuse an empty text, unless it may be empty."""
        return None if self.may_be_empty else super().further_expectation(value)


@dataclass(frozen=True, kw_only=True)
class Number(Kind):
    """A whole number above 0, or 0 where that means something."""

    toml: ClassVar[type] = int
    may_be_zero: bool = False

    def further_expectation(self, value: Any) -> str | None:
        """Refuse what is below 0, and 0 unless it may be."""
        if self.may_be_zero:
            return None if value >= 0 else "a number that is not negative"
        return None if value > 0 else "a number above 0"


@dataclass(frozen=True, kw_only=True)
class Choice(Kind):
    """One of a few words."""

    of: tuple[str, ...]

    def further_expectation(self, value: Any) -> str | None:
        """Refuse all other words."""
        return None if value in self.of else f"one of {', '.join(self.of)}"


@dataclass(frozen=True, kw_only=True)
class Duration(Kind):
    """A number with its unit, `30s`; the field holds milliseconds, and its name ends in `_ms`."""

    may_be_zero: bool = False
    may_be_auto: bool = False
    may_be_off: bool = False

    def setting(self, field: str) -> str:
        """Leave out the unit: in TOML the value has it."""
        return field.removesuffix("_ms")

    def read(self, value: Any, *, name: str) -> int | None:
        """Return milliseconds, at most a century; None of "auto", 0 of "off"."""
        if self.may_be_auto and value == AUTO:
            return None
        if self.may_be_off and value == OFF:
            return 0
        duration = parse_duration_ms(value, name=name)
        if duration == 0 and not self.may_be_zero:
            raise MisuseError(f"{name}: expected a duration above 0, found {value!r}.")
        if duration > LONGEST_MS:
            raise MisuseError(
                f"{name}: expected a duration of at most {LONGEST_MS // DAY_MS}d, found {value!r}."
            )
        return duration


@dataclass(frozen=True, kw_only=True)
class Url(Kind):
    """An http or https address, or empty; what follows the host may be secret and is never shown."""

    may_refer: bool = True

    def further_expectation(self, value: Any) -> str | None:
        """Refuse what is no address, or could be taken for another one."""
        return None if not value or http_values.is_address(value) else http_values.AN_ADDRESS


@dataclass(frozen=True, kw_only=True)
class Location(Kind):
    """A folder, or a URL: errors and lines of the log name it, so it holds no secret."""

    may_refer: bool = False

    def further_expectation(self, value: Any) -> str | None:
        """Refuse a URL with more than a path in it."""
        if http_values.is_plain_place(value):
            return super().further_expectation(value)
        return (
            "a folder or a URL without user, password, query or fragment (credentials: in "
            "[tables.storage_options] or the environment)"
        )

    def quoted(self, value: object) -> str:
        """Quote no URL: it may hold a secret."""
        return "another URL" if isinstance(value, str) and value else repr(value)


@dataclass(frozen=True, kw_only=True)
class Servers(Kind):
    """Bootstrap brokers, as Kafka's own `bootstrap.servers`."""

    def further_expectation(self, value: Any) -> str | None:
        """Refuse what Kafka's clients do not take for brokers."""
        return None if are_servers(value) else SERVERS


@dataclass(frozen=True, kw_only=True)
class HostPort(Kind):
    """One address to listen on or to be reached at; empty only where that means something."""

    may_be_empty: bool = False

    def further_expectation(self, value: Any) -> str | None:
        """Refuse what is no host with a port."""
        return None if host_and_port(value) or (self.may_be_empty and not value) else HOST_AND_PORT


@dataclass(frozen=True, kw_only=True)
class FreeTable(Kind):
    """Settings of another program: any key is allowed, and all values are passed on as text.

    The values of a table that `has_headers` of HTTP are never shown.
    """

    toml: ClassVar[type] = dict
    may_refer: bool = True
    has_headers: bool = False

    def further_expectation(self, value: Any) -> str | None:
        """Refuse tables and lists as values, and headers that no request can carry."""
        if not all(isinstance(item, str | int | float) for item in value.values()):
            return "texts, numbers, true or false in its table"
        return http_values.HEADERS if self.has_headers and http_values.refused_header(value) else None

    def quoted(self, value: object) -> str:
        """Name the keys whose values were refused."""
        if not isinstance(value, dict):
            return http_values.refused_text("")
        others = [key for key, item in value.items() if not isinstance(item, str | int | float)]
        return f"something else as {', '.join(others)}" if others else str(http_values.refused_header(value))

    def read(self, value: Any, *, name: str) -> Mapping[str, str]:
        """Return the table with all values as text."""
        return MappingProxyType({key: _text(item) for key, item in value.items()})


@dataclass(frozen=True, kw_only=True)
class ClientTable(FreeTable):
    """Settings of Kafka's clients, under the names of the Java client."""

    def read(self, value: Any, *, name: str) -> Mapping[str, str]:
        """Return the table with all values as text; refuses names that are mistaken."""
        refuse_mistaken(value, where=name)
        return super().read(value, name=name)


@dataclass(frozen=True, kw_only=True)
class SparkTable(FreeTable):
    """Settings of Spark, which has references of its own."""

    may_refer: bool = False

    def read(self, value: Any, *, name: str) -> Mapping[str, str]:
        """Return the table with all values as text; refuses secrets."""
        values = super().read(value, name=name)
        refuse_secrets(values, where=name)
        return values


@dataclass(frozen=True, kw_only=True)
class Entries(Kind):
    """A list of tables (`[[name]]` in TOML); the field holds a tuple of dataclasses.

    What an entry leaves out is as the dataclass has it, and required where that has no default.
    """

    toml: ClassVar[type] = list
    of: type

    def further_expectation(self, value: Any) -> str | None:
        """Refuse nothing: entries are checked one by one."""
        return None

    def read(self, value: Any, *, name: str) -> tuple[Any, ...]:
        """Return the entries, in their order."""
        return tuple(self._entry(entry, name) for entry in value)

    def required(self) -> list[str]:
        """Name the settings that each entry has to have."""
        return [kind_of(one).setting(one.name) for one in fields(self.of) if one.default is MISSING]

    def _entry(self, entry: Mapping[str, Any], name: str) -> Any:
        held = {one.name: (kind_of(one), kind_of(one).setting(one.name)) for one in fields(self.of)}
        return self.of(
            **{
                field: kind.read(entry[key], name=f"{name} {key}")
                for field, (kind, key) in held.items()
                if key in entry
            }
        )


@dataclass(frozen=True, kw_only=True)
class Section(Kind):
    """A table of settings; the field holds a dataclass of its own."""

    toml: ClassVar[type] = dict
    of: type


_PLAIN: Final[Mapping[Any, Kind]] = {str: Text(), int: Number()}
"""The kinds of fields whose type names none."""


def are_servers(text: str) -> bool:
    """Tell whether a text names brokers, as `host:port`, separated by commas.

    As in the Java client, a port is required, and an IPv6 address stands in brackets.

    >>> are_servers("kafka-1:9092, [::1]:9092"), are_servers("kafka-1"), are_servers("kafka-1:99999")
    (True, False, False)
    """
    found = [_SERVER.fullmatch(server.strip()) for server in text.split(",") if server.strip()]
    ports = [int(server["port"]) if server else 0 for server in found]
    return bool(ports) and all(0 < port <= http_values.LARGEST_PORT for port in ports)


def host_and_port(text: str) -> tuple[str, int] | None:
    """Read one address; None: it is none. Port 0 stands for any that is free.

    >>> host_and_port("localhost:9192"), host_and_port("[::1]:0"), host_and_port("localhost")
    (('localhost', 9192), ('::1', 0), None)
    """
    found = _SERVER.fullmatch(text)
    if found is None or "://" in text or int(found["port"]) > http_values.LARGEST_PORT:
        return None
    return found["host"].strip("[]"), int(found["port"])


def kind_of(field: Field[Any]) -> Kind:
    """Return the kind of the setting (or section) that a field of a dataclass holds."""
    found = [kind for kind in getattr(field.type, "__metadata__", ()) if isinstance(kind, Kind)]
    if found:
        return found[0]
    if isinstance(field.type, type) and is_dataclass(field.type):
        return Section(of=field.type)
    return _PLAIN[field.type]


def kinds_of(section: type, prefix: str = "") -> dict[str, Kind]:
    """Return the kind of every setting of a dataclass and the sections in it, by its dotted name."""
    kinds: dict[str, Kind] = {}
    for field in fields(section):
        kind = kind_of(field)
        if isinstance(kind, Section):
            kinds |= kinds_of(kind.of, f"{prefix}{field.name}.")
        else:
            kinds[f"{prefix}{kind.setting(field.name)}"] = kind
    return kinds


def _text(value: object) -> str:
    """Write a TOML value the way Java and Rust settings spell it (`true`, not `True`)."""
    if isinstance(value, str):
        return value  # a secret stays one
    return str(value).lower() if isinstance(value, bool) else str(value)
