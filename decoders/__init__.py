"""Decodes the records of Kafka's `__consumer_offsets`: bytes and Arrow in, values or reasons out.

Knows nothing of Spark, of Kafka's clients or of tables. `wire` holds the alphabet, `records` every format;
the readers are derived from these.
"""

from decoders.consumer_protocol import decode_assignment, decode_subscription, subscribed_topics
from decoders.errors import DecodeError, ErrorKind
from decoders.records import RECORD_TYPES, RecordType
from decoders.rows import decode_document
from decoders.table import RECORD_SCHEMA, decode_columns

__all__ = [
    "RECORD_SCHEMA",
    "RECORD_TYPES",
    "DecodeError",
    "ErrorKind",
    "RecordType",
    "decode_assignment",
    "decode_columns",
    "decode_document",
    "decode_subscription",
    "subscribed_topics",
]
