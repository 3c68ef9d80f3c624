"""What /proc tells, of processes that are started here: each is found, told apart and measured."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from processes import (
    DRIVER,
    JVM,
    STARTED_BY_JVM,
    WORKERS,
    descendants,
    parts_of,
    peak_memory,
    processes_of_session,
    processor_seconds,
    proportional_memory,
    resident_memory,
    thread_seconds,
    written_bytes,
)

from streaming.demo.local_broker import LocalBroker

ENDED_CHILD_S = 0.3  # of processor time
ROUNDED_DOWN_S = 2 / os.sysconf("SC_CLK_TCK")  # /proc has whole ticks, of user and of system time
PARENT = f"""
import subprocess, sys
def python(*arguments):
    return subprocess.Popen([sys.executable, "-c", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
python("import time\\nwhile time.process_time() < {ENDED_CHILD_S}: pass").wait()
idle = "import sys; print(1, flush=True); sys.stdin.read()"
children = [python(idle, "pyspark.worker"), python(idle)]
for child in children:
    child.stdout.readline()
print(*(child.pid for child in children), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def family() -> Iterator[list[int]]:
    """A process that leads a session, and two of its children: a Python worker by its name, and another."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        yield [parent.pid, *map(int, parent.stdout.readline().split())]
        parent.kill()


def test_a_session_and_a_family_are_found(family: list[int]) -> None:
    assert sorted(processes_of_session(family[0])) == sorted(family)
    assert sorted(descendants(family[0], without=0)) == sorted(family)
    assert sorted(descendants(family[0], without=family[2])) == sorted(family[:2])
    assert set(family) <= set(descendants(os.getpid(), without=0))
    assert not set(family) & set(descendants(os.getpid(), without=family[0]))


def test_parts_are_distinguished(family: list[int]) -> None:
    assert parts_of([*family, 2**22 + 1], family[0]) == dict(
        zip(family, (DRIVER, WORKERS, STARTED_BY_JVM), strict=True)
    )


def test_processor_time_is_that_of_ended_children_too(family: list[int]) -> None:
    parts = parts_of(family, family[0])
    assert processor_seconds(parts)[DRIVER] >= ENDED_CHILD_S - ROUNDED_DOWN_S
    assert processor_seconds({2**22 + 1: DRIVER}) == {}


def test_memory_is_summed_up_by_part(family: list[int]) -> None:
    one, all_three = parts_of(family[:1], family[0]), dict.fromkeys(family, DRIVER)
    assert peak_memory(one)[DRIVER] >= resident_memory(one)[DRIVER] > 1_000_000
    assert resident_memory(all_three)[DRIVER] > 2 * resident_memory(one)[DRIVER]
    assert 0 < proportional_memory(all_three)[DRIVER] < resident_memory(all_three)[DRIVER]  # they share pages
    assert written_bytes(one).keys() == {family[0]}


@pytest.mark.broker
def test_threads_of_a_jvm_are_named_by_what_they_are_for(broker: LocalBroker) -> None:
    parts = parts_of([broker.pid], 0)
    assert parts == {broker.pid: JVM}
    seconds = thread_seconds(parts)
    assert seconds["compiling bytecode"] > 0
    assert 0 < seconds.total() <= processor_seconds(parts)[JVM] + 0.1  # both go on
