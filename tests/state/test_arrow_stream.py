"""Tables lose on their way what is null everywhere, and have it again on the other side."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.model.schemas import CHANGES_IN_BATCH, QUARANTINE_IN_BATCH
from streaming.packing import codec
from streaming.state.arrow_stream import narrow, widen

MEMBER = st.fixed_dictionaries({"member_id": st.text(max_size=2)})
OFFSETS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "committed_offset": st.none() | st.integers(-(2**63), 2**63 - 1),
        "metadata": st.none() | st.text(max_size=3),
    },
)
GROUPS = st.none() | st.fixed_dictionaries(
    {}, optional={"members": st.none() | st.lists(MEMBER, max_size=2), "state": st.text(max_size=3)}
)
CHANGES = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["offset", "group"]),
        "group": st.text(max_size=3),
        "partition": st.none() | st.integers(0, 9),
        "before": OFFSETS,
        "after": OFFSETS,
        "group_before": GROUPS,
        "group_after": GROUPS,
    }
)


@given(st.lists(st.lists(CHANGES, max_size=4), max_size=3))
def test_what_was_narrowed_is_widened_to_what_it_was(chunks: list[list[dict[str, Any]]]) -> None:
    tables = [pa.Table.from_pylist(rows, CHANGES_IN_BATCH) for rows in chunks]
    changes = pa.concat_tables([CHANGES_IN_BATCH.empty_table(), *tables])
    widened = widen(codec.from_bytes(codec.to_bytes(narrow(changes))), CHANGES_IN_BATCH)
    widened.validate(full=True)
    assert widened.schema == CHANGES_IN_BATCH
    assert widened.to_pylist() == changes.to_pylist()


def test_only_what_holds_something_is_sent() -> None:
    rows = [{"kind": "offset", "after": {"committed_offset": 7}}, {"kind": "offset", "after": {}}]
    sent = narrow(pa.Table.from_pylist(rows, CHANGES_IN_BATCH))
    assert sent.column_names == ["kind", "after.", "after.committed_offset"]


@pytest.mark.parametrize("value", [None, {}])
def test_an_absent_value_is_not_a_value_of_nulls(value: dict[str, Any] | None) -> None:
    changes = pa.Table.from_pylist([{"kind": "offset", "after": value}], CHANGES_IN_BATCH)
    [found] = widen(narrow(changes), CHANGES_IN_BATCH)["after"].to_pylist()
    assert (found is None) == (value is None)


def test_nothing_stays_nothing() -> None:
    assert widen(narrow(QUARANTINE_IN_BATCH.empty_table()), QUARANTINE_IN_BATCH).num_rows == 0
