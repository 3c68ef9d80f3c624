"""Reads Java properties files, the format of client settings for Kafka's own tools."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from streaming.model.errors import MisuseError

_PROPERTY: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_PROPERTY_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PROPERTY_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(file: Path) -> dict[str, str]:
    """Read a Java properties file, as Kafka's own tools do for `--command-config`.

    The encoding is Latin-1, as there: other characters are written as escapes (backslash, u, hex). Raises
    `MisuseError` if the file cannot be read, or has a malformed escape.
    """
    try:
        text = file.read_bytes().decode("latin-1")
    except OSError as error:
        raise MisuseError(f"client settings {file}: cannot be read ({error.strerror}).") from error
    except ValueError as error:  # NUL in the path
        raise MisuseError(f"client settings {file}: cannot be read ({error}).") from error
    return dict(_property(line, file) for line in _logical_lines(text))


def _logical_lines(text: str) -> Iterator[str]:
    """Join continued lines (odd number of trailing backslashes); drop blank lines and comments."""
    pending = ""
    for raw in re.split(r"\r\n|\n|\r", text):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        line = pending + line
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = line[:-1]
        else:
            yield line
            pending = ""
    if pending:
        yield pending


def _property(line: str, file: Path) -> tuple[str, str]:
    """Split at the first unescaped `=`, `:` or blank, as java.util.Properties does."""
    found = _PROPERTY.fullmatch(line)
    assert found is not None  # the pattern matches every text
    name = _unescaped(found[1], what=f"{file}: the name of a setting")
    return name, _unescaped(found[2], what=f"{file}: {name}")


def _unescaped(text: str, *, what: str) -> str:
    def character(found: re.Match[str]) -> str:
        code = found[1]
        if code == "u":
            raise MisuseError(  # without quoting the text: it may contain a password
                f"client settings {what}: expected four hex digits after \\u, found something else. "
                "Write a backslash as two."
            )
        return chr(int(code[1:], 16)) if len(code) == 5 else _PROPERTY_ESCAPES.get(code, code)

    units = _PROPERTY_ESCAPE.sub(character, text)  # UTF-16 as in Java: two units may be one character
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
