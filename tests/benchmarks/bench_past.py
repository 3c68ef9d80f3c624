"""What past snapshots cost `offsetlake serve`: `python -m tests.benchmarks --only past`.

A process of the command over 1 M offsets in 20 k groups, with a fold and 30 minutes of batches after the
moments that are asked for. Clients on 8 connections ask small things about now, 1,000 times a second, while
no past snapshot is read, and while each of four is.
"""

import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from kafka_clients import wait_until
from listening import Client
from processes import peak_memory, proportional_memory

from streaming.common.times import MINUTE_MS
from streaming.tables.tables import Tables
from tests.benchmarks.bench_memory_snapshot import sample
from tests.benchmarks.bench_queries import STARTED, append, fill, offset_changes
from tests.benchmarks.bench_serve import ask_small, cpu_of, frames_of, print_small, served

RATE = 1_000
MINUTES, CHANGED = 30, 5_000


def measure_past(*, offsets: int, groups: int, seconds: float) -> None:
    """Fill tables, serve them, ask about now and about the past, and print what it took."""
    with tempfile.TemporaryDirectory(prefix="offsetlake-bench-") as root:
        tables = Tables(f"{root}/tables")
        fill(tables, offsets=offsets, groups=groups, unfolded=CHANGED)
        names = pa.array([f"consumer-group-{number:06}" for number in range(groups)])
        for minute in range(1, MINUTES + 1):
            keys = np.random.default_rng(minute).choice(offsets, min(CHANGED, offsets), replace=False)
            rows = offset_changes(keys, names, has_before=True, ahead=minute)
            append(tables, rows, STARTED + minute * MINUTE_MS)
            sample(tables, minute)
        tables.fold()
        more = "[serve]\nas_of_clients = true\n"
        with served(Path(root), more) as (port, pid):
            print(
                f"\n{offsets:,} offsets in {groups:,} groups, of {MINUTES} minutes with {CHANGED:,} changes"
            )
            frames = frames_of(groups)
            ask_small(port, frames, 2.0, RATE)
            began = time.perf_counter()
            took = ask_small(port, frames, seconds, RATE)
            print_small("small requests about now", took, time.perf_counter() - began)
            print(f"{'':40}memory {memory_of(pid)}")
            for number in range(4):
                _measure_reading(port, pid, frames, STARTED + (number + 2) * MINUTE_MS + 1)


def memory_of(pid: int) -> str:
    parts = {pid: "serve"}
    now, peak = proportional_memory(parts)["serve"], peak_memory(parts)["serve"]
    return f"{now / 2**20:,.0f} MiB, at most {peak / 2**20:,.0f} MiB"


def _measure_reading(port: int, pid: int, frames: list[bytes], moment: int) -> None:
    """Ask about a moment until it was read, and about now beside it."""
    walls = list[float]()

    def ask() -> None:
        began = time.perf_counter()
        with Client(f"127.0.0.1:{port}", client_id=f"as-of={moment}", timeout_s=60) as client:
            wait_until(lambda: client.ask(69, 0, {"groupIds": ["x"]})["groups"][0]["errorCode"] != 14, "it")
        walls.append(time.perf_counter() - began)

    thread, cpu, began, took = threading.Thread(target=ask), cpu_of(pid), time.perf_counter(), list[float]()
    thread.start()
    while thread.is_alive():
        took += ask_small(port, frames, 0.5, RATE)
    print_small("beside a snapshot that is read", took, time.perf_counter() - began)
    print(f"{'':40}read in {walls[0]:.1f} s, {cpu_of(pid) - cpu:.1f} s of processor time, with all requests")
    time.sleep(1)
    print(f"{'':40}memory {memory_of(pid)}")
