"""offsetlake's decoders of the records of `__consumer_offsets`: bytes and Arrow in, values or reasons out.

Knows nothing of Spark, Kafka's clients or tables. `formats` declares every format once; the readers of single
records (`rows`) and of columns (`columns`) follow from it. `messages` has the requests and responses.
"""

from decoders.columns.decode import RECORD_SCHEMA, decode_columns
from decoders.errors import DecodeError, ErrorKind
from decoders.formats.consumer_protocol import (
    assigned_partitions,
    decode_assignment,
    decode_subscription,
    rack_of,
    subscribed_topics,
)
from decoders.formats.record_type import RecordType
from decoders.formats.record_types import RECORD_TYPES
from decoders.rows.documents import document_parts
from decoders.rows.reference import decode_document

__all__ = [
    "RECORD_SCHEMA",
    "RECORD_TYPES",
    "DecodeError",
    "ErrorKind",
    "RecordType",
    "assigned_partitions",
    "decode_assignment",
    "decode_columns",
    "decode_document",
    "decode_subscription",
    "document_parts",
    "rack_of",
    "subscribed_topics",
]
