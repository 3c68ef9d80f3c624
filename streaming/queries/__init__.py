"""Answers from the tables, shaped as Kafka's own: offsets of a group, groups by state, history, expiry.

Needs neither Spark nor a broker. An error stands at the level where it belongs (KIP-88, KIP-709).
"""

from streaming.queries.completeness import IncompleteError
from streaming.queries.names import TopicPartitions
from streaming.queries.queries import OffsetQueries

__all__ = ["IncompleteError", "OffsetQueries", "TopicPartitions"]
