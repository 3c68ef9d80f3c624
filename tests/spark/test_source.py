"""The options of the Kafka source: how much consumers hold together, and whose settings win."""

import pytest

from streaming.settings.memory import divided
from streaming.settings.reading import read_settings
from streaming.spark.query import records_per_batch
from streaming.spark.source import source_options

FETCHED, POLLED = "kafka.max.partition.fetch.bytes", "kafka.max.poll.records"


@pytest.mark.parametrize("partitions", [1, 3, 8, 16, 50])
def test_consumers_of_many_partitions_hold_no_more_together_than_those_of_few(partitions: int) -> None:
    options = source_options(read_settings().source, partitions)
    assert int(options[FETCHED]) * partitions <= 25 * 2**20
    assert int(options[POLLED]) * partitions <= 100_000
    assert int(options[FETCHED]) >= 2**19
    assert int(options[POLLED]) >= 1_000


def test_a_users_own_step_wins_but_not_over_what_is_read() -> None:
    client = {"max.poll.records": "7", "isolation.level": "read_uncommitted"}
    settings = read_settings(options={"source.client": client})
    options = source_options(settings.source, 50)
    assert options[POLLED] == "7"
    assert options["kafka.isolation.level"] == "read_committed"


def test_a_users_own_size_of_batches_wins_over_that_by_the_memory() -> None:
    by_memory = {"job.memory": "3GiB"}
    assert records_per_batch(read_settings(options=by_memory)) == divided(3 * 2**30).records_per_batch
    assert records_per_batch(read_settings(options={**by_memory, "source.max_records_per_batch": 7})) == 7
