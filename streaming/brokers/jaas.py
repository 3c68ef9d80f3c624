"""JAAS entries, the form of `sasl.jaas.config`: read as Kafka reads them, and written."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from streaming.model.errors import MisuseError

_VALUE: Final = r""""(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*'|[^\s="';]+"""
_OPTION: Final = re.compile(rf"([\w.-]+)\s*=\s*({_VALUE})", re.DOTALL)
_ENTRY: Final = re.compile(
    rf"\s*(?P<module>[\w.$]+)\s+\w+(?P<options>(?:\s+{_OPTION.pattern})*)\s*;\s*", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "b": "\b", "v": "\v"}
_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})


@dataclass(frozen=True)
class JaasEntry:
    """One entry: the class of the login module, and its options by name."""

    module: str
    options: Mapping[str, str]


def read_jaas(entry: str) -> JaasEntry:
    """Parse `module flag name=value ...;` as Kafka does. Raises `MisuseError`."""
    found = _ENTRY.fullmatch(entry)
    if found is None:
        raise MisuseError(  # without the entry itself: it contains the password
            'sasl.jaas.config: expected one entry, LoginModule required name="value" ...; '
            "found something else. Check its quotes and the semicolon at its end; a value in quotes has no "
            "line ends, as a file with a password may have one at its end."
        )
    options = _OPTION.findall(found["options"])
    return JaasEntry(found["module"], {name: _text(value) for name, value in options})


def written_jaas(entry: JaasEntry) -> str:
    """Return an entry in the form that `read_jaas` and Kafka read."""
    options = "".join(f' {name}="{value.translate(_ESCAPED)}"' for name, value in entry.options.items())
    return f"{entry.module} required{options};"


def _text(value: str) -> str:
    """Remove quotes and escapes from a value, as java.io.StreamTokenizer does."""

    def character(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPES.get(code, code)

    return _ESCAPE.sub(character, value[1:-1]) if value[0] in "\"'" else value
