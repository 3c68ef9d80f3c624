"""The process of the command: `offsetlake`, or `python -m streaming.cli`."""

import atexit
import os
import sys
from contextlib import suppress


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
        from streaming.cli.main import main  # takes some tenths of a second

        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise
    except KeyboardInterrupt:
        code = 130
        raise SystemExit(code) from None


if __name__ == "__main__":
    run()
