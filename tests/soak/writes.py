"""How much the job writes, and where, with many live offsets of which a few are committed each second."""

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from commit_client import Traffic

from tests.soak.running import Running, running
from tests.soak.state import check_state
from tests.soak.traffic import TOPIC, RandomKeys

_SETTLE_S: Final = 60.0  # of traffic, before it is measured: the first folds and bases after catching up
_EVERY_S: Final = 2.0

_PLACES: Final[Mapping[str, re.Pattern[str]]] = {
    "state: changelog": re.compile(r"checkpoint/.*/state/.*changelog"),
    "state: snapshots": re.compile(r"checkpoint/.*/state/"),
    "checkpoint without state": re.compile(r"checkpoint/"),
    "`changes`": re.compile(r"tables/changes/(?!_delta_log)"),
    "`changes`, its log": re.compile(r"tables/changes/"),
    "`offsets`": re.compile(r"tables/offsets/"),
    "`groups`": re.compile(r"tables/groups/"),
    "other tables": re.compile(r"tables/"),
    "scratch: RocksDB": re.compile(r"scratch/.*(StateStore|\.sst$|/workingDir)"),
    "scratch: shuffles and other": re.compile(r"scratch/"),
    "logs": re.compile(r""),
}
"""Where files appear; the first that matches counts."""

Say = Callable[[str], None]


def measure_writes(directory: Path, plan: RandomKeys, *, say: Say) -> None:
    """Commit at random, and print bytes a second by place."""
    with running(directory, plan, {}) as run:
        say(f"the job has read {plan.keys:,} offsets")
        with Traffic(run.bootstrap, plan) as traffic:
            watch(run, traffic, _SETTLE_S)
            began, written = traffic.seconds, run.watch.written()
            before = dict(run.watch.appeared)
            watch(run, traffic, plan.seconds)
            seconds, after = traffic.seconds - began, run.watch.written()
            written = {role: after[role] - written[role] for role in after}
            made = by_place(before, run.watch.appeared)
        run.wait_until_read()
        say(check_tables(run, plan, traffic.requests))
        say(table(made, written, seconds))
        run.stop()
        say(check_state(run.job))


def watch(run: Running, traffic: Traffic, until: float) -> None:
    """Note all files that appear until the traffic has gone on for so many seconds."""
    while traffic.seconds < until:
        traffic.check()
        run.job.check()
        run.watch.files()
        run.watch.written()
        time.sleep(_EVERY_S)


def by_place(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return by place how many bytes have appeared between two looks at all files that ever were."""
    made = dict.fromkeys(_PLACES, 0)
    for path, size in after.items():
        place = next(name for name, pattern in _PLACES.items() if pattern.match(path))
        made[place] += size - before.get(path, 0)
    return made


def table(made: Mapping[str, int], written: Mapping[str, int], seconds: float) -> str:
    """Return bytes a second by place, and what the processes say that they wrote, in Markdown."""
    lines = ["| what | kB/s |", "| --- | ---: |"]
    lines += [f"| {place} | {size / seconds / 1e3:,.0f} |" for place, size in made.items()]
    lines.append(f"| all files | {sum(made.values()) / seconds / 1e3:,.0f} |")
    every = {**written, "all processes": sum(written.values())}
    lines += [f"| {role} (`write_bytes`) | {size / seconds / 1e3:,.0f} |" for role, size in every.items()]
    return "\n".join(lines)


def check_tables(run: Running, plan: RandomKeys, commits: int) -> str:
    """Compare the tables with the last commit of every key."""
    names = np.repeat(plan.names, plan.per_group)
    expected = pa.table(
        {
            "group": names,
            "topic": pa.repeat(pa.scalar(TOPIC), plan.keys),
            "partition": np.tile(np.arange(plan.per_group, dtype=np.int32), len(plan.names)),
            "committed_offset": plan.offsets_after(commits),
        }
    )
    found = run.job.tables.read().offsets.select(expected.column_names)
    order = [("group", "ascending"), ("partition", "ascending")]
    found = found.sort_by(order).cast(expected.schema)
    assert found.equals(expected), "the tables are not what was committed last"
    return f"the tables are what was committed last: {len(found):,} offsets after {commits:,} commits"
