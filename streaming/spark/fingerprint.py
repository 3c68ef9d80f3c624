"""A fingerprint of the changes of a batch: whether a batch that Spark runs again has the same result."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from streaming.state.changes import only_counts


@dataclass(frozen=True)
class Fingerprint:
    """The number of changes, and a hash of the records that caused them, in any order.

    A batch that is read again after compaction may lack records. Then the state of the shards differs from
    the tables. If only superseded records are missing it does not: so the number of commits is not part of
    the fingerprint, nor are rows with nothing else.
    """

    rows: int = 0
    hashes: int = 0

    @classmethod
    def of(cls, changes: pa.Table) -> Self:
        """Return the fingerprint of changes (schema `CHANGES_IN_BATCH`)."""
        changes = changes.select(["op", "cause", "before", "source_offset", "source_partition"])
        if (is_no_change := only_counts(changes)).any():
            changes = changes.filter(pa.array(~is_no_change))
        is_set = pc.equal(changes["op"], "set").to_numpy()
        places = changes["source_offset"].to_numpy().astype(np.uint64) * 2 + is_set
        partitions = changes["source_partition"].to_numpy().astype(np.uint64)
        hashes = pd.util.hash_array(places) ^ pd.util.hash_array(partitions)
        return cls(len(changes), int(pd.util.hash_array(hashes).sum(dtype=np.uint64)))

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the fingerprint of its form in the progress."""
        rows, hashes = text.split("-")
        return cls(int(rows), int(hashes, 16))

    def __add__(self, other: "Fingerprint") -> "Fingerprint":
        return Fingerprint(self.rows + other.rows, (self.hashes + other.hashes) % 2**64)

    def __str__(self) -> str:
        """Return the form in the progress."""
        return f"{self.rows}-{self.hashes:016x}"
