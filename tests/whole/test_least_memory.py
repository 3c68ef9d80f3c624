"""The real job in a memory cgroup whose limit is the value of `[job] memory`, the least one: it survives.

Only `make test-memory` runs this (it sets MEMORY to the memory, or to nothing for the least one).
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from job_process import JobProcess
from memory_group import NEEDS, MemoryGroup, can_be_made, memory_group

from streaming.demo.local_broker import LocalBroker
from streaming.queries.offsets import OffsetQueries
from streaming.settings.kinds import MIB, shown_size, size_of
from streaming.settings.model import LEAST_MEMORY_BYTES
from tests.benchmarks.bench_cost import SIZES
from tests.benchmarks.cost.contestants import OFFSETS_TOPIC
from tests.benchmarks.cost.reading import PARTITIONS, fill_offsets_topic
from tests.benchmarks.workloads import TopicFiller, Workload, chunks

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.timeout(3_600),
    pytest.mark.skipif("MEMORY" not in os.environ, reason="`make test-memory` runs it: some minutes"),
    pytest.mark.skipif(not can_be_made(), reason=NEEDS),
]

MEMORY = os.environ.get("MEMORY") or shown_size(LEAST_MEMORY_BYTES)
RECORDS = 3_000_000
FOLLOWED_S = 60
SETTINGS = f"""
[job]
memory = "{MEMORY}"
[alerts]
log = "off"
[spark]
log_file = "{{directory}}/spark.log"
"""


@contextmanager
def watched(what: str, group: MemoryGroup) -> Iterator[None]:
    """Print the most memory that the group used within the block; fail if the kernel killed one."""
    done, seen = threading.Event(), [0]

    def look() -> None:
        while not done.wait(0.1):
            seen.append(group.used_bytes)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        print(f"{MEMORY}: {what}: at most {max(seen) // MIB:,} MiB, {group.kills} processes killed")
    assert group.kills == 0


def started(job: JobProcess, group: MemoryGroup, *options: str) -> None:
    job.start("run", *options)
    group.add(job.driver.pid)


def commits_at(bootstrap: str, first: Workload) -> Callable[[], None]:
    """Return a function that commits for a minute, 1,000 times a second, for the keys of a workload."""
    filler = TopicFiller(bootstrap, OFFSETS_TOPIC, PARTITIONS, is_internal=True)
    later = Workload(
        name="later",
        records=1_000 * FOLLOWED_S,
        keys=first.keys,
        groups=first.groups,
        seed=2,
        first_timestamp_ms=1_000 * int(time.time()),
        old_share=0,
    )

    def commit() -> None:
        for chunk in chunks(later, PARTITIONS, size=1_000):
            filler.produce(chunk)
            filler.flush()
            time.sleep(1)

    return commit


@pytest.mark.parametrize("name", ["A", "C"])
def test_the_job_survives_in_its_memory(name: str, tmp_path: Path) -> None:
    """Few keys and a million: the topic is read, and followed after a restart."""
    _, keys, groups = SIZES[name]
    first_ms = 1_000 * (int(time.time()) - 1_800)
    full = Workload(name=name, records=RECORDS, keys=keys, groups=groups, first_timestamp_ms=first_ms)
    overrides = {"log.cleaner.enable": "false", "log.retention.ms": "-1"}
    with (
        LocalBroker(
            tmp_path / "broker", offsets_partitions=PARTITIONS, overrides=overrides, heap="768m"
        ) as broker,
        memory_group(size_of(MEMORY) or 0) as group,
    ):
        fill_offsets_topic(broker.bootstrap_servers, full)
        job = JobProcess(tmp_path / "job", broker.bootstrap_servers, settings=SETTINGS)
        try:
            with watched(f"{name}, the first reading", group):
                started(job, group, "--once")
                assert job.wait(1_800) == 0, job.output
            assert len(OffsetQueries(job.tables).list_offsets().rows) == keys
            with watched(f"{name}, followed after a restart", group):
                started(job, group)
                commits_at(broker.bootstrap_servers, full)()
                assert job.stop() == 0, job.output
        finally:
            if job.is_running:
                job.kill()
