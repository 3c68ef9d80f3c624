"""A choice of topics and partitions, and the rows of them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import from_numbers, from_texts
from streaming.model.errors import MisuseError


@dataclass(frozen=True)
class TopicPartitions:
    """A topic, and the selected partitions of it (None: all)."""

    topic: str
    partitions: frozenset[int] | None = None

    @classmethod
    def parse(cls, text: str, *, name: str) -> "TopicPartitions":
        """Parse `T` or `T:0,1`, the syntax of Kafka's tools; `name` is the option's name in a `MisuseError`.

        >>> TopicPartitions.parse("orders:0,1", name="topic").topic
        'orders'
        """
        found = re.fullmatch(r"([^:]+)(?::([0-9]{1,9}(?:,[0-9]{1,9})*))?", text)
        if found is None:
            raise MisuseError(
                f"{name}: expected a topic, or topic:partition,partition such as orders:0,1; found {text!r}."
            )
        topic, numbers = found.groups()
        return cls(topic, None if numbers is None else frozenset(map(int, numbers.split(","))))


def refuse_texts(topics: Sequence[object]) -> None:
    """Raise `MisuseError` for topics that are given as text."""
    if any(isinstance(one, str) for one in topics):
        raise MisuseError(f"topics: expected a list of TopicPartitions, found {topics!r}.")


def topics_by_partitions(topics: Sequence[TopicPartitions]) -> dict[frozenset[int] | None, list[str]]:
    """Return the topics of each selection of partitions (None: all)."""
    found: dict[frozenset[int] | None, list[str]] = {}
    for one in topics:
        found.setdefault(one.partitions, []).append(one.topic)
    return found


def of_topics(rows: pa.Table, topics: Sequence[TopicPartitions]) -> pa.Table:
    """Return the rows (with `topic` and `partition`) of these topics and partitions; no topics: all rows."""
    if not topics:
        return rows
    by_partitions = topics_by_partitions(topics).items()
    masks = [_is_of(rows, names, partitions) for partitions, names in by_partitions]
    return rows.filter(reduce(pc.or_, masks))


def _is_of(rows: pa.Table, topics: Sequence[str], partitions: frozenset[int] | None) -> pa.ChunkedArray:
    is_of_topic = pc.is_in(rows["topic"], value_set=from_texts(topics))
    if partitions is None:
        return is_of_topic
    numbers = from_numbers(np.array(sorted(partitions), np.int32))
    return pc.and_(is_of_topic, pc.is_in(rows["partition"], value_set=numbers))
