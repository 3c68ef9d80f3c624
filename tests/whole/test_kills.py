"""The real job is killed again and again under live traffic: in the end the tables equal the broker's
answers, and their history is whole.

`KILLS` says how often (at first once at each named point, then at named points and at random moments),
`KILL_SEED` which moments these are and what the groups do meanwhile. Only `make test-kill` runs this (it sets
KILLS).
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import kafka_clients as kafka
import pytest
from conftest import BrokerFactory
from group_actors import QUICK, assert_tables_say, start_group_actors, without_forgotten
from history_checks import Reader, check_history, check_quarantine, table_offsets
from job_process import JobProcess
from kafka_versions import KafkaVersion
from live_traffic import OFFSETS_PARTITIONS, LiveTraffic, wait_for_markers
from state_files import versions_behind

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif("KILLS" not in os.environ, reason="`make test-kill` runs it"),
]

KILLS = int(os.environ.get("KILLS", "30"))
SEED = int(os.environ.get("KILL_SEED", "1"))

POINTS = (
    "after the append to quarantine",
    "in the state commit",
    "after the append",
    "before the change-over",
    "between two folds",
    "after the change-over",
    "before the append",
    "in decode",
)
MORE_POINTS = (*POINTS, "in a state update")
MOMENTS = ("a moment", "a moment", "a moment", "the driver alone", "the JVM alone")
MOST_REPLAYED = 20  # versions of the state, at a start
LONGEST_S = 12.0  # from the start of a process to the moment at which it is killed


def plan(kills: int, chance: random.Random) -> Iterator[str]:
    """Yield where or when to kill: each named point once, then anything."""
    yield from (*POINTS, "a moment", "a moment")[:kills]
    for _ in range(kills - len(POINTS) - 2):
        yield chance.choice(chance.choice([MORE_POINTS, MOMENTS]))


def kill(job: JobProcess, where: str, chance: random.Random) -> None:
    """Start the job, and kill it."""
    if where in MORE_POINTS:
        is_rebuild = where.endswith("change-over")
        count = 1 if is_rebuild else chance.randint(1, 2)
        job.start("rebuild" if is_rebuild else "run", bomb=f"{where}:{count}")
        assert job.wait() == -signal.SIGKILL, f"it did not come to {where}:\n{job.output}"
        return
    job.start()
    time.sleep(chance.uniform(0, LONGEST_S))
    if where == "a moment":
        job.kill()
    else:
        job.kill_one(driver=where == "the driver alone")
        assert job.wait() in (1, -signal.SIGKILL), f"{where} was killed:\n{job.output}"


@pytest.mark.timeout(300 + 120 * KILLS)
def test_killed_again_and_again_the_tables_equal_the_brokers_answers(
    make_broker: BrokerFactory, kafka_version: KafkaVersion, java_jars: Path, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    steps = list(plan(KILLS, chance))
    bootstrap = make_broker(offsets_partitions=OFFSETS_PARTITIONS, overrides=QUICK).bootstrap_servers
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    job = JobProcess(tmp_path, bootstrap, environment={"TMPDIR": str(temporary)})
    with start_group_actors(java_jars, bootstrap) as actors:
        traffic = LiveTraffic(bootstrap, actors, kafka_version, seed=SEED)
        try:
            with Reader(job.tables) as reader, traffic:
                for number, where in enumerate(steps, start=1):
                    began = time.monotonic()
                    kill(job, where, chance)
                    print(f"kill {number}: {where}, after {time.monotonic() - began:.1f} s")
                    assert (reader.failure, traffic.failure) == (None, None), f"kill {number} ({where})"
                traffic.finish()
                wait_for_markers(bootstrap)
                job.start("run", "--once")
                assert job.wait() == 0, job.output
                [folder] = temporary.iterdir()
                [bases] = folder.iterdir()  # and no other temporary files of a process that was killed
                shards = [file.name.rpartition("-")[0] for file in bases.iterdir()]
                assert len(shards) == len(set(shards)), "files of former bases, or parts of files"
        finally:
            job.kill()
        assert reader.failure is None
        assert reader.reads > KILLS
        offsets = kafka.broker_offsets(bootstrap)
        assert table_offsets(job.tables) == offsets
        assert_tables_say(job.tables, without_forgotten(actors.groups(), offsets))
        written = len(kafka.read_raw(bootstrap))  # before the members leave
    check_history(job.tables)
    check_quarantine(job.tables, traffic.unreadable)
    progress = job.tables.progress()
    asked_for = sum(where.endswith("change-over") for where in steps)
    assert progress.generation <= asked_for, "a rebuild that nobody asked for"
    assert job.tables.aside().existing() == []
    generations = [entry.name for entry in (tmp_path / "checkpoint").iterdir() if entry.is_dir()]
    assert generations == [str(progress.generation)]
    assert versions_behind(tmp_path / "checkpoint" / str(progress.generation)) <= MOST_REPLAYED
    totals = progress.totals
    assert totals.malformed == len(traffic.unreadable)
    assert totals.decoded + totals.malformed == written
