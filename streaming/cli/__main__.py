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
    """Run the command and end the process; Ctrl-C is handled also while modules are loading.

    The process ends before Python finalizes its interpreter. Threads of Arrow and delta-rs may still be
    reading ahead for an interrupted query: if one needs the interpreter during finalization, as Python file
    systems do, the process ends with SIGABRT.
    """
    code = 1  # for unexpected errors

    def end() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # closed, full, or missing
                stream.flush()
        os._exit(code)

    atexit.register(end)  # registered first, so called last
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
    # `-m` puts the current folder first, which may contain modules of the same names
    if not sys.flags.safe_path:
        del sys.path[0]
    run()
