"""Answers about much, about long names and about what hardly anyone asks for."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from listening import CLUSTER_ID, Client, listening
from table_batches import Batch, append, group, offset

from streaming.common.times import MINUTE_MS, now_ms
from streaming.model.progress import PartitionProgress
from streaming.serve.kafka import apis
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.view import Address, View
from streaming.serve.kafka.view import Client as Software
from streaming.serve.picture.follower import Follower
from streaming.serve.picture.picture import Picture
from streaming.tables.tables import Tables

LOADED = PartitionProgress(position=10, loaded=True)
LATEST, EARLIEST = -1, -2
TOPIC_ID = "AAAAAAAAAAEAAAAAAAAAAg"


def fill(tables: Tables, batch: Batch, **changed: Any) -> None:
    progress = {"partitions": {0: LOADED}, "topic": "__consumer_offsets", "now": now_ms()}
    append(tables, batch, **{**progress, **changed})


def picture_of(tables: Tables) -> Picture:
    follower = Follower(tables, print)
    follower.look()
    return follower.current


def seen(picture: Picture, client: Software | None = None) -> View:
    return View(
        picture=picture,
        now=now_ms(),
        max_age_ms=MINUTE_MS,
        address=Address("127.0.0.1", 1),
        cluster_id=CLUSTER_ID,
        client=client or Software(),
    )


# --- much --------------------------------------------------------------------------------------------------


class OfOneTopic(np.ndarray[Any, np.dtype[np.int64]]):
    """A column that is not to be looked at as a whole."""

    def __gt__(self, other: Any) -> Any:
        assert len(self) == 1
        return super().__gt__(other)


def test_a_topic_is_shown_without_looking_at_all_others(tables: Tables) -> None:
    fill(tables, {("g", f"t{number}", 0): offset(source_partition=0) for number in range(9)})
    picture = picture_of(tables)
    picture = replace(picture, committing=picture.committing.view(OfOneTopic))
    answer = apis.cluster.answer_metadata({"topics": None}, seen(picture))
    assert len(answer["topics"]) == 9


def test_while_partitions_are_loading_no_group_takes_long(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = {number: replace(LOADED, loaded=number > 0) for number in range(50)}
    fill(tables, {"g": group(source_partition=3)}, partitions=states)
    picture = picture_of(tables)
    assert not picture.is_loading("g")
    assert picture.is_loading("polygenelubricants")  # its hash is the lowest that there is

    def many_at_once(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("streaming.queries.completeness.offsets_partitions", many_at_once)
    assert [picture.is_loading(name) for name in ("g", "", "h", "polygenelubricants")] == [0, 1, 0, 1]


# --- partitions that nobody has committed ------------------------------------------------------------------

OLD_JAVA, NEW_JAVA = Software("apache-kafka-java", "3.9.2"), Software("apache-kafka-java", "4.3.1")


def shown(view: View) -> dict[tuple[str, int], bool]:
    """Return of each partition in the answer to Metadata whether it has a leader."""
    return {
        (topic["name"], one["partitionIndex"]): one["leaderId"] != -1
        for topic in apis.cluster.answer_metadata({"topics": None}, view)["topics"]
        for one in topic["partitions"]
    }


def latest(view: View, topic: str, numbers: range) -> list[int]:
    """Return the errors of asking for the ends of partitions."""
    asked = [{"partitionIndex": number, "timestamp": LATEST} for number in numbers]
    answer = apis.log_ends.answer_log_ends({"topics": [{"name": topic, "partitions": asked}]}, view)
    [answered] = answer["topics"]
    assert all(one.get("offset", -1) == -1 for one in answered["partitions"])
    return [one.get("errorCode", 0) for one in answered["partitions"]]


def test_a_partition_that_is_shown_is_known_when_its_end_is_asked_for(tables: Tables) -> None:
    fill(tables, {("g", "t", 2): offset(source_partition=0)})
    picture, unknown = picture_of(tables), Error.UNKNOWN_TOPIC_OR_PARTITION
    old, new = seen(picture, OLD_JAVA), seen(picture, NEW_JAVA)
    assert shown(old) == {("t", number): True for number in range(3)}
    assert shown(new) == {("t", number): False for number in range(3)}
    assert latest(old, "t", range(-1, 4)) == [unknown, 0, 0, 0, unknown]
    assert latest(new, "t", range(4)) == [*[Error.NOT_LEADER_OR_FOLLOWER] * 3, unknown]
