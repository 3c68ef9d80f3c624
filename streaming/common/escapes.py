"""Shows text from outside as it is, and never lets it act: on a terminal, in a line of a log.

Names in the log are whatever a client sent to a broker: control characters that move the cursor, line breaks
that make two messages of one, marks that turn the direction of writing.
"""

import json
from typing import Any


def shown(text: str) -> str:
    """Show what is not printable as escapes; the rest stays as it is, and so does an empty text.

    >>> shown("a\\x1b[2J\\nb")
    'a\\\\x1b[2J\\\\nb'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


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


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


def _escaped_in_json(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
