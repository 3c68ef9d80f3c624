"""Reads log ends of the past for clients of the Kafka listener, from the tables."""

import logging
from collections.abc import Collection, Mapping
from typing import Final

from streaming.common.rate_limits import RateLimitedLog
from streaming.common.retries import raise_if_ending
from streaming.common.timestamps import to_milliseconds
from streaming.serve.kafka.view import PastEnd, PastEnds
from streaming.tables.select import in_one_line
from streaming.tables.tables import Tables

_COLUMNS: Final = ("topic", "partition", "log_end", "topic_id")


def past_ends_of(tables: Tables) -> PastEnds:
    """Return a function that reads the newest samples up to a moment; errors are logged."""
    log = RateLimitedLog(logging.getLogger(__name__))

    def read(topics: Collection[str], moment: int) -> Mapping[tuple[str, int], PastEnd] | None:
        try:
            rows = tables.ask(lambda at: at.newest_ends(topics, as_of=moment))
        except BaseException as error:  # also a panic of delta-rs
            raise_if_ending(error)
            log.warning("past", f"log ends of the past cannot be read: {in_one_line(error)}")
            return None
        columns = zip(*(rows[name].to_pylist() for name in _COLUMNS), strict=True)
        moments = to_milliseconds(rows["sampled_at"]).to_pylist()
        return {
            (topic, partition): PastEnd(at, end, topic_id)
            for at, (topic, partition, end, topic_id) in zip(moments, columns, strict=True)
        }

    return read
