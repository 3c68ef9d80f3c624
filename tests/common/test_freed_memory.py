"""Freed memory goes back to the system: seen by what the process holds."""

import subprocess
import sys

import pytest

from streaming.common.freed_memory import glibc

IN_A_PROCESS = """
import os
import numpy as np
from streaming.common.freed_memory import return_freed_memory

def held():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20

first = held()
left = [np.ones(2**13) for _ in range(2_000)][-1]  # of 64 KiB, which the C library takes from its heap
used = held() - first
return_freed_memory()
print(used, held() - first)
"""


@pytest.mark.skipif(glibc() is None, reason="memory is managed by other means without glibc")
def test_memory_below_what_is_still_used_is_returned() -> None:
    done = subprocess.run([sys.executable, "-c", IN_A_PROCESS], capture_output=True, text=True, check=True)
    used, left = map(int, done.stdout.split())
    assert used > 100
    assert left < 20
