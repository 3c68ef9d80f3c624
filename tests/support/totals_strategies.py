"""Strategies of hypothesis for the counters of what was read."""

from hypothesis import strategies as st

from streaming.model.totals import Position, Totals, UnknownRecords

COUNTS = st.integers(0, 2**63 - 1)
POSITIONS = st.builds(Position, st.integers(0, 49), COUNTS)
UNKNOWN = st.builds(
    UnknownRecords,
    record_type=st.integers(-(2**15), 2**15 - 1),
    value_version=st.none() | st.integers(-(2**15), 2**15 - 1),
    count=COUNTS,
    first=POSITIONS,
    last=POSITIONS,
)
TOTALS = st.builds(
    Totals,
    decoded=COUNTS,
    tombstones=COUNTS,
    malformed=COUNTS,
    clamped=COUNTS,
    unknown=st.lists(UNKNOWN, max_size=3).map(tuple),
)
