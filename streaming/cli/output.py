"""Standard output as command line tools have it: failures are reported, and a closed pipe is not an error.

Errors of the disk come from somewhere within Python's buffers, at a time that depends on them, and look like
those of any other file. So standard output gets an end of its own that names them.
"""

import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TextIO

from streaming.common.escapes import shown, shown_lines
from streaming.model.errors import OffsetlakeError


class OutputError(OffsetlakeError, OSError):
    """Standard output takes no more: the disk is full, for instance."""


class _Output(io.TextIOWrapper):
    """Standard output; raises `OutputError`, `BrokenPipeError` if the reader has gone.

    Above all buffers: where Ctrl-C comes while code of Python writes below them, they take what was written
    for unwritten, and write it again.
    """

    def write(self, text: str, /) -> int:
        """Write text."""
        with _named():
            return super().write(text)

    def flush(self) -> None:
        """Write what is still buffered."""
        with _named():
            super().flush()


@contextmanager
def _named() -> Iterator[None]:
    """Give failures of writing their names."""
    try:
        yield
    except BrokenPipeError as error:  # without its number, by which click would take it for a failure
        raise BrokenPipeError("the reader has gone") from error
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(
            f"writing to standard output: expected to write all of it, found: {error.strerror}. "
            "The output is incomplete: free some space, or write elsewhere."
        ) from error


def write_for_programs(lines: Iterable[str]) -> None:
    """Write lines that programs read to standard output; a terminal gets them as text that does not act."""
    for_programs(sys.stdout)
    sys.stdout.writelines(map(shown_lines, lines) if sys.stdout.isatty() else lines)


def for_programs(out: TextIO) -> None:
    """Write UTF-8 from here on, as programs expect, whatever encoding the terminal has."""
    if isinstance(out, io.TextIOWrapper):
        with _named():
            out.reconfigure(encoding="utf-8", errors=out.errors)


def write_bytes(pieces: Iterable[bytes | memoryview]) -> None:
    """Write UTF-8 to standard output, as `write_for_programs` writes lines; raises `OutputError`,
    `BrokenPipeError` if the reader has gone."""
    if sys.stdout.isatty():
        write_for_programs([b"".join(pieces).decode()])
        return
    with _named():
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def open_closed_streams() -> None:
    """Let closed standard streams lead nowhere.

    The next file that is opened would get the descriptor of one, and what is printed for people would get
    into that; and Python prints on standard output what is for a stream that is not there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
            os.set_inheritable(nowhere, True)
    if sys.stdin is None:
        sys.stdin = _nowhere("r")
    if sys.stderr is None:
        sys.stderr = _nowhere("w")


@contextmanager
def watched_output() -> Iterator[None]:
    """Let what is printed within raise `OutputError`; where there is no standard output it goes nowhere.

    Characters that its encoding lacks are shown as escapes.
    """
    before = sys.stdout
    sys.stdout = _watched(before)
    try:
        yield
    finally:
        sys.stdout = before


def finish(code: int) -> int:
    """Write what is still buffered; return the exit code: `code`, or that of the error, which is reported."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        let_go(sys.stdout)
    except OutputError as error:
        complain(error)
        return error.exit_code
    return code


def complain(error: OffsetlakeError) -> None:
    """Say on standard error what went wrong."""
    if isinstance(error, OutputError):
        let_go(sys.stdout)  # what is still buffered would fail once more
    with telling():
        print(f"offsetlake: {shown_lines(str(error))}", file=sys.stderr)


def print_footer(lines: Iterable[object]) -> None:
    """Print lines below a table: on standard error, so that a pipe gets the table alone."""
    sys.stdout.flush()  # a terminal shows them below it
    for line in lines:
        print(line, file=sys.stderr)


def warn(sentences: Iterable[str]) -> None:
    """Say on standard error what an answer does not show."""
    for sentence in sentences:
        print(f"offsetlake: {shown(sentence)}", file=sys.stderr)


@contextmanager
def telling() -> Iterator[None]:
    """Tell something on standard error; nothing more can be done if that fails, too."""
    try:
        yield
    except OSError:
        let_go(sys.stderr)


def standard_error() -> TextIO:
    """Return standard error with a descriptor of its own.

    While Spark starts, descriptor 2 leads to its log, for the processes that inherit it.
    """
    err = sys.stderr
    if err is not sys.__stderr__:  # replaced by a caller, as in tests
        return err
    assert isinstance(err, io.TextIOWrapper)
    return os.fdopen(os.dup(err.fileno()), "w", encoding=err.encoding, errors=err.errors)


def let_go(stream: TextIO) -> None:
    """Let all that is still buffered go nowhere: Python would try once more at its end, and complain."""
    try:
        number = stream.fileno()
    except OSError:  # it is no file
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def _nowhere(mode: Literal["r", "w"]) -> TextIO:
    return Path(os.devnull).open(mode, encoding="utf-8")


def _watched(out: TextIO | None) -> TextIO:
    if out is None:  # it was closed before this process started
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
