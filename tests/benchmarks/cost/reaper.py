"""Runs a command, and tells what it and everything that it started have used: `reaper.py FILE COMMAND...`

A process that outlives its parent would be counted nowhere: the JVM of PySpark outlives the driver by a
moment, Python workers the JVM. Here they all become children of this process (Linux: a "subreaper"), which
waits for them. The kernel then adds up the processor time of every process, however short-lived, except of
children whose parent ignores their end. FILE gets a line of JSON when the command has started, and one when
nothing of it is left. SIGTERM is passed on.
"""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress

PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h


def main(file: str, *command: str) -> int:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "becoming the parent of orphans (prctl)")
    started = time.time()
    child = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGTERM))
    tell(file, {"pid": child.pid, "started": started})
    ended, code, waited = started, 0, []
    with suppress(ChildProcessError):
        while True:
            pid, status = os.wait()
            waited.append(pid)
            if pid == child.pid:
                ended, code = time.time(), os.waitstatus_to_exitcode(status)
                child.returncode = code  # so that no signal is sent to whoever has its number next
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    tell(file, {"code": code, "ended": ended, "processor_seconds": seconds, "waited": waited})
    return 0


def tell(file: str, facts: dict[str, object]) -> None:
    with open(file, "a", encoding="utf-8") as lines:  # noqa: PTH123  pathlib takes as long to load as all else
        lines.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
