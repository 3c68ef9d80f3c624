"""How many requests the job sends to an object store: `make bench ARGS="--only requests"`.

The real command with its defaults, tables on a real S3 server, and a proxy between that counts: while groups
commit all the time, and at rest. First with the checkpoint in a local folder, then on S3, too.
"""

import argparse
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

import kafka_clients as kafka
from kafka_versions import chosen_version
from object_store import start_object_store
from store_proxy import Request, StoreProxy, start_store_proxy

from tests.benchmarks.watched_job import BATCH_LINE, WatchedJob

KINDS: Final = ("PUT", "POST", "LIST", "GET", "HEAD", "DELETE")
PRICES: Final = {"PUT": 5e-6, "POST": 5e-6, "LIST": 5e-6, "GET": 4e-7, "HEAD": 4e-7, "DELETE": 0.0}
"""USD for a request: S3 Standard, us-east-1."""

_DAY_S: Final = 86_400
_TOOK: Final = re.compile(r"changed.* in (\S+) s$", re.MULTILINE)
"""How long a batch took, as the job says."""
_SETTLED_S: Final = 150.0  # the first round of maintenance is over
_GROUPS, _PARTITIONS = 20, 6


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what can be chosen."""
    add = parser.add_argument_group("requests").add_argument
    add("--requests-seconds", type=float, default=600.0, help="of each window (default: %(default)s)")


def measure(options: argparse.Namespace) -> None:
    """Run the job, and print the requests of a day by table and kind."""
    seconds = options.requests_seconds / (10 if options.quick else 1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with (
            start_object_store(folder / "store") as store,
            start_store_proxy(folder / "proxy", store.endpoint) as proxy,
            chosen_version().broker(folder / "broker") as broker,
        ):
            bootstrap = broker.bootstrap_servers
            kafka.create_topics(bootstrap, {"t": _PARTITIONS})
            commit(bootstrap, 0)
            through = store.options(endpoint=proxy.endpoint)
            for place, checkpoint in (("in a local folder", ""), ("on S3", store.new_checkpoint())):
                job = WatchedJob(
                    folder / place,
                    bootstrap,
                    checkpoint=checkpoint,
                    table_root=store.new_root(),
                    storage_options=store.options(),
                    environment=through,
                )
                with job:
                    kafka.wait_until(lambda job=job: job.said(BATCH_LINE), "the first batch", timeout_s=300)  # type: ignore[misc]
                    following(lambda number: commit(bootstrap, number), _SETTLED_S)
                    print(f"\nthe checkpoint is {place}")
                    window("following", job, proxy, seconds, lambda number: commit(bootstrap, number))
                    window("at rest", job, proxy, seconds, lambda _number: None)


def window(what: str, job: WatchedJob, proxy: StoreProxy, seconds: float, act: Callable[[int], None]) -> None:
    """Print the requests of a window, and of a day at that rate."""
    before, began = job.tables.progress().sequence, time.monotonic()
    proxy.seen()
    following(act, seconds)
    seen, took = proxy.seen(), time.monotonic() - began
    batches = job.tables.progress().sequence - before
    took_each = [float(took) for took in _TOOK.findall(job.output)][-batches:] if batches else []
    each = f" of {median(took_each):.2f} s (median)" if took_each else ""
    print(f"\n{what}: {took:.0f} s, {batches} batches{each}; requests of a day")
    print(f"| table | {' | '.join(KINDS)} | USD |\n| --- |{' --- |' * (len(KINDS) + 1)}")
    by_table: dict[str, Counter[str]] = {}
    for request in seen:
        by_table.setdefault(table_of(request), Counter())[request.kind] += 1
    total = sum(by_table.values(), Counter[str]())
    for name, counts in [*sorted(by_table.items()), ("all", total)]:
        a_day = [counts[kind] * _DAY_S / took for kind in KINDS]
        price = sum(PRICES[kind] * count for kind, count in zip(KINDS, a_day, strict=True))
        print(f"| {name} | {' | '.join(f'{count:,.0f}' for count in a_day)} | {price:.2f} |", flush=True)


def following(act: Callable[[int], None], seconds: float) -> None:
    """Act every second."""
    deadline, number = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        number += 1
        act(number)
        time.sleep(1)


def commit(bootstrap: str, number: int) -> None:
    """Let one of the groups commit."""
    offsets = {("t", partition): number for partition in range(_PARTITIONS)}
    kafka.commit_offsets(bootstrap, f"g{number % _GROUPS}", offsets)


def table_of(request: Request) -> str:
    """Return the table that a request is about: s3://lake/root-1/<table>/..., or "checkpoint"."""
    parts = [part for part in request.path.split("/") if part and part != "lake"]
    if parts and parts[0].startswith("checkpoint"):
        return "checkpoint"
    return parts[1] if len(parts) > 1 else "(root)"
