"""The table of all APIs, by key: add one in the module of its kind, and here.

Readers, writers, the table in the documentation and the tests follow from the declarations. Names are Kafka's
own. Versions begin with the oldest that a broker of 4.x still reads, and end with those of 4.4 at the latest.
"""

from operator import attrgetter
from types import MappingProxyType
from typing import Final

from decoders.messages.cluster import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_TOPIC_PARTITIONS,
    METADATA,
)
from decoders.messages.groups import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    SHARE_GROUP_DESCRIBE,
)
from decoders.messages.offsets import LIST_OFFSETS, OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from decoders.messages.sign_in import SASL_AUTHENTICATE, SASL_HANDSHAKE

_ROWS: Final = (
    API_VERSIONS,
    METADATA,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_CONFIGS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    DESCRIBE_GROUPS,
    CONSUMER_GROUP_DESCRIBE,
    SHARE_GROUP_DESCRIBE,
    DELETE_GROUPS,
    OFFSET_FETCH,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    SASL_HANDSHAKE,
    SASL_AUTHENTICATE,
)

APIS: Final = MappingProxyType({row.key: row for row in sorted(_ROWS, key=attrgetter("key"))})
