"""The Spark query: from the topic through decoding and replay to one table of changes per batch.

Start at `query`. Only this package and `job` import PySpark.
"""

from typing import TYPE_CHECKING

from streaming.common.lazily import lazily

if TYPE_CHECKING:
    from streaming.spark.query import start_query
    from streaming.spark.session import start_session
    from streaming.spark.udfs import decode_record

__all__ = ["decode_record", "start_query", "start_session"]

__getattr__ = lazily(
    {
        "decode_record": "streaming.spark.udfs",
        "start_query": "streaming.spark.query",
        "start_session": "streaming.spark.session",
    }
)
