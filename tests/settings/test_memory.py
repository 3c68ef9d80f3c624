"""The memory of the job: how it is divided, what is refused, and what a container's limit changes."""

from itertools import pairwise
from typing import Any

import pytest

from streaming.model.errors import MisuseError
from streaming.settings.kinds import GIB, MIB
from streaming.settings.memory import OF_OTHERS_BYTES, divided, division_of, fitted
from streaming.settings.model import LEAST_MEMORY_BYTES, Settings
from streaming.settings.reading import read_settings
from streaming.settings.shown import describe

SPARK_NEEDS = 450 * MIB
"""A smaller heap is refused by Spark (`UnifiedMemoryManager`), which leaves a survivor space out."""


def with_memory(memory: str, **others: Any) -> Settings:
    return read_settings(options={"job.memory": memory, **others})


def test_the_usual_memory_is_divided_as_it_was_measured() -> None:
    division = division_of(read_settings())
    assert (division.heap_bytes, division.off_heap_bytes) == (2 * GIB, 512 * MIB)
    assert (division.records_per_batch, division.records_at_once) == (3_000_000, 50_000)
    assert division == division_of(with_memory("4GiB"))


@pytest.mark.parametrize("size", range(LEAST_MEMORY_BYTES, 16 * GIB, 100 * MIB))
def test_every_accepted_memory_is_enough_for_spark_and_is_not_exceeded(size: int) -> None:
    division = divided(size)
    assert division.heap_bytes * 0.9 >= SPARK_NEEDS
    assert division.records_per_batch > 0
    assert division.off_heap_bytes > 0
    assert division.heap_bytes + division.off_heap_bytes <= size - 1_408 * MIB
    assert division.heap_bytes % MIB == division.off_heap_bytes % MIB == 0


def test_more_memory_is_never_less_of_anything() -> None:
    parts = [
        (one.heap_bytes, one.off_heap_bytes, one.records_per_batch, one.records_at_once)
        for one in map(divided, range(LEAST_MEMORY_BYTES, 16 * GIB, 64 * MIB))
    ]
    for smaller, larger in pairwise(parts):
        assert all(less <= more for less, more in zip(smaller, larger, strict=True))


def test_a_size_is_shown_as_it_is_set() -> None:
    assert 'job.memory = "auto"' in describe(read_settings())
    assert 'job.memory = "3GiB"' in describe(with_memory("3072MiB"))
    assert 'job.memory = "2560MiB"' in describe(with_memory("2560MiB"))
    assert 'source.max_records_per_batch = "auto"' in describe(read_settings())


def test_without_a_limit_the_memory_is_the_usual_one() -> None:
    assert fitted(read_settings(), None).job.memory_bytes == 4 * GIB
    assert fitted(read_settings(), 64 * GIB).job.memory_bytes == 4 * GIB


def test_a_container_leaves_room_for_others() -> None:
    assert fitted(read_settings(), 3 * GIB).job.memory_bytes == 3 * GIB - OF_OTHERS_BYTES
    assert (
        fitted(read_settings(), LEAST_MEMORY_BYTES + OF_OTHERS_BYTES).job.memory_bytes == LEAST_MEMORY_BYTES
    )


def test_a_container_that_is_too_small_is_refused_with_the_limit_that_would_do() -> None:
    least = LEAST_MEMORY_BYTES + OF_OTHERS_BYTES
    with pytest.raises(MisuseError) as raised:
        fitted(read_settings(), least - 1)
    assert f"Set a limit of at least {least // MIB:,} MiB" in str(raised.value)
    assert raised.value.exit_code == 2


def test_a_set_memory_may_be_all_of_the_limit_but_not_more() -> None:
    assert fitted(with_memory("3GiB"), 3 * GIB).job.memory_bytes == 3 * GIB
    with pytest.raises(MisuseError, match=r"job\.memory is 3GiB, but .* limited to 3,071 MiB") as raised:
        fitted(with_memory("3GiB"), 3 * GIB - 1)
    assert raised.value.exit_code == 2
