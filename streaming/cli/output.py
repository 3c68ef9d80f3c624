"""Standard output as in other command line tools: failures are reported, and a closed pipe is no error.

Disk errors occur somewhere in Python's buffers, at unpredictable times, and look like errors of any other
file. So standard output gets a wrapper that identifies them.
"""

import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, TextIO

from streaming.common.escapes import shown, shown_lines
from streaming.model.errors import OffsetlakeError

Format = Literal["table", "json", "csv"]
FORMATS: Final[tuple[Format, ...]] = ("table", "json", "csv")
"""The output formats of all commands that print rows."""


class OutputError(OffsetlakeError, OSError):
    """Standard output cannot be written, for instance because the disk is full."""


class _Output(io.TextIOWrapper):
    """Standard output; raises `OutputError`, or `BrokenPipeError` if the reader is gone.

    It wraps from above all buffers: if Ctrl-C interrupts Python code below them, they take written data for
    unwritten, and write it again.
    """

    def write(self, text: str, /) -> int:
        with _named():
            return super().write(text)

    def flush(self) -> None:
        with _named():
            super().flush()


@contextmanager
def _named() -> Iterator[None]:
    """Replace errors of writing by errors that name standard output."""
    try:
        yield
    except BrokenPipeError as error:  # without errno, which makes click treat it as a failure
        raise BrokenPipeError("the reader has gone") from error
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(
            f"writing to standard output: expected to write all of it, found: {error.strerror}. "
            "The output is incomplete: free some space, or write elsewhere."
        ) from error


def write_for_programs(lines: Iterable[str]) -> None:
    """Write lines for programs to standard output; on a terminal, control characters are escaped."""
    for_programs(sys.stdout)
    sys.stdout.writelines(map(shown_lines, lines) if sys.stdout.isatty() else lines)


def for_programs(out: TextIO) -> None:
    """Switch to UTF-8, as programs expect, whatever the terminal's encoding."""
    if isinstance(out, io.TextIOWrapper):
        with _named():
            out.reconfigure(encoding="utf-8", errors=out.errors)


def write_bytes(pieces: Iterable[bytes | memoryview]) -> None:
    """Write UTF-8 to standard output, as `write_for_programs` writes lines; raises `OutputError`, or
    `BrokenPipeError` if the reader is gone."""
    if sys.stdout.isatty():
        write_for_programs([b"".join(pieces).decode()])
        return
    with _named():
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def open_closed_streams() -> None:
    """Redirect closed standard streams to the null device.

    Otherwise the next opened file would get the descriptor of one, and messages would be written into it; and
    Python prints messages for a missing standard error to standard output.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one
            os.set_inheritable(nowhere, True)
    if sys.stdin is None:
        sys.stdin = _nowhere("r")
    if sys.stderr is None:
        sys.stderr = _nowhere("w")


@contextmanager
def watched_output() -> Iterator[None]:
    """Make prints within the block raise `OutputError`; without a standard output they are discarded.

    Characters missing in its encoding are escaped.
    """
    before = sys.stdout
    sys.stdout = _watched(before)
    try:
        yield
    finally:
        sys.stdout = before


def finish(code: int) -> int:
    """Flush the output; return the exit code: `code`, or that of the error, which is reported."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output(sys.stdout)
    except OutputError as error:
        print_error(error)
        return error.exit_code
    return code


def print_error(error: OffsetlakeError) -> None:
    if isinstance(error, OutputError):
        discard_output(sys.stdout)  # buffered output would fail again
    with stderr_optional():
        print(f"offsetlake: {shown_lines(str(error))}", file=sys.stderr)


def print_footer(lines: Iterable[object]) -> None:
    """Print lines below a table: on standard error, so that a pipe gets only the table."""
    sys.stdout.flush()  # so that a terminal shows them below it
    for line in lines:
        print(line, file=sys.stderr)


def warn(sentences: Iterable[str]) -> None:
    """Say on standard error what an answer does not show."""
    for sentence in sentences:
        print(f"offsetlake: {shown(sentence)}", file=sys.stderr)


@contextmanager
def stderr_optional() -> Iterator[None]:
    """Ignore failures of printing on standard error: they cannot be reported."""
    try:
        yield
    except OSError:
        discard_output(sys.stderr)


def standard_error() -> TextIO:
    """Return standard error with a descriptor of its own.

    While Spark starts, descriptor 2 is redirected to its log, for child processes.
    """
    err = sys.stderr
    if err is not sys.__stderr__:  # replaced by a caller, as in tests
        return err
    assert isinstance(err, io.TextIOWrapper)
    return os.fdopen(os.dup(err.fileno()), "w", encoding=err.encoding, errors=err.errors)


def discard_output(stream: TextIO) -> None:
    """Discard all buffered output: Python would try to write it again at exit, and print an error."""
    try:
        number = stream.fileno()
    except OSError:  # not a file
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def _nowhere(mode: Literal["r", "w"]) -> TextIO:
    return Path(os.devnull).open(mode, encoding="utf-8")


def _watched(out: TextIO | None) -> TextIO:
    if out is None:  # closed before this process started
        return _nowhere("w")
    if out is not sys.__stdout__:  # replaced by a caller, as in tests
        return out
    assert isinstance(out, io.TextIOWrapper)
    return _Output(
        io.BufferedWriter(io.FileIO(out.fileno(), "w", closefd=False)),
        encoding=out.encoding,
        errors="backslashreplace",
        line_buffering=out.line_buffering or out.write_through,  # as with PYTHONUNBUFFERED
        write_through=out.write_through,
    )
