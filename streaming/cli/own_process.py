"""Runs work that may crash the process in a child process: SQL queries, whose engine cannot always be
stopped.

DataFusion accounts for memory of sorts, groups and joins, but not for values made by functions: if memory
ends there (`repeat('x', 1000000000)`), its allocator ends the process with SIGABRT.
"""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_BY_THE_KERNEL: Final = 0x80
"""SI_KERNEL: from a key of the terminal, which signals all its processes."""

_TAKEN_DOWN: Final = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGKILL)
_INTERRUPTED: Final = 130
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG

_is_apart = False


def run_apart(work: Callable[[], object], *, message: str) -> None:
    """Run work in a child and exit as it did; if the child crashed, print `message` and exit with 1.

    Must be called before threads are started. Temporary files are in a folder that is always removed. Without
    `sigwaitinfo`, the work runs in this process.
    """
    if not hasattr(signal, "sigwaitinfo"):
        work()
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})
    parent, folder = os.getpid(), _temporary_folder()
    child = os.fork()
    if child:
        status = _waited_for(child)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        _end_as(status, message)
    global _is_apart
    _is_apart = True
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    _end_with(parent)
    work()


def _temporary_folder() -> str | None:
    """Create a folder for all temporary files, including the engine's; None: not possible, later errors show
    why."""
    try:
        folder = tempfile.mkdtemp(prefix="offsetlake-sql-")
    except OSError:
        return None
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    return folder


@contextmanager
def bounded(more_bytes: int) -> Iterator[None]:
    """Limit the process to `more_bytes` more memory; without a child process nothing is limited.

    The engine's last message is discarded: the parent prints one. There is no core dump: it would contain
    data of the tables. Ctrl-C ends the process at once: the engine does not return before its result is
    complete.
    """
    if not _is_apart:
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    most = _data_bytes() + more_bytes
    if before[0] == resource.RLIM_INFINITY or most < before[0]:
        resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    sys.stderr.flush()
    shown, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    on_interrupt = signal.getsignal(signal.SIGINT)
    if on_interrupt is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, on_interrupt)
        os.dup2(shown, 2)
        os.close(shown)
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _data_bytes() -> int:
    """Return the memory of the process to which the limit applies."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when the parent ends."""
    import ctypes

    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _waited_for(child: int) -> int:
    """Forward termination signals to the child until it ends; return its status."""
    while True:
        told = signal.sigwaitinfo({*PASSED_ON, signal.SIGCHLD})
        if told.si_signo != signal.SIGCHLD:
            if told.si_code != _BY_THE_KERNEL:
                os.kill(child, told.si_signo)
            continue
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status


def _end_as(status: int, message: str) -> NoReturn:
    if not os.WIFSIGNALED(status):
        os._exit(os.WEXITSTATUS(status))
    number = os.WTERMSIG(status)
    if number == signal.SIGINT:
        os._exit(_INTERRUPTED)
    if number in _TAKEN_DOWN:
        os.write(2, f"offsetlake: {message}, found that {signal.Signals(number).name} ended it.\n".encode())
        os._exit(1)
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)
