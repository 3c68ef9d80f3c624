"""The process of the command: `offsetlake`, or `python -m streaming.cli`."""

import atexit
import os
import sys
from contextlib import suppress
from typing import Final

_TOO_LARGE: Final = (
    "sql: expected a query whose values (those of repeat, lpad, string_agg, ...) take no more "
    "memory than its process may have"
)


def run() -> None:
    """Run the command, also where Ctrl-C comes while its modules are loaded, and end the process.

    The process ends before Python takes its interpreter down. Threads of Arrow and delta-rs may still be
    reading ahead for a question that was broken off: one that asks for the interpreter then, as a file
    system in Python makes it, ends the process by SIGABRT.
    """
    code = 1  # of errors that nobody expected

    def end() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # not there, full, closed
                stream.flush()
        os._exit(code)

    atexit.register(end)  # before all others, so that it is called after them
    try:
        if sys.argv[1:2] == ["sql"]:
            _answer_apart()
        else:
            _answer()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise
    except KeyboardInterrupt:
        code = 130
        raise SystemExit(code) from None


def _answer() -> None:
    from streaming.cli.main import main  # takes some tenths of a second

    main()


def _answer_apart() -> None:
    from streaming.cli.own_process import run_apart

    run_apart(_answer, message=_TOO_LARGE)


if __name__ == "__main__":
    if not sys.flags.safe_path:  # `-m` has put the current folder first, where others may have put modules
        del sys.path[0]
    run()
