"""Everything that runs: from Kafka's offsets topic to tables, queries and alerts.

`decode_record` is the vectorized pandas UDF that anybody may use on raw records of the topic.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streaming.udfs import decode_record

__all__ = ["decode_record"]


def __getattr__(name: str) -> Any:
    """Import PySpark only for those who ask for the UDF: queries need no JVM and start much faster."""
    if name == "decode_record":
        from streaming.udfs import decode_record

        return decode_record
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
