"""What metrics cost: `python -m tests.benchmarks --only metrics`.

A process of its own first works out how groups stand over 1 M offsets in 20 k groups, with two hours of
samples, and makes bytes of all series. Then the command is scraped, by one and by a hundred at once, while
batches come and Kafka's clients are answered.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from processes import peak_memory, proportional_memory

from streaming.demo.local_broker import free_ports
from streaming.lag.health_rules import HealthRules
from streaming.serve.assessment.counters import Counters
from streaming.serve.assessment.refresher import Refresher
from streaming.serve.memory.tailer import Tailer
from streaming.serve.metrics.exposition import Exposition, written, zipped
from streaming.serve.metrics.source import MetricsSource
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables
from tests.benchmarks import bench_lag, bench_queries, bench_serve

MIB: Final = 2**20
SCRAPERS: Final = 100
SETTINGS: Final = """
[tables]
complete_within = "36500d"
[metrics]
granularity = "group"
"""
_EVERY_S: Final = 5.0  # more often than Prometheus does
_RATE: Final = 1_000  # of Kafka's requests
_GZIP: Final = {"Accept-Encoding": "gzip"}


def measure_metrics(*, offsets: int, groups: int, seconds: float) -> None:
    """Fill tables, and print what metrics of them take."""
    for is_all_behind in (False, True):
        with tempfile.TemporaryDirectory(prefix="offsetlake-bench-") as root:
            tables = Tables(root)
            bench_lag.fill(tables, offsets, groups, is_all_behind=is_all_behind)
            bench_lag.sample(tables, is_maintained=True)
            behind = "all" if is_all_behind else "1 % of the groups"
            print(f"\n{offsets:,} offsets in {groups:,} groups, {behind} behind", flush=True)
            command = [sys.executable, "-m", "tests.benchmarks.bench_metrics", root]
            subprocess.run(command, check=True)
    _measure_endpoint(offsets, groups, seconds)


# --- how groups stand, and the bytes ---------------------------------------------------------------------


def work(root: str) -> None:
    """Work out assessments and bytes in this process, and print what each took."""
    tables, settings = Tables(root), read_settings()
    tailer = Tailer(tables, clock=lambda: bench_lag.NOW, counters=Counters())
    assert tailer.poll()
    print(f"{'':40}{'wall ms':>9}{'cpu ms':>9}")
    refresher = Refresher(
        tables,
        lambda: tailer.current,
        health=HealthRules.of(settings.health),
        expiry=settings.expiry,
        clock=lambda: bench_lag.NOW,
    )
    for name in ("how groups stand, the first time", "again"):
        with _timed(name):
            assessment = refresher.make()
    for granularity in ("group", "topic"):
        wanted = replace(settings.metrics, granularity=granularity)
        exposition = Exposition(wanted)
        for _ in range(2):
            counters = tailer.newest.counters
            assert isinstance(counters, Counters)
            source = MetricsSource(
                now=bench_lag.NOW,
                version="",
                snapshot=tailer.current,
                assessment=assessment,
                counters=counters,
                settings=settings,
            )
            with _timed(f"bytes by {granularity}"):
                pieces = written(exposition.families(source), "text")
        size, lines = sum(map(len, pieces)), sum(bytes(piece).count(b"\n") for piece in pieces)
        with _timed("gzip"):
            packed = sum(map(len, zipped(pieces)))
        print(f"  {lines:,} lines, {size / 1e6:.1f} MB, {packed / 1e6:.1f} MB packed")
    parts = {os.getpid(): "it"}
    now, peak = proportional_memory(parts)["it"], peak_memory(parts)["it"]
    print(f"memory: {now / MIB:.0f} MiB (PSS), {peak / MIB:.0f} MiB at its highest (resident)", flush=True)


@contextmanager
def _timed(what: str) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    walls, cpus = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{what:40}{1_000 * walls:9.0f}{1_000 * cpus:9.0f}", flush=True)


# --- the endpoint ------------------------------------------------------------------------------------------


def _measure_endpoint(offsets: int, groups: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="offsetlake-bench-") as root:
        bench_queries.fill(Tables(f"{root}/tables"), offsets=offsets, groups=groups, unfolded=offsets // 20)
        measure_served(Path(root), offsets, groups, seconds)


def measure_served(root: Path, offsets: int, groups: int, seconds: float) -> None:
    """Serve tables in a folder, scrape, and print what it took."""
    with served(root) as (kafka, http, pid), bench_serve.changing(root, offsets, groups):
        url = f"http://127.0.0.1:{http}/metrics"
        print(f"\nthe endpoint, {offsets:,} offsets in {groups:,} groups, a batch every 5 s")
        first, size = _scrape(url)
        print(f"the first scrape: {first * 1e3:.0f} ms, {size / 1e6:.1f} MB", flush=True)
        for name, headers in (("plain", {}), ("gzip", _GZIP)):
            _scrape(url, headers)
            took = [_scrape(url, headers) for _ in range(30)]
            cuts = quantiles([one for one, _ in took], n=100)
            times = f"p50 {cuts[49] * 1e3:.1f} ms, p99 {cuts[98] * 1e3:.1f} ms"
            print(f"a scrape, {name}: {times}, {took[0][1] / 1e6:.2f} MB", flush=True)
        frames = bench_serve.frames_of(groups)
        bench_serve.ask_small(kafka, frames, 1.0, _RATE)
        for name, scrapers in (("nobody scrapes", 0), ("one", 1), (f"{SCRAPERS} at once", SCRAPERS)):
            with _scraped(url, scrapers, every_s=_EVERY_S) as waits:
                cpu, began = bench_serve.cpu_of(pid), time.perf_counter()
                asked = bench_serve.ask_small(kafka, frames, seconds, _RATE)
                wall, cpu = time.perf_counter() - began, bench_serve.cpu_of(pid) - cpu
            bench_serve.print_small(f"Kafka's small requests, {name}", asked, wall)
            told = f"{'':40}{100 * cpu / wall:.0f} % of a core"
            if waits:
                told += f", scrapes p50 {median(waits) * 1e3:.0f} ms, longest {max(waits) * 1e3:.0f} ms"
            print(told, flush=True)
        cpu = bench_serve.cpu_of(pid)
        with _scraped(url, 1, every_s=_EVERY_S):
            time.sleep(2 * seconds)
        share = 50 * (bench_serve.cpu_of(pid) - cpu) / seconds
        print(f"scraped every {_EVERY_S:g} s, no clients of Kafka: {share:.1f} % of a core")
        parts = {pid: "it"}
        now, peak = proportional_memory(parts)["it"], peak_memory(parts)["it"]
        print(f"memory: {now / MIB:.0f} MiB (PSS), {peak / MIB:.0f} MiB at its highest (resident)")


def _scrape(url: str, headers: dict[str, str] | None = None) -> tuple[float, int]:
    began = time.perf_counter()
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=60) as answer:
        size = len(answer.read())
    return time.perf_counter() - began, size


@contextmanager
def _scraped(url: str, scrapers: int, *, every_s: float) -> Iterator[list[float]]:
    """Let so many scrape at once, again and again, while the block runs; gives what each took."""
    stop, times = threading.Event(), list[float]()

    def scrape() -> None:
        while not stop.is_set():
            times.append(_scrape(url, _GZIP)[0])
            stop.wait(every_s)

    threads = [threading.Thread(target=scrape) for _ in range(scrapers)]
    for thread in threads:
        thread.start()
    yield times
    stop.set()
    for thread in threads:
        thread.join()


@contextmanager
def served(root: Path) -> Iterator[tuple[int, int, int]]:
    """Run the command; gives its ports and process id."""
    kafka, http = free_ports(2)
    (root / "settings.toml").write_text(SETTINGS)
    command = [sys.executable, "-m", "streaming.cli", "serve", "--kafka", f"127.0.0.1:{kafka}"]
    command += ["--http", f"127.0.0.1:{http}", "--table-root", str(root / "tables")]
    command += ["--config", str(root / "settings.toml")]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while b"Kafka" not in process.stderr.readline():
            pass
        try:
            yield kafka, http, process.pid
        finally:
            process.terminate()


if __name__ == "__main__":
    work(sys.argv[1])
