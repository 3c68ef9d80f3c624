"""How long commits to an object store take, and how many requests the job sends: `make bench ARGS="--only
requests"`.

The real command with its defaults, tables on a real S3 server, and a proxy between that counts: while groups
commit all the time, and at rest. First with the checkpoint in a local folder, then on S3, too.
"""

import argparse
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import kafka_clients as kafka
from kafka_versions import chosen_version
from object_store import ObjectStore, start_object_store
from store_proxy import Fault, Request, StoreProxy, start_store_proxy
from table_batches import Batch, changes_of, offset

from streaming.model.schemas import CHANGES
from streaming.tables.handles import TableHandles
from streaming.tables.rows import change_rows
from streaming.tables.tables import Tables
from tests.benchmarks.watched_job import BATCH_LINE, WatchedJob

KINDS: Final = ("PUT", "POST", "LIST", "GET", "HEAD", "DELETE")
PRICES: Final = {"PUT": 5e-6, "POST": 5e-6, "LIST": 5e-6, "GET": 4e-7, "HEAD": 4e-7, "DELETE": 0.0}
"""USD for a request: S3 Standard, us-east-1."""

_DAY_S: Final = 86_400
_TOOK: Final = re.compile(r"changed.* in (\S+) s$", re.MULTILINE)
"""How long a batch took, as the job says."""
_SETTLED_S: Final = 150.0  # the first round of maintenance is over
_GROUPS, _PARTITIONS = 20, 6
_COMMITS = 40
_DELAY_S = 0.02
"""What a request to S3 takes within its region, about."""


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
            commits(str(folder / "tables"), store, proxy)
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


def commits(local: str, store: ObjectStore, proxy: StoreProxy) -> None:
    """Print how long a batch of 120 offsets, a heartbeat and a fold take in a folder and at the store."""
    print("| tables | a batch | a heartbeat | a fold |\n| --- | --- | --- | --- |")
    options = store.options(endpoint=proxy.endpoint)
    for place, root, delay_s in (
        ("in a local folder", local, 0.0),
        ("at the store", store.new_root(), 0.0),
        (f"at the store, which takes {_DELAY_S * 1_000:g} ms longer", store.new_root(), _DELAY_S),
    ):
        tables = Tables(root, options, handles=TableHandles())
        tables.create()
        proxy.set_faults(Fault(delay_s=delay_s))
        taken: dict[str, list[float]] = {"batch": [], "heartbeat": [], "fold": []}
        progress = tables.progress()
        for number in range(1, _COMMITS + 1):
            batch: Batch = {
                (f"g{group}", "t", partition): offset(committed_offset=number)
                for group in range(_GROUPS)
                for partition in range(_PARTITIONS)
            }
            rows, _ = change_rows(changes_of(batch, {}), sequence=number, batch_time=number)
            after = replace(progress, query_id="q", sequence=number, batch_id=number, batch_time=number)
            beat = replace(after, heartbeat=number)
            steps: tuple[tuple[str, Callable[[], object]], ...] = (
                ("batch", partial(tables.append_changes, rows, after, is_batch=True, after=[progress])),
                (
                    "heartbeat",
                    partial(
                        tables.append_changes,
                        CHANGES.empty_table(),
                        beat,
                        is_batch=False,
                        is_observation=False,
                        after=[after],
                    ),
                ),
                ("fold", tables.fold),
            )
            for name, act in steps[: 3 if number % 5 == 0 else 2]:
                began = time.monotonic()
                act()
                taken[name].append(time.monotonic() - began)
            progress = beat
        proxy.set_faults()
        print(f"| {place} | {' | '.join(f'{median(each):.3f} s' for each in taken.values())} |", flush=True)


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
