"""offsetlake: from Kafka's offsets topic to tables, queries and alerts.

`decode_record` is the vectorized pandas UDF for raw records of the topic, `Tables` the tables under one root,
`OffsetQueries` the questions that can be asked of them. docs/architecture.md shows the packages.
"""

import logging
from typing import TYPE_CHECKING

from streaming.common.lazily import lazily

if TYPE_CHECKING:
    from streaming.queries.offsets import OffsetQueries
    from streaming.spark.udfs import decode_record
    from streaming.tables.tables import Tables

__all__ = ["OffsetQueries", "Tables", "decode_record"]

__getattr__ = lazily(
    {
        "OffsetQueries": "streaming.queries.offsets",
        "Tables": "streaming.tables.tables",
        "decode_record": "streaming.spark.udfs",
    }
)

logging.getLogger(__name__).addHandler(logging.NullHandler())  # a user chooses where logs go
