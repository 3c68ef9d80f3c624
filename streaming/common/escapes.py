"""Shows text from outside as it is, and never lets it act: on a terminal, in a line of a log.

Names in the log are whatever a client sent to a broker: control characters that move the cursor, line breaks
that make two messages of one, marks that turn the direction of writing.
"""

import json
import re
from typing import Any, Final

_BLANK: Final = " \u115f\u1160\u2800\u3164\uffa0"
"""Characters that are printable and show nothing."""


_CALLS: Final = re.compile(r"[<>&]|@(?=(?:here|channel|everyone|all)\b)|(?<=\])\(", re.IGNORECASE)


def shown(text: str) -> str:
    """Show what is not printable as escapes; the rest stays as it is, and so does an empty text.

    >>> shown("a\\x1b[2J\\nb")
    'a\\\\x1b[2J\\\\nb'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def printable(name: str) -> str:
    """Show a name as `shown`; put quotes around one whose begin or end would not be seen.

    That is a name that is empty or blank, one with a blank there, and one that begins with a character that
    would go on top of what stands before it.

    >>> printable("a\\x1b[2J"), printable(""), printable("a ")
    ('a\\\\x1b[2J', '""', '"a "')
    """
    is_seen = name.strip() and name.strip(_BLANK) == name
    if is_seen and (name[0].isascii() or _has_width(shown(name[0]))):
        return shown(name)
    return f'"{shown(name)}"'


def calling_nobody(text: str) -> str:
    """Write what a chat would take for markup or a call to all of its people as JSON escapes it.

    Slack's markup is in angle brackets (`<!channel>`); others call all who are there by `@here` and the like,
    and make links and memory_snapshots of `[text](address)`.

    >>> calling_nobody("<!here> & @here, ops@example.org")
    '\\\\u003c!here\\\\u003e \\\\u0026 \\\\u0040here, ops@example.org'
    """
    return _CALLS.sub(lambda sign: _escaped_in_json(sign[0]), text)


def shown_lines(text: str) -> str:
    """Show text of several lines: line breaks stay, what else is not printable is shown as escapes."""
    return "\n".join(map(shown, text.split("\n")))


def json_text(value: Any, **options: Any) -> str:
    """Write JSON (`options` as for `json.dumps`) in which every character is printable.

    >>> json_text("a\\x7fé")
    '"a\\\\u007fé"'
    """
    text = json.dumps(value, ensure_ascii=False, **options)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped_in_json(char) for char in text)


def _has_width(text: str) -> bool:
    from rich.cells import cell_len  # which tables and screens alone need

    return cell_len(text) > 0


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


def _escaped_in_json(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
