"""Drops the commits that a later one supersedes, before they cost anything more."""

from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from decoders import RECORD_TYPES
from streaming.common.arrays import Mask
from streaming.common.keys import PLACED_KEY, entry_codes

COMMIT_TYPES: Final = pa.array(
    [number for number, kind in RECORD_TYPES.items() if kind.tabular], pa.int16()
)  # of offset commits, current and legacy


def drop_superseded(records: pa.Table) -> pa.Table:
    """Drop offset commits that a later record of the same table supersedes.

    Expects the records of each offsets partition in log order. Kept are the newest readable value and the
    newest tombstone of every key (`replay` needs both to tell whether a group was created again), and
    everything that is not a readable offset commit.
    """
    droppable = is_commit(records) & records["error_kind"].is_null().to_numpy()
    rows = np.flatnonzero(droppable)
    commits = records.select([*PLACED_KEY, "is_tombstone"])
    commits = commits if len(rows) == len(records) else commits.take(rows)
    codes, _, _ = entry_codes(commits)
    is_tombstone = commits["is_tombstone"].to_numpy()
    keep = np.ones(len(records), dtype=bool)
    for chosen in (is_tombstone, ~is_tombstone) if is_tombstone.any() else (~is_tombstone,):
        superseded = pd.Series(codes[chosen]).duplicated(keep="last").to_numpy()
        keep[rows[chosen][superseded]] = False
    return records if keep.all() else records.filter(pa.array(keep))


def is_commit(records: pa.Table) -> Mask:
    """Tell which records commit or remove an offset under a readable key; their value may be unreadable."""
    of_type = pc.is_in(records["record_type"], value_set=COMMIT_TYPES)
    found: Mask = pc.and_(of_type, pc.is_valid(records["partition"])).fill_null(False).to_numpy()
    return found
