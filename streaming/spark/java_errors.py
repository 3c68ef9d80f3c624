"""What is behind an error that came through the JVM: its innermost cause, in one line."""

import re
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

_RIGHTS: Final = "Grant the user the rights that docs/security.md lists."
_HINTS: Final = {
    "TopicAuthorizationException": _RIGHTS,
    "GroupAuthorizationException": _RIGHTS,
    "SaslAuthenticationException": "Check user and password (--command-config).",
    "SslAuthenticationException": "Check the TLS settings (--command-config).",
    "LoginException": "Check sasl.jaas.config (--command-config).",
}
"""What to do about errors of Kafka's Java client, by the simple name of their class."""

_JAVA: Final = re.compile(r"(?:[\w$]+\.)+([\w$]+)(?:: (.*))?", re.DOTALL)


def told(error: BaseException) -> str:
    """Say in one line what an error is: of one of the JVM the innermost cause, with what to do if known."""
    text = _innermost(error)
    found = _JAVA.fullmatch(text)
    kind, message = (found[1], found[2] or "") if found else (type(error).__name__, text)
    hint = _HINTS.get(kind)
    return f"{kind}: {_telling_line(message).rstrip('.')}.{f' {hint}' if hint else ''}"


def _innermost(error: BaseException) -> str:
    """Return the text of the innermost cause, as Java writes it: `its.Class: message`."""
    # PySpark wraps the exceptions of the JVM that it knows, each with its cause, and leaves others to py4j.
    while (cause := getattr(error, "_cause", None)) is not None:
        error = cause
    if not isinstance(error, Py4JJavaError):
        return str(error)
    thrown: Any = error.java_exception
    while thrown.getCause() is not None:
        thrown = thrown.getCause()
    return str(thrown.toString())


def _telling_line(text: str) -> str:
    """Return the first line, but of a Python traceback the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no message"]
    return lines[-1 if lines[0].endswith("Traceback (most recent call last):") else 0]
