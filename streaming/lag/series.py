"""Committed offsets of many positions at regular moments, and their lag.

Names of groups and topics stay in one row for each position, and only `rows` repeats them for each moment:
sums need no names.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final, Self

import numpy as np
import pyarrow as pa

from streaming.common.arrays import Index, Mask, begins_run, from_numbers, to_numbers
from streaming.common.keys import KEY_NAMES, ranks
from streaming.common.pieces import take
from streaming.common.timestamps import to_timestamps
from streaming.lag.lag_time import Ends, with_lag
from streaming.lag.log_ranges import lag_of
from streaming.lag.runs import CommitRuns
from streaming.lag.samples import NONE
from streaming.model.schemas import TIMESTAMP

LAG_SUMS: Final = pa.schema(
    [
        ("at", TIMESTAMP),
        ("partitions", pa.int64()),  # with a committed offset at the moment
        ("lag", pa.float64()),  # records, negative lags as 0; null, as the next two: some value is not known
        ("log_end_offset", pa.float64()),
        ("committed_offset", pa.float64()),
    ]
)
"""Sums over positions at one moment. All are null without any position."""


@dataclass(frozen=True)
class Series:
    """Committed offsets of k positions (`keys`, columns `KEY`) at m `moments` (ms, rising): n values by
    position and then by moment. A position without an offset at a moment has no value.

    `numbers` (n) are the positions and `places` (n) the moments of the values, `committed_at` (n, ms) the
    times of the commits and `topic_ids` (n) their topic ids (`id_numbers`). Unreadable offsets are 0.
    """

    keys: pa.Table
    moments: Index
    numbers: Index
    places: Index
    offsets: Index
    is_readable: Mask
    committed_at: Index
    topic_ids: Index

    @classmethod
    def of(cls, runs: CommitRuns, keys: pa.Table, moments: Index) -> Self:
        """Take the last commit of each of k keys up to each moment; the series sorts the keys."""
        order = np.lexsort((to_numbers(keys["partition"]), ranks(keys["topic"]), ranks(keys["group"])))
        lasts = runs.last_until(np.repeat(order, len(moments)), np.tile(moments, len(order)))
        is_there = np.flatnonzero((lasts != NONE) & ~runs.is_removed[lasts])
        numbers, places = np.divmod(is_there, len(moments))
        lasts = lasts[is_there]
        committed = runs.offsets[lasts], runs.is_readable[lasts], runs.at[lasts], runs.topic_ids[lasts]
        return cls(take(keys, order), moments, numbers, places, *committed)

    @property
    def at(self) -> Index:
        """The moments (ms) of the n values."""
        at: Index = self.moments[self.places]
        return at

    @property
    def present(self) -> Index:
        """The numbers of the positions with a value."""
        present: Index = self.numbers[begins_run(self.numbers)]
        return present

    def of_positions(self, numbers: Index) -> Self:
        """Return the values of some positions, by number."""
        is_chosen = np.zeros(len(self.keys), np.bool_)
        is_chosen[numbers] = True
        chosen = is_chosen[self.numbers]
        if chosen.all():
            return self
        values = (getattr(self, field.name)[chosen] for field in fields(self)[2:])
        return type(self)(self.keys, self.moments, *values)

    def rows(self) -> pa.Table:
        """Return n rows: at, `KEY`, committed_offset and commit_timestamp."""
        columns = [
            to_timestamps(from_numbers(self.at)),
            *take(self.keys, self.numbers).columns,
            from_numbers(self.offsets, self.is_readable),
            to_timestamps(from_numbers(self.committed_at)),
        ]
        return pa.table(columns, ["at", *KEY_NAMES, "committed_offset", "commit_timestamp"])


@dataclass(frozen=True)
class LagSeries:
    """The lag of the n values of a series: log ends, the offsets as of the moments of these ends (`is_held`:
    there was one), and the samples between which the log end passed these offsets (n rows; None: the lag time
    is not known)."""

    series: Series
    ends: Ends
    held: Index
    is_held: Mask
    crossed: pa.Table | None = None

    @classmethod
    def unknown(cls, series: Series) -> Self:
        return cls(series, Ends.unknown(len(series.numbers)), series.offsets, series.is_readable)

    def positions(self) -> pa.Table:
        """Return topic, partition and committed_offset of n rows, as `as_of_ends` does."""
        places = take(self.series.keys.select(["topic", "partition"]), self.series.numbers)
        return places.append_column("committed_offset", from_numbers(self.held, self.is_held))

    def rows(self) -> pa.Table:
        """Return the n rows of the series with the columns `LAG`."""
        return with_lag(self.series.rows(), self.ends, self.positions(), self.crossed)

    def summands(self) -> list[tuple[Index, Mask]]:
        """Return what the last columns of `LAG_SUMS` sum: n values each, and which are known."""
        own, ends = self.series, self.ends
        return [
            (np.maximum(lag_of(ends.ends, self.held), 0), ends.is_known & self.is_held),
            (np.maximum(ends.ends, NONE), ends.is_known),
            (np.maximum(own.offsets, NONE), own.is_readable),
        ]


def series_rows(parts: Iterable[LagSeries]) -> pa.Table:
    """Return the rows of series of different positions with the same keys, by moment and then by key."""
    held = list(parts)
    numbers, places = (
        np.concatenate([getattr(part.series, name) for part in held]) for name in ("numbers", "places")
    )
    return take(pa.concat_tables(part.rows() for part in held), np.lexsort((numbers, places)))


def lag_sums(parts: Iterable[LagSeries], moments: Index) -> pa.Table:
    """Sum the values of series of different positions at the same m moments: m rows (schema `LAG_SUMS`)."""
    count = len(moments)
    partitions = np.zeros(count, np.int64)
    sums, known = np.zeros((2, len(LAG_SUMS) - 2, count))
    for part in parts:
        places = part.series.places
        partitions += np.bincount(places, minlength=count)
        for number, (values, is_known) in enumerate(part.summands()):
            sums[number] += np.bincount(places, np.where(is_known, values, 0), count)
            known[number] += np.bincount(places, is_known, count)
    is_whole = (known == partitions) & (partitions > 0)
    columns = [from_numbers(own, whole) for own, whole in zip(sums, is_whole, strict=True)]
    at = to_timestamps(from_numbers(moments))
    return pa.Table.from_arrays([at, from_numbers(partitions), *columns], schema=LAG_SUMS)
