"""Prints text from outside without letting it act on a terminal or split a line of a log.

Names in the log are whatever a client sent to a broker: they may have control characters that move the
cursor, line breaks that make two messages of one, and marks that change the direction of writing.
"""

import json
import re
from typing import Any, Final

_BLANK: Final = " \u115f\u1160\u2800\u3164\uffa0"
"""Characters that are printable but invisible."""


_CALLS: Final = re.compile(r"[<>&]|@(?=(?:here|channel|everyone|all)\b)|(?<=\])\(", re.IGNORECASE)


def shown(text: str) -> str:
    """Replace characters that are not printable by escapes.

    >>> shown("a\\x1b[2J\\nb")
    'a\\\\x1b[2J\\\\nb'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def printable(name: str) -> str:
    """Print a name as `shown`, in quotes if its beginning or end would be invisible.

    That is a name that is empty, that begins or ends with a blank, or that begins with a character that
    combines with the one before it.

    >>> printable("a\\x1b[2J"), printable(""), printable("a ")
    ('a\\\\x1b[2J', '""', '"a "')
    """
    is_seen = name.strip() and name.strip(_BLANK) == name
    if is_seen and (name[0].isascii() or _has_width(shown(name[0]))):
        return shown(name)
    return f'"{shown(name)}"'


def calling_nobody(text: str) -> str:
    """Escape chat markup, and mentions of all people, as JSON does.

    Slack's markup is in angle brackets (`<!channel>`). Other chats mention all people by `@here` and the
    like, and turn `[text](address)` into links and images.

    >>> calling_nobody("<!here> & @here, ops@example.org")
    '\\\\u003c!here\\\\u003e \\\\u0026 \\\\u0040here, ops@example.org'
    """
    return _CALLS.sub(lambda sign: _escaped_in_json(sign[0]), text)


def shown_lines(text: str) -> str:
    """Print text of several lines as `shown`, except that line breaks stay."""
    return "\n".join(map(shown, text.split("\n")))


def json_text(value: Any, **options: Any) -> str:
    """Return JSON (`options` as for `json.dumps`) in which every character is printable.

    >>> json_text("a\\x7fé")
    '"a\\\\u007fé"'
    """
    text = json.dumps(value, ensure_ascii=False, **options)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped_in_json(char) for char in text)


def _has_width(text: str) -> bool:
    from rich.cells import cell_len  # not at the top: only tables and screens need it

    return cell_len(text) > 0


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


def _escaped_in_json(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
