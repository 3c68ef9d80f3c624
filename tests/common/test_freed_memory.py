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


@pytest.mark.more
@pytest.mark.skipif(glibc() is None, reason="memory is managed by other means without glibc")
def test_memory_below_what_is_still_used_is_returned() -> None:
    done = subprocess.run([sys.executable, "-c", IN_A_PROCESS], capture_output=True, text=True, check=True)
    used, left = map(int, done.stdout.split())
    assert used > 100
    assert left < 20


AT_ONCE_IN_A_PROCESS = """
import os
import numpy as np
import pyarrow as pa
from streaming.common.freed_memory import return_freed_memory_at_once

def held():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20

return_freed_memory_at_once()
held_long, seen = [], []
for _ in range(20):
    pieces = [np.ones(2**20) for _ in range(10)]  # of 8 MiB
    pieces += [pa.array(piece).cast(pa.int64()) for piece in pieces]
    held_long.append(np.ones(2**13))  # of 64 KiB: below them glibc would keep all that is freed
    used = held()
    del pieces
    seen.append(used - held())
print(min(seen[1:]), pa.default_memory_pool().backend_name)
"""


@pytest.mark.skipif(glibc() is None, reason="memory is managed by other means without glibc")
def test_large_blocks_are_returned_at_once() -> None:
    command = [sys.executable, "-c", AT_ONCE_IN_A_PROCESS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    returned, pool = done.stdout.split()
    assert int(returned) > 150, "of 160"
    assert pool == "system"
