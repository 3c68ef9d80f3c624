"""Tables in layers: the rows are those of a plain table, and the bytes written are in proportion."""

from collections.abc import Iterator
from itertools import count

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.common.arrays import Index
from streaming.state import layers as layers_module
from streaming.state import stored
from streaming.state.encoded import is_in, plain
from streaming.state.layers import LayerChange, Layers
from streaming.state.stored import MIXED, MixedStateError, Values

SCHEMA = pa.schema([("key", pa.int64()), ("payload", pa.binary()), ("name", pa.string())])
Change = tuple[frozenset[int], frozenset[int]]

KEYS = st.frozensets(st.integers(0, 30), max_size=12)
CHANGES = st.lists(st.tuples(KEYS, KEYS), max_size=12)


def to_table(rows: dict[int, bytes]) -> pa.Table:
    return pa.table([list(rows), list(rows.values()), list(map(name_of, rows))], schema=SCHEMA)


def name_of(key: int) -> str | None:
    """A name that other keys have, too."""
    return None if key % 4 == 0 else f"name\0{key % 3}"


def rows_of(table: pa.Table) -> dict[int, bytes]:
    keys = table["key"].to_pylist()
    assert len(keys) == len(set(keys))
    assert plain(table["name"], pa.string()).to_pylist() == list(map(name_of, keys))
    return dict(zip(keys, table["payload"].to_pylist(), strict=True))


def changed(layers: Layers, removed: frozenset[int], added: dict[int, bytes]) -> Layers:
    keys = layers.table["key"].to_pylist()
    stale = [place for place, key in enumerate(keys) if key in removed or key in added]
    return layers.after([LayerChange(np.array(stale, np.int64), to_table(added))])


def rows_with(layers: Layers, keys: pa.Array) -> tuple[pa.Table, Index]:
    def places(rows: pa.Table) -> Index:
        return np.flatnonzero(is_in(rows["key"], keys))

    of_bases = [
        start + np.setdiff1d(places(base), replaced)
        for base, start, replaced in layers.by_base(layers.replaced)
    ]
    return layers.rows(np.concatenate(of_bases), places(layers.recent))


def streams(values: Values) -> list[pa.Buffer]:
    return [base.data for base in values.bases if base.data is not None]


def written_by(before: Values, after: Values) -> int:
    """Bytes of the values that differ."""
    return len(after.recent) + sum(base.size for base in after.bases if base not in before.bases)


def random_payload(batch: int, key: int, size: int = 40) -> bytes:
    return np.random.default_rng((batch, key)).bytes(size)


@pytest.fixture(params=["few rows", "many rows", "second bases"], autouse=True, scope="module")
def kind_of_layers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test holds for recent rows with and without dictionaries, and with and without second bases."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers_module, "MANY_ROWS", 0 if request.param == "many rows" else 1_000_000)
        if request.param == "second bases":
            patch.setattr(stored, "_SECOND_BASE_BYTES", 0)
        yield


@given(start=KEYS, changes=CHANGES)
def test_kept_rows_are_those_of_a_plain_table(start: frozenset[int], changes: list[Change]) -> None:
    expected = {key: random_payload(0, key) for key in start}
    values = Values.of(Layers.of(to_table(expected)))
    for batch, (removed, touched) in enumerate(changes, start=1):
        added = {key: random_payload(batch, key) for key in touched}
        expected = {key: row for key, row in expected.items() if key not in removed} | added
        values = values.updated(changed(values.layers(), removed, added))
        assert rows_of(values.layers().table) == expected
        assert values.layers().table.schema == SCHEMA


def test_rows_left_alone_keep_their_order() -> None:
    layers = Layers.of(to_table(dict.fromkeys(range(6), b"")))
    layers = changed(layers, frozenset({1}), {4: b"new"})
    layers = changed(layers, frozenset({0}), {7: b"newer"})
    assert layers.table["key"].to_pylist() == [2, 3, 5, 4, 7]


@given(start=KEYS, changes=CHANGES, wanted=KEYS)
def test_rows_with_some_values_are_found_in_all_layers(
    start: frozenset[int], changes: list[Change], wanted: frozenset[int]
) -> None:
    layers = Layers.of(to_table(dict.fromkeys(start, b"")))
    for batch, (removed, touched) in enumerate(changes):
        layers = changed(layers, removed, dict.fromkeys(touched, b"new"))
        layers = layers.condensed() if batch % 3 == 1 else layers
    found, numbers = rows_with(layers, pa.array(sorted(wanted), pa.int64()))
    assert set(found["key"].to_pylist()) == wanted & rows_of(layers.table).keys()
    assert found.equals(layers.table.take(numbers))
    assert len(layers) == len(layers.table)


def test_rows_are_found_in_a_base_that_no_one_array_can_hold() -> None:
    """The 1,000 rows with 4 KB each are there 600 times over."""
    chunk = to_table({number: b"%04d" % number * 1024 for number in range(1_000)})
    base = pa.concat_tables([chunk] * 600)
    change = LayerChange(np.array([7, 599_007]), to_table({7: b"new"}))
    layers = Layers((base,), SCHEMA.empty_table()).after([change])
    found, numbers = rows_with(layers, pa.array([7]))
    assert found["payload"].to_pylist() == [b"0007" * 1024] * 598 + [b"new"]
    assert numbers.tolist()[::598] == [1_006, 599_998]


def test_few_changes_of_many_rows_write_little() -> None:
    count, batches, touched = 10_000, 200, 50
    values = Values.of(Layers.of(to_table({key: random_payload(0, key) for key in range(count)})))
    whole, written, bases = values.bases[0].size, 0, 0
    for batch in range(1, batches + 1):
        added = {(batch * touched + key) * 7919 % count: random_payload(batch, key) for key in range(touched)}
        after = values.updated(changed(values.layers(), frozenset(), added))
        if after.bases[0] is not values.bases[0]:
            bases += 1
        written += written_by(values, after)
        values = after
    assert bases > 1
    assert written < 0.2 * batches * whole
    assert written > 0.02 * batches * whole  # far below would mean that nothing was measured


def test_bases_written_in_one_batch_are_not_all_written_again_in_one_batch() -> None:
    """Else one batch would take long, and much memory."""

    def batches_until_written_again(shard: int) -> int:
        values = Values.of(Layers.of(to_table({key: random_payload(shard, key) for key in range(1_000)})))
        for batch in count(1):
            added = {(batch * 10 + key) % 1_000: random_payload(batch, key) for key in range(10)}
            after = values.updated(changed(values.layers(), frozenset(), added))
            if after.bases[0] is not values.bases[0]:
                return batch
            values = after
        raise AssertionError

    assert len(set(map(batches_until_written_again, range(6)))) > 1


def test_nothing_of_the_changes_is_kept_beside_a_new_base() -> None:
    values = Values.of(Layers.of(to_table({1: b"a"})))
    after = values.updated(changed(values.layers(), frozenset(), {1: b"b", 2: b"c"}))
    assert len(after.layers().recent) == len(after.layers().replaced) == 0
    [base] = after.layers().bases
    assert rows_of(base) == {1: b"b", 2: b"c"}


def test_a_base_that_is_not_that_of_the_recent_rows_is_refused() -> None:
    """The same rows in another order, as a batch that is run again may write them."""
    rows = {key: random_payload(0, key) for key in range(100)}
    first, second = (
        Values.of(Layers.of(to_table(dict(some)))) for some in (rows.items(), [*rows.items()][::-1])
    )
    after = second.updated(changed(second.layers(), frozenset(), {7: b"changed"}))
    _, *later = own = streams(after)
    assert after.bases[0] is second.bases[0]
    assert rows_of(Values.read(own, after.recent).layers().table) == rows | {7: b"changed"}
    with pytest.raises(MixedStateError, match=MIXED):
        Values.read([*streams(first), *later], after.recent)
    with pytest.raises(ValueError, match="longer"):
        Values.read(own[:-1], after.recent)
