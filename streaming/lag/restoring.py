"""Committed offsets of a past moment, to be restored, with warnings where their logs have changed since."""

from typing import Final

import numpy as np
import pyarrow as pa

from streaming.common.arrays import from_numbers, from_texts, numbers_or, to_mask
from streaming.common.pieces import take
from streaming.common.timestamps import to_milliseconds
from streaming.lag.recreated_topic import of_recreated_topic
from streaming.lag.samples import NONE, Places
from streaming.model.schemas import KEY, TIMESTAMP

UNREADABLE: Final = "none of its commits could be read: there is no offset to put back"
NEGATIVE: Final = "it is left out, because kafka-consumer-groups refuses a file with a negative offset"
RECREATED: Final = "the topic was recreated after the commit: the offset belongs to another log"
START_PASSED: Final = "the log starts after the offset: the records to read next were deleted"
BEYOND_END: Final = "the log ends before it"
NEWER_UNREADABLE: Final = "a newer commit could not be read: the group may have been elsewhere"
LOG_UNKNOWN: Final = "the log is not known: its topic is gone, or was not sampled lately"
WARNINGS: Final = (UNREADABLE, NEGATIVE, RECREATED, START_PASSED, BEYOND_END, NEWER_UNREADABLE, LOG_UNKNOWN)
"""Why a restored offset may not do what the operator wants. A position has the first that holds."""

RESTORED: Final = pa.schema(
    [
        *KEY,
        ("committed_offset", pa.int64()),  # null: `UNREADABLE`
        ("log_start_offset", pa.int64()),  # now; null, as log_end_offset: not known
        ("log_end_offset", pa.int64()),
        ("ends_as_of", TIMESTAMP),  # time of the newest sample, of any age; null: there is none
        ("warning", pa.string()),  # one of `WARNINGS`; null: none
    ]
)
"""A committed offset to restore."""


def restored(
    offsets: pa.Table, newest: pa.Table, over_time: pa.Table, *, max_age_ms: int, now: int
) -> pa.Table:
    """Return the positions (schema `RESTORED`) of offsets of a past moment (schema `OFFSETS`).

    `newest` are the newest samples of logs (topic, partition, sampled_at, log_start, log_end): those older
    than `max_age_ms` at `now` (ms) do not count. `over_time` are the ids that topics were seen with.
    """
    places, codes = Places.of(newest)
    held = np.full(len(places.keys) + 1, NONE, np.int64)
    held[codes] = np.arange(len(newest))
    rows = held[places.codes_of(offsets)]
    sampled_at = take(newest.select(["sampled_at"]), rows)["sampled_at"]
    is_late = numbers_or(to_milliseconds(sampled_at), 0) >= now - max_age_ms
    ends = take(newest.select(["log_start", "log_end"]), np.where(is_late, rows, NONE))
    committed = numbers_or(offsets["committed_offset"], 0)
    is_passed = committed < numbers_or(ends["log_start"], -(2**63))
    is_beyond = committed > numbers_or(ends["log_end"], 2**63 - 1)
    is_unknown = ~to_mask(ends["log_end"].is_valid())
    is_unreadable = ~to_mask(offsets["committed_offset"].is_valid())
    is_of_recreated = to_mask(of_recreated_topic(offsets, over_time))
    has_newer = to_mask(offsets["unreadable_source_offset"].is_valid())
    conditions = [is_unreadable, committed < 0, is_of_recreated, is_passed, is_beyond, has_newer, is_unknown]
    numbers = np.select(conditions, list(range(len(WARNINGS))), NONE)
    warning = from_texts(WARNINGS).take(from_numbers(np.maximum(numbers, 0), numbers != NONE))
    columns = [offsets[name] for name in (*(field.name for field in KEY), "committed_offset")]
    return pa.table([*columns, ends["log_start"], ends["log_end"], sampled_at, warning], schema=RESTORED)
