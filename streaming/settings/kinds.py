"""Kinds of settings: for each kind its form in TOML, the refused values, and the value of its field.

A field of `streaming.settings.model` has its kind in its type; plain text and numbers need none.
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
from streaming.settings.listener_names import refuse_unknown
from streaming.settings.secrets import Secret, refuse_secrets

OFF: Final = "off"
"""The TOML value of a duration after which nothing happens; 0 in the field."""

AUTO: Final = "auto"
"""The TOML value of a duration that comes from elsewhere, most often from the brokers; None in the field."""

LONGEST_MS: Final = 36_500 * DAY_MS
"""A century, which every clock and timestamp can represent; more must be a mistake."""

MOST: Final = 2**31 - 1
"""The largest number, which fits into an int of Java; more must be a mistake."""

_NO_NUL: Final = "a path without NUL"

MIB: Final = 2**20
GIB: Final = 2**30
UNITS_OF_SIZES: Final[Mapping[str, int]] = {"GiB": GIB, "MiB": MIB}

SERVERS: Final = "host:port, or several separated by commas (ports up to 65535, IPv6 addresses in brackets)"
HOST_AND_PORT: Final = "host:port (ports up to 65535, IPv6 addresses in brackets)"
_SIZE: Final = re.compile(r"(?P<number>[1-9][0-9]{0,8})(?P<unit>GiB|MiB)")
_ESCAPED: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SERVER: Final = re.compile(
    r"(?:[A-Za-z0-9_-]+://)?(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\])"
    r":(?P<port>[0-9]{1,5})"
)

_TYPE_NAMES: Final = {
    str: "text in quotes",
    int: "a whole number",
    bool: "true or false",
    dict: "a table",
    list: "a list of tables",
}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The base of all kinds.

    `toml` is the type in TOML. If the setting `may_refer`, `${env:NAME}` and `${file:PATH:KEY}` in it are
    resolved, and a refused value is not shown.
    """

    toml: ClassVar[type] = str
    may_refer: bool = False

    def setting(self, field: str) -> str:
        """Return the name of the setting of a field."""
        return field

    def expectation(self, value: object) -> str | None:
        """Describe the expected value, if this value is not one."""
        if (str if isinstance(value, Secret) else type(value)) is not self.toml:
            return _TYPE_NAMES[self.toml]
        return self.further_expectation(value)

    def further_expectation(self, value: Any) -> str | None:
        """Describe the expected value, if a value of the right type is not one."""
        return None if value else "text that is not empty"

    def quoted(self, value: object) -> str:
        """Quote a refused value, unless it may contain a secret."""
        text = quotation(value)
        if self.may_refer or "@" in text:  # text before an @ may be a password
            return http_values.refused_text(value if isinstance(value, str) else "")
        return text

    def read(self, value: Any, *, name: str) -> Any:
        """Return the value of the field; raises `MisuseError` for errors that only parsing finds."""
        return value


@dataclass(frozen=True, kw_only=True)
class Text(Kind):
    """A text; only few settings may be empty."""

    may_be_empty: bool = False

    def further_expectation(self, value: Any) -> str | None:
        return None if self.may_be_empty else super().further_expectation(value)


@dataclass(frozen=True, kw_only=True)
class File(Text):
    """A path of a file."""

    def further_expectation(self, value: Any) -> str | None:
        return _NO_NUL if "\0" in value else super().further_expectation(value)


@dataclass(frozen=True, kw_only=True)
class Name(Kind):
    """A name of the user's choice that needs no quotes in labels, URLs and shells: as Kafka allows for
    topics."""

    def further_expectation(self, value: Any) -> str | None:
        return None if _NAME.fullmatch(value) else "1 to 249 letters of A-Z and a-z, digits, '.', '_' and '-'"


@dataclass(frozen=True, kw_only=True)
class Number(Kind):
    """A whole number above 0; 0 only if it has a meaning. None in the field is "auto"."""

    toml: ClassVar[type] = int
    may_be_zero: bool = False
    may_be_auto: bool = False

    def expectation(self, value: object) -> str | None:
        """Accept "auto" if it has a meaning."""
        if self.may_be_auto and value == AUTO:
            return None
        expected = super().expectation(value)
        return f'{expected}, or "auto"' if expected and self.may_be_auto else expected

    def read(self, value: Any, *, name: str) -> int | None:
        """Return the number; None for "auto"."""
        return None if value == AUTO else int(value)

    def further_expectation(self, value: Any) -> str | None:
        if value > MOST:
            return f"a number of at most {MOST}"
        if self.may_be_zero:
            return None if value >= 0 else "a number that is not negative"
        return None if value > 0 else "a number above 0"


@dataclass(frozen=True, kw_only=True)
class Size(Kind):
    """A number with its unit, `4GiB`, or "auto"; the field has bytes (None for "auto"), and a name that ends
    in `_bytes`."""

    least_bytes: int

    def setting(self, field: str) -> str:
        """Remove the unit: in TOML it is part of the value."""
        return field.removesuffix("_bytes")

    def further_expectation(self, value: Any) -> str | None:
        if value == AUTO:
            return None
        if (size := size_of(value)) is None:
            return 'a whole number and its unit, such as "4GiB" or "2560MiB", or "auto"'
        return None if size >= self.least_bytes else f"at least {shown_size(self.least_bytes)}"

    def read(self, value: Any, *, name: str) -> int | None:
        """Return bytes; None for "auto"."""
        return None if value == AUTO else size_of(value)


@dataclass(frozen=True, kw_only=True)
class Choice(Kind):
    """One of a few words."""

    of: tuple[str, ...]

    def further_expectation(self, value: Any) -> str | None:
        return None if value in self.of else f"one of {', '.join(self.of)}"


@dataclass(frozen=True, kw_only=True)
class Flag(Kind):
    """True or false."""

    toml: ClassVar[type] = bool

    def further_expectation(self, value: Any) -> str | None:
        return None


@dataclass(frozen=True, kw_only=True)
class Credential(Kind):
    """A secret, by reference or in plain text: never shown. Empty only if that has a meaning."""

    may_refer: bool = True

    def further_expectation(self, value: Any) -> str | None:
        return None


@dataclass(frozen=True, kw_only=True)
class Patterns(Kind):
    """A list of patterns of names (`*`, `?`, `[...]` as in a shell)."""

    toml: ClassVar[type] = list

    def expectation(self, value: object) -> str | None:
        is_texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
        return None if is_texts else 'a list of texts, such as ["billing-*"]'

    def read(self, value: Any, *, name: str) -> tuple[str, ...]:
        return tuple(value)


@dataclass(frozen=True, kw_only=True)
class Duration(Kind):
    """A number with its unit, `30s`; the field has milliseconds, and a name that ends in `_ms`."""

    may_be_zero: bool = False
    may_be_auto: bool = False
    may_be_off: bool = False

    def setting(self, field: str) -> str:
        """Remove the unit: in TOML it is part of the value."""
        return field.removesuffix("_ms")

    def read(self, value: Any, *, name: str) -> int | None:
        """Return milliseconds, at most a century; None for "auto", 0 for "off"."""
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
    """An http or https address, or empty; the part after the host may be secret and is never shown."""

    may_refer: bool = True

    def further_expectation(self, value: Any) -> str | None:
        return None if not value or http_values.is_address(value) else http_values.AN_ADDRESS


@dataclass(frozen=True, kw_only=True)
class Location(Kind):
    """A folder or a URL. It appears in errors and the log, so it must not contain a secret."""

    may_refer: bool = False

    def further_expectation(self, value: Any) -> str | None:
        if "\0" in value:
            return _NO_NUL
        if value.startswith("file:") and not value.startswith("file:///"):
            return "a folder or a URL; URLs of folders begin with file:///"
        scheme, mark, _ = value.partition("://")
        if mark and scheme != scheme.lower():  # FILE:///x would count as a place that cannot be locked
            return "a folder or a URL without capitals before ://"
        if _ESCAPED.search(value):  # delta-rs reads %20 as a space, Hadoop as it is
            return "a folder or a URL without % before two hexadecimal digits"
        if http_values.is_plain_place(value):
            return super().further_expectation(value)
        return (
            "a folder or a URL without user, password, query or fragment (credentials: in "
            "[tables.storage_options] or the environment)"
        )

    def quoted(self, value: object) -> str:
        """Do not quote a URL: it may contain a secret."""
        return "another URL" if isinstance(value, str) and value else quotation(value)


@dataclass(frozen=True, kw_only=True)
class Servers(Kind):
    """Bootstrap servers, in the form of Kafka's own `bootstrap.servers`."""

    def further_expectation(self, value: Any) -> str | None:
        return None if are_servers(value) else SERVERS


@dataclass(frozen=True, kw_only=True)
class HostPort(Kind):
    """An address to listen on or to advertise; empty only if that has a meaning."""

    may_be_empty: bool = False

    def further_expectation(self, value: Any) -> str | None:
        return None if host_and_port(value) or (self.may_be_empty and not value) else HOST_AND_PORT


@dataclass(frozen=True, kw_only=True)
class FreeTable(Kind):
    """Settings of another program: any key is allowed, and all values are passed on as text.

    If the table `has_headers` of HTTP, its values are never shown.
    """

    toml: ClassVar[type] = dict
    may_refer: bool = True
    has_headers: bool = False

    def further_expectation(self, value: Any) -> str | None:
        """Refuse tables and lists as values, and invalid HTTP headers."""
        if not all(map(_is_plain, value.values())):
            return "texts, numbers (up to 64 bits), true or false in its table"
        return http_values.HEADERS if self.has_headers and http_values.refused_header(value) else None

    def quoted(self, value: object) -> str:
        """Name the keys of the refused values."""
        if not isinstance(value, dict):
            return http_values.refused_text("")
        others = [key for key, item in value.items() if not _is_plain(item)]
        return f"something else as {', '.join(others)}" if others else str(http_values.refused_header(value))

    def read(self, value: Any, *, name: str) -> Mapping[str, str]:
        return MappingProxyType({key: _text(item) for key, item in value.items()})


@dataclass(frozen=True, kw_only=True)
class ClientTable(FreeTable):
    """Settings of Kafka's clients, with the names of the Java client."""

    def read(self, value: Any, *, name: str) -> Mapping[str, str]:
        """Return the table with all values as text; refuse mistaken names."""
        refuse_mistaken(value, where=name)
        return super().read(value, name=name)


@dataclass(frozen=True, kw_only=True)
class ListenerTable(FreeTable):
    """Settings of a listener, with the names of Kafka's brokers."""

    def read(self, value: Any, *, name: str) -> Mapping[str, str]:
        """Return the table with all values as text; refuse unknown names, which would have no effect."""
        refuse_unknown(value, where=name)
        return super().read(value, name=name)


@dataclass(frozen=True, kw_only=True)
class SparkTable(FreeTable):
    """Settings of Spark, which resolves references of its own."""

    may_refer: bool = False

    def read(self, value: Any, *, name: str) -> Mapping[str, str]:
        """Return the table with all values as text; refuse secrets."""
        values = super().read(value, name=name)
        refuse_secrets(values, where=name)
        return values


@dataclass(frozen=True, kw_only=True)
class Entries(Kind):
    """A list of tables (`[[name]]` in TOML); the field has a tuple of dataclasses.

    A missing setting of an entry has the default of the dataclass, and is required if that has none.
    """

    toml: ClassVar[type] = list
    of: type

    def further_expectation(self, value: Any) -> str | None:
        """Accept every list: entries are checked one by one."""
        return None

    def read(self, value: Any, *, name: str) -> tuple[Any, ...]:
        return tuple(self._entry(entry, name) for entry in value)

    def required(self) -> list[str]:
        """Return the names of the settings that each entry must have."""
        without_default = (one for one in fields(self.of) if one.default is one.default_factory is MISSING)
        return [kind_of(one).setting(one.name) for one in without_default]

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
    """A table of settings; the field has a dataclass of its own."""

    toml: ClassVar[type] = dict
    of: type


_PLAIN: Final[Mapping[Any, Kind]] = {str: Text(), int: Number()}
"""The kinds of fields whose type has none."""


def quotation(value: object) -> str:
    """Return a value of a settings file in the notation of Python, if Python can write it."""
    try:
        return repr(value)
    except ValueError:  # more digits than `sys.get_int_max_str_digits`
        return "a number of too many digits"
    except RecursionError:
        return "lists or tables within too many others"


def are_servers(text: str) -> bool:
    """Return whether a text is a list of brokers, as `host:port`, separated by commas.

    As in the Java client, a port is required, and IPv6 addresses are in brackets.

    >>> are_servers("kafka-1:9092, [::1]:9092"), are_servers("kafka-1"), are_servers("kafka-1:99999")
    (True, False, False)
    """
    found = [_SERVER.fullmatch(server.strip()) for server in text.split(",") if server.strip()]
    ports = [int(server["port"]) if server else 0 for server in found]
    return bool(ports) and all(0 < port <= http_values.LARGEST_PORT for port in ports)


def size_of(text: str) -> int | None:
    """Return the bytes of a size; None: it is invalid.

    >>> size_of("4GiB"), size_of("1536MiB"), size_of("4g")
    (4294967296, 1610612736, None)
    """
    found = _SIZE.fullmatch(text)
    return int(found["number"]) * UNITS_OF_SIZES[found["unit"]] if found else None


def shown_size(size: int) -> str:
    """Return a size in bytes as settings have it.

    >>> shown_size(4 * 2**30), shown_size(1536 * 2**20)
    ('4GiB', '1536MiB')
    """
    unit = "GiB" if size % GIB == 0 else "MiB"
    return f"{size // UNITS_OF_SIZES[unit]}{unit}"


def host_and_port(text: str) -> tuple[str, int] | None:
    """Parse one address; None: it is invalid. Port 0 means any free one.

    >>> host_and_port("localhost:9192"), host_and_port("[::1]:0"), host_and_port("localhost")
    (('localhost', 9192), ('::1', 0), None)
    """
    found = _SERVER.fullmatch(text)
    if found is None or "://" in text or int(found["port"]) > http_values.LARGEST_PORT:
        return None
    return found["host"].strip("[]"), int(found["port"])


def kind_of(field: Field[Any]) -> Kind:
    found = [kind for kind in getattr(field.type, "__metadata__", ()) if isinstance(kind, Kind)]
    if found:
        return found[0]
    if isinstance(field.type, type) and is_dataclass(field.type):
        return Section(of=field.type)
    return _PLAIN[field.type]


def kinds_of(section: type, prefix: str = "") -> dict[str, Kind]:
    """Return the kind of every setting of a dataclass, its sections included, by dotted name."""
    kinds: dict[str, Kind] = {}
    for field in fields(section):
        kind = kind_of(field)
        if isinstance(kind, Section):
            kinds |= kinds_of(kind.of, f"{prefix}{field.name}.")
        else:
            kinds[f"{prefix}{kind.setting(field.name)}"] = kind
    return kinds


def _is_plain(value: object) -> bool:
    """Whether a TOML value can be passed on as text: numbers may have up to 64 bits, as TOML says."""
    return isinstance(value, str | float) or (isinstance(value, int) and -(2**63) <= value < 2**63)


def _text(value: object) -> str:
    """Return a TOML value as Java and Rust settings spell it (`true`, not `True`)."""
    if isinstance(value, str):
        return value  # as it is: a `Secret` must stay one
    return str(value).lower() if isinstance(value, bool) else str(value)
