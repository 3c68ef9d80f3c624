"""The table of all record types of `__consumer_offsets`, by number.

Each format is declared once, in the module of its kind, which ends with the rows of its record types. Add a
value version or a record type there, and readers, columns, documents and tests follow from it. Field names
are Kafka's own; a field whose declaration has a `Default` means "none" if it holds that value.

Source: the message schemas of Kafka's group coordinator (`common/message/*.json` in its jar), releases 0.8.2
to 4.4.
"""

from operator import attrgetter
from types import MappingProxyType
from typing import Final

from decoders.formats.classic_groups import CLASSIC_GROUP_RECORDS
from decoders.formats.consumer_groups import CONSUMER_GROUP_RECORDS
from decoders.formats.offset_commits import OFFSET_COMMITS
from decoders.formats.record_type import RecordType, RecordTypes
from decoders.formats.share_groups import SHARE_GROUP_RECORDS
from decoders.formats.streams_groups import STREAMS_GROUP_RECORDS

_ROWS: Final[tuple[RecordType, ...]] = (
    *OFFSET_COMMITS,
    *CLASSIC_GROUP_RECORDS,
    *CONSUMER_GROUP_RECORDS,
    *SHARE_GROUP_RECORDS,
    *STREAMS_GROUP_RECORDS,
)

# Kafka has no type 18.
RECORD_TYPES: Final[RecordTypes] = MappingProxyType(
    {row.number: row for row in sorted(_ROWS, key=attrgetter("number"))}
)
