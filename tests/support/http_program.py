"""A program that serves HTTP, in the background of a test: started, waited for, and ended for certain."""

import signal
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from streaming.demo.child import Child


@contextmanager
def running_program(
    command: Sequence[str | Path],
    ready: str,
    *,
    log: Path,
    cwd: Path,
    tls: ssl.SSLContext | None = None,
    within_s: float = 30,
) -> Iterator[Child]:
    """Start a program, and yield it once a URL of it answers; what it prints goes to `log`.

    It does not outlive the test, however that ends.
    """
    child = Child([str(word) for word in command], log=log, directory=cwd)
    try:
        _wait_until_ready(child, ready, log, tls, within_s)
        yield child
    finally:
        child.end(signal.SIGTERM)


def _wait_until_ready(child: Child, url: str, log: Path, tls: ssl.SSLContext | None, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while True:
        try:
            urllib.request.urlopen(url, timeout=1, context=tls).close()
        except (urllib.error.URLError, OSError):
            assert child.is_running, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        else:
            return
