"""Answers from the tables in the shape of Kafka's own: offsets of a group, groups by state, history, expiry.

Start at `offsets`; `lag` has lag and health. Needs neither Spark nor a broker. Errors are attached to the
level they concern (KIP-88, KIP-709).
"""

from streaming.common.topics import TopicPartitions
from streaming.queries.as_of import IncompleteError
from streaming.queries.offsets import OffsetQueries

__all__ = ["IncompleteError", "OffsetQueries", "TopicPartitions"]
