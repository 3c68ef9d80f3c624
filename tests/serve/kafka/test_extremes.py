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
