"""Tables remember the topic and the cluster they were filled from, and are not filled from another."""

from dataclasses import replace
from pathlib import Path

import pytest
from new_tables import new_tables
from table_batches import QUERY, append

from streaming.brokers.facts import TopicFacts
from streaming.job.start_checks import bound, check_source
from streaming.model.errors import MisuseError
from streaming.model.progress import Progress
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables

FACTS = TopicFacts("cluster-a", 4, "topic-id-1")


def settings_of(root: Path, topic: str = "__consumer_offsets") -> Settings:
    return read_settings(options={"tables.root": str(root), "source.topic": topic})


@pytest.fixture
def filled(tmp_path: Path) -> Tables:
    """Tables that were filled from topic `__consumer_offsets` of `cluster-a`."""
    tables = new_tables(tmp_path)
    progress = bound(Progress(), settings_of(tmp_path), FACTS)
    append(
        tables,
        {},
        topic=progress.topic,
        topic_id=progress.topic_id,
        cluster_id=progress.cluster_id,
        partitions=progress.partitions,
    )
    return tables


def test_cluster_and_topic_stand_in_the_tables(filled: Tables) -> None:
    progress = filled.progress()
    assert (progress.query_id, progress.cluster_id) == (QUERY, "cluster-a")
    assert (progress.topic, progress.topic_id) == ("__consumer_offsets", "topic-id-1")
    assert list(progress.partitions) == [0, 1, 2, 3]


def test_the_same_cluster_is_taken(filled: Tables, tmp_path: Path) -> None:
    check_source(filled.progress(), settings_of(tmp_path), FACTS)


@pytest.mark.parametrize(
    ("topic", "facts", "message"),
    [
        (
            "__consumer_offsets",
            TopicFacts("cluster-b", 4, "topic-id-1"),
            "expected Kafka cluster cluster-a, .* found cluster cluster-b at .* needs its own table root",
        ),
        (
            "copy",
            FACTS,
            "expected topic __consumer_offsets, .* found copy. Each topic needs its own table root",
        ),
    ],
    ids=["cluster", "topic"],
)
def test_another_source_is_refused(
    filled: Tables, tmp_path: Path, topic: str, facts: TopicFacts, message: str
) -> None:
    with pytest.raises(MisuseError, match=message) as raised:
        check_source(filled.progress(), settings_of(tmp_path, topic), facts)
    assert raised.value.exit_code == 2


def test_brokers_that_do_not_say_who_they_are_change_nothing(filled: Tables, tmp_path: Path) -> None:
    silent = replace(FACTS, cluster_id=None, topic_id=None)
    check_source(filled.progress(), settings_of(tmp_path), silent)
    after = bound(filled.progress(), settings_of(tmp_path), silent)
    assert (after.cluster_id, after.topic_id) == ("cluster-a", "topic-id-1")
    check_source(Progress(), settings_of(tmp_path), silent)
