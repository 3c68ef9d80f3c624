"""Errors from the JVM in one line: the innermost cause, or how the JVM ended."""

import logging
import re
import signal
import subprocess
import traceback
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from py4j.protocol import Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext

_RIGHTS: Final = "Grant the user the rights that docs/security.md lists."
_HINTS: Final = {
    "TopicAuthorizationException": _RIGHTS,
    "GroupAuthorizationException": _RIGHTS,
    "SaslAuthenticationException": "Check the credentials (--command-config).",
    "SslAuthenticationException": "Check the TLS settings (--command-config).",
    "SSLHandshakeException": "Check the TLS settings (--command-config).",
    "LoginException": "Check sasl.jaas.config (--command-config).",
    "S3Exception": "The store refused a request for the checkpoint (docs/operations.md#checkpoints-on-s3).",
}
"""Advice about errors of Kafka's Java client and of AWS's for S3, by the simple name of their class."""

NO_MESSAGE: Final = "no message"

_JAVA: Final = re.compile(r"(?:[\w$]+\.)+([\w$]+)(?:: (.*))?", re.DOTALL)

OF_CONNECTIONS: Final = (Py4JNetworkError, ConnectionError, EOFError)
"""Exceptions that are raised when the JVM does not answer."""

_SHOWN: Final = 1_000
"""Characters of an error; AWS's library lists everything that it has tried, several times."""

_END_LIMIT_S: Final = 5.0


def error_line(error: BaseException) -> str:
    """Return one line about an error: for one of the JVM the innermost cause, with advice if there is any."""
    kind, message = kind_and_message(error)
    hint = _HINTS.get(kind)
    return f"{kind}: {message}.{f' {hint}' if hint else ''}"


def kind_and_message(error: BaseException) -> tuple[str, str]:
    """Return the simple name of the class of an error and a line of its message, without a full stop: for one
    of the JVM those of the innermost cause."""
    text = _innermost(error)
    found = _JAVA.fullmatch(text)
    kind, message = (found[1], found[2] or "") if found else (type(error).__name__, text)
    line = _explaining_line(message)
    if line != message and (raised := _JAVA.fullmatch(line)):  # by a Python worker
        kind, line = raised[1], raised[2] or NO_MESSAGE
    return kind, line.rstrip(".") if len(line) <= _SHOWN else f"{line[:_SHOWN]}.."


def quiet_py4j() -> None:
    """Keep py4j from printing that a JVM does not answer: the error of the call says so."""
    logging.getLogger().addFilter(_is_of_no_connection)  # py4j logs some by the root logger, ...
    logging.getLogger("py4j").propagate = False  # ... which then has a handler, and others by its own


def _is_of_no_connection(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], OF_CONNECTIONS))


def end_of_jvm(error: BaseException) -> str | None:
    """Return how the JVM of this process's sessions ended, which explains an error; None if it is running, or
    ends because the job wants it to (`session.end_jvm`)."""
    jvm = _jvm(error)
    if jvm is None or is_told_to_end(jvm):
        return None
    if any(isinstance(one, OF_CONNECTIONS) for one in _with_causes(error)):
        with suppress(subprocess.TimeoutExpired):
            jvm.wait(_END_LIMIT_S)  # its connections close a moment before it ends
    code = jvm.poll()
    if code is None:
        return None
    if code >= 0:
        return f"the JVM of Spark has ended with exit code {code}."
    by_system = " Where memory runs out, the system does that." if -code == signal.SIGKILL else ""
    return f"the JVM of Spark was ended by signal {-code} ({signal.strsignal(-code)}).{by_system}"


def is_told_to_end(jvm: subprocess.Popen[bytes]) -> bool:
    """Return whether the job has closed the input of a JVM, which ends it."""
    return jvm.stdin is not None and jvm.stdin.closed


def _jvm(error: BaseException) -> subprocess.Popen[bytes] | None:
    """Return the process of the JVM; if it ended during its start, only the error's traceback has it."""
    gateway: Any = SparkContext._gateway
    if gateway is not None:
        return gateway.proc  # type: ignore[no-any-return]
    frames = [frame for one in _with_causes(error) for frame, _ in traceback.walk_tb(one.__traceback__)]
    return next((f.f_locals.get("proc") for f in frames if f.f_code.co_name == "launch_gateway"), None)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__


def _innermost(error: BaseException) -> str:
    """Return the text of the innermost cause, as Java prints it: `its.Class: message`."""
    # PySpark wraps the JVM exceptions that it knows, each with its cause, and leaves others to py4j.
    while (cause := getattr(error, "_cause", None)) is not None:
        error = cause
    if not isinstance(error, Py4JJavaError):
        return str(error)
    thrown: Any = error.java_exception
    while thrown.getCause() is not None:
        thrown = thrown.getCause()
    return str(thrown.toString())


def _explaining_line(text: str) -> str:
    """Return the first line, but of a Python traceback the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [NO_MESSAGE]
    is_traceback = any(line.endswith("Traceback (most recent call last):") for line in lines[:2])
    return lines[-1 if is_traceback else 0]
