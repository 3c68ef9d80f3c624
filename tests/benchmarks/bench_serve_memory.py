"""How much memory `offsetlake serve` has: `make bench ARGS="--only serve-memory"`.

The real command with both listeners over 1 M offsets in 20 k groups, while a batch of 5,000 commits comes
every 5 s: not scraped, then scraped, then while somebody looks at groups, then scraped again.
"""

import argparse
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Final

from processes import peak_memory, proportional_memory

from streaming.tables.tables import Tables
from tests.benchmarks import bench_queries, bench_serve
from tests.benchmarks.bench_metrics import served

MIB: Final = 2**20
_EVERY_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.5
_PHASES: Final[Mapping[str, tuple[float, str]]] = {
    "not scraped": (30, ""),
    "scraped": (75, "/metrics"),
    "/groups": (20, "/groups"),
    "scraped again": (20, "/metrics"),
}
"""How many seconds each phase takes, and what is requested every 5 s in it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """There are none."""


def measure(options: argparse.Namespace) -> None:
    """Fill tables, serve them, and print the memory in each phase."""
    part = 10 if options.quick else 1
    offsets, groups = 1_000_000 // part, 20_000 // part
    with tempfile.TemporaryDirectory(prefix="offsetlake-bench-") as root:
        bench_queries.fill(Tables(f"{root}/tables"), offsets=offsets, groups=groups, unfolded=offsets // 20)
        print(f"\nmemory of serve, {offsets:,} offsets in {groups:,} groups (PSS, MiB)")
        with served(Path(root)) as (_, http, pid), bench_serve.changing(Path(root), offsets, groups):
            for name, (seconds, path) in _PHASES.items():
                cpu = bench_serve.cpu_of(pid)
                seen = _watched(pid, seconds / part, f"http://127.0.0.1:{http}{path}" if path else "")
                cpu = bench_serve.cpu_of(pid) - cpu
                print(
                    f"{name:20}median {median(seen):.0f}, most {max(seen):.0f}; {cpu:.1f} s of processor time"
                )
            print(f"peak (resident): {peak_memory({pid: 'it'})['it'] / MIB:.0f}")


def _watched(pid: int, seconds: float, url: str) -> list[float]:
    """Look at the memory for some seconds, and request a URL (empty: none) every 5 s; return it in MiB."""
    seen, until, due = list[float](), time.monotonic() + seconds, 0.0
    while (now := time.monotonic()) < until:
        if url and now >= due:
            due = now + _EVERY_S
            with urllib.request.urlopen(url, timeout=60) as answer:
                answer.read()
        seen.append(proportional_memory({pid: "it"})["it"] / MIB)
        time.sleep(_LOOK_EVERY_S)
    return seen
