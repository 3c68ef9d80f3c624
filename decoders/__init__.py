"""Decodes the records of Kafka's `__consumer_offsets`: bytes and Arrow in, values or reasons out.

Knows nothing of Spark, of Kafka's clients or of tables. `wire` holds the alphabet, `records` every format;
the readers are derived from these.
"""

from decoders.columns.decode import RECORD_SCHEMA, decode_columns
from decoders.errors import DecodeError, ErrorKind
from decoders.formats.consumer_protocol import decode_assignment, decode_subscription, subscribed_topics
from decoders.formats.records import RECORD_TYPES, RecordType
from decoders.rows.reference import decode_document

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
