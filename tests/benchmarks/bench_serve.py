"""What the listener of `offsetlake serve` does: `python -m tests.benchmarks --only serve`.

A process of the command over 1 M offsets in 20 k groups; a batch of 5,000 commits comes every 5 s, as when
the job runs. Clients on 8 connections ask for one thing after the other: FindCoordinator, DescribeGroups and
OffsetFetch of one group, Metadata of no topic: of 97 groups again and again, or of all groups in turn, so
that no answer is known from before. Requests a second of processor time are those of one core.
"""

import selectors
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, cycle
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from processes import processor_seconds

from decoders.messages import request_bytes
from streaming.demo.local_broker import free_ports
from streaming.tables.tables import Tables
from tests.benchmarks.bench_queries import STARTED, append, fill, offset_changes

CONNECTIONS: Final = 8
EVERY_S: Final = 5.0
BATCH: Final = 5_000
SETTINGS: Final = '[tables]\ncomplete_within = "36500d"\n'


def measure_serve(*, offsets: int, groups: int, seconds: float) -> None:
    """Fill tables, serve them, ask, and print what it took."""
    with tempfile.TemporaryDirectory(prefix="offsetlake-bench-") as root:
        tables = Tables(f"{root}/tables")
        fill(tables, offsets=offsets, groups=groups, unfolded=offsets // 20)
        with served(Path(root)) as (port, pid), changing(Path(root), offsets, groups):
            print(f"\n{offsets:,} offsets in {groups:,} groups, a batch of {BATCH:,} every {EVERY_S:g} s")
            _measure_small(port, pid, groups, seconds)
            names = [f"consumer-group-{number:06}" for number in range(groups)]
            _measure_large("ListGroups of all groups", port, pid, request_bytes(16, 5, 1, "bench", {}))
            some = [{"groupId": name, "topics": None} for name in names[: min(groups, 20_000)]]
            frame = request_bytes(9, 8, 1, "bench", {"groups": some})
            _measure_large("OffsetFetch of all groups", port, pid, frame)
            _measure_beside("small requests beside it", port, frame, groups)


@contextmanager
def served(root: Path, more: str = "") -> Iterator[tuple[int, int]]:
    """Run the command with `more` settings; gives its port and process id."""
    [port] = free_ports(1)
    (root / "settings.toml").write_text(SETTINGS + more)
    command = [sys.executable, "-m", "streaming.cli", "serve", "--no-http", "--kafka", f"127.0.0.1:{port}"]
    command += ["--table-root", str(root / "tables"), "--config", str(root / "settings.toml")]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        process.stderr.readline()
        try:
            yield port, process.pid
        finally:
            process.terminate()


@contextmanager
def changing(root: Path, offsets: int, groups: int) -> Iterator[None]:
    """Append a batch every few seconds while the block runs: in another process, as the job does."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_serve", str(root), str(offsets), str(groups)]
    with subprocess.Popen(command) as process:
        try:
            yield
        finally:
            process.terminate()


def _change(root: str, offsets: int, groups: int) -> None:
    """Append batches until this process is ended."""
    tables = Tables(f"{root}/tables")
    names = pa.array([f"consumer-group-{number:06}" for number in range(groups)])
    for number in count(100):
        time.sleep(EVERY_S)
        keys = np.random.default_rng(number).choice(offsets, min(BATCH, offsets), replace=False)
        append(tables, offset_changes(keys, names, has_before=True), STARTED + 5_000 * number)


def cpu_of(pid: int) -> float:
    """The processor time of a process so far."""
    return sum(processor_seconds({pid: "serve"}).values())


def frames_of(groups: int, most: int | None = 97) -> list[bytes]:
    step = 1 if most is None else max(1, groups // most)
    names = [f"consumer-group-{number:06}" for number in range(0, groups, step)]
    frames = []
    for name in names:
        frames += [
            request_bytes(10, 6, 1, "bench", {"coordinatorKeys": [name]}),
            request_bytes(15, 6, 1, "bench", {"groups": [name]}),
            request_bytes(9, 8, 1, "bench", {"groups": [{"groupId": name, "topics": None}]}),
            request_bytes(3, 13, 1, "bench", {"topics": []}),
        ]
    return frames


def _measure_small(port: int, pid: int, groups: int, seconds: float) -> None:
    ask_small(port, frames_of(groups), 1.0)
    for what, rate, most in (
        ("small requests, 4,000 a second", 4_000, 97),
        ("of all groups in turn", 4_000, None),
        ("small requests, no pause", None, 97),
        ("of all groups in turn", None, None),
    ):
        frames = frames_of(groups, most)
        cpu, began = cpu_of(pid), time.perf_counter()
        took = ask_small(port, frames, seconds, rate)
        wall, cpu = time.perf_counter() - began, cpu_of(pid) - cpu
        print_small(what, took, wall)
        print(f"{'':40}{len(took) / cpu:9,.0f} requests a second of processor time")


def print_small(what: str, took: list[float], wall: float) -> None:
    cuts = statistics.quantiles(took, n=1_000)
    shown = {"p50": cuts[499], "p99": cuts[989], "p99.9": cuts[998], "longest": max(took)}
    times = ", ".join(f"{name} {seconds * 1e3:.2f} ms" for name, seconds in shown.items())
    print(f"{what:40}{len(took) / wall:9,.0f} requests/s, {times}")


def ask_small(port: int, asked_for: list[bytes], seconds: float, rate: int | None = None) -> list[float]:
    """Ask on all connections, so often a second (None: each as soon as it has its answer); return how long
    each answer took from when it was due to be asked for, or from when it was, if only this was late."""
    frames, took = cycle(asked_for), list[float]()
    selector = selectors.DefaultSelector()
    idle = deque[socket.socket]()
    for _ in range(CONNECTIONS):
        client = socket.create_connection(("127.0.0.1", port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(client, selectors.EVENT_READ)
        idle.append(client)
    clients, asked = list(idle), dict[socket.socket, float]()
    due = began = free_since = time.perf_counter()
    while (now := time.perf_counter()) < began + seconds:
        while idle and (rate is None or due <= now):
            client = idle.popleft()
            asked[client] = due if rate and due < free_since else time.perf_counter()
            client.sendall(next(frames))
            due += 1 / rate if rate else 0
        wait = None if rate is None or not idle else max(0.0, due - time.perf_counter())
        for key, _ in selector.select(wait):
            client = key.fileobj
            assert isinstance(client, socket.socket)
            data = client.recv(65_536)
            while len(data) < 4 + struct.unpack_from(">i", data)[0]:
                data += client.recv(65_536)
            now = time.perf_counter()
            took.append(now - asked[client])
            free_since = free_since if idle else now
            idle.append(client)
    for client in clients:
        client.close()
    return took


def _ask_large(port: int, frame: bytes) -> int:
    with socket.create_connection(("127.0.0.1", port)) as client, client.makefile("rb") as stream:
        client.sendall(frame)
        (size,) = struct.unpack(">i", stream.read(4))
        left = size
        while left:
            left -= len(stream.read(min(left, 1 << 20)))
        return int(size)


def _measure_large(what: str, port: int, pid: int, frame: bytes) -> None:
    _ask_large(port, frame)
    walls, cpus = [], []
    for _ in range(7):
        wall, cpu = time.perf_counter(), cpu_of(pid)
        size = _ask_large(port, frame)
        walls.append(time.perf_counter() - wall)
        cpus.append(cpu_of(pid) - cpu)
    wall, cpu = statistics.median(walls), statistics.median(cpus)
    print(f"{what:40}{wall * 1e3:9.0f} ms, {cpu * 1e3:.0f} ms of processor time, {size / 1e6:.1f} MB")


def _measure_beside(what: str, port: int, frame: bytes, groups: int) -> None:
    """Ask small things while large answers are made one after the other."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            _ask_large(port, frame)

    thread = threading.Thread(target=ask)
    thread.start()
    began = time.perf_counter()
    took = ask_small(port, frames_of(groups), 4.0)
    print_small(what, took, time.perf_counter() - began)
    stop.set()
    thread.join()


if __name__ == "__main__":
    _change(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
