"""Groups are assigned to offsets partitions as Kafka's brokers assign them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from group_replay import GroupReplay, start_group_replay
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.common.partitions import java_hashes, offsets_partition, offsets_partitions


@pytest.fixture(scope="module")
def kafka(java_jars: Path) -> Iterator[GroupReplay]:
    """Kafka's own computation, in one Java process for this module."""
    with start_group_replay(java_jars) as oracle:
        yield oracle


def plain_hash(text: str) -> int:
    """Java's `String.hashCode` as its documentation defines it, one code unit at a time."""
    encoded = text.encode("utf-16-be")
    value = 0
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    return value - 2**32 if value >= 2**31 else value


# "polygenelubricants" is known for having the lowest hash that there is.
@pytest.mark.parametrize(
    ("group", "hashed", "partition"),
    [
        ("g", 103, 3),
        ("é", 233, 33),
        ("😀", 1_772_899, 49),
        ("polygenelubricants", -(2**31), 0),
        ("", 0, 0),
    ],
)
def test_known_groups_have_their_known_partitions(group: str, hashed: int, partition: int) -> None:
    assert java_hashes(pa.array([group])).tolist() == [hashed]
    assert offsets_partitions(pa.array([group]), 50).tolist() == [partition]
    assert offsets_partition(group, 50) == partition


@settings(deadline=None)
@given(names=st.lists(st.text(max_size=20) | st.text("aé☃😀", min_size=40, max_size=90)))
def test_hashes_equal_the_definition(names: list[str]) -> None:
    assert java_hashes(pa.array(names, pa.string())).tolist() == [plain_hash(name) for name in names]


@given(name=st.text() | st.text("z😀\0\uffff", min_size=40), count=st.integers(1, 2**31 - 1))
def test_the_partition_of_one_group_is_that_among_many(name: str, count: int) -> None:
    assert offsets_partition(name, count) == offsets_partitions(pa.array([name]), count)[0]


@pytest.mark.broker
def test_partitions_equal_those_of_java(kafka: GroupReplay) -> None:
    @settings(deadline=None)  # an answer takes as long as Java lets it
    @given(names=st.lists(st.text(max_size=40), min_size=1), count=st.integers(1, 2**31 - 1))
    def agree(names: list[str], count: int) -> None:
        assert offsets_partitions(pa.array(names), count).tolist() == kafka.partitions(names, count)

    agree()
    odd = [
        "",
        "polygenelubricants",
        "\0",
        "\ud7ff\ue000",
        "\uffff",
        "😀" * 16_384,
        "é" * 32_767,
        "x" * 32_767,
    ]
    for count in (1, 3, 50, 2**31 - 1):
        assert offsets_partitions(pa.array(odd), count).tolist() == kafka.partitions(odd, count)


def test_any_layout_of_the_column_gives_the_same() -> None:
    names = ["a", "bb", "a", "ü", "", "bb"]
    expected = offsets_partitions(pa.array(names), 50).tolist()
    padded = pa.array(["?", "😀", *names, "?"]).slice(2, len(names))
    layouts = [
        padded,
        padded.cast(pa.large_string()),
        pa.chunked_array([names[:2], names[2:2], names[2:]], pa.string()),
        pa.chunked_array([], pa.string()),
        pa.array([], pa.string()),
        pa.array(names).slice(6),
    ]
    found = [offsets_partitions(layout, 50).tolist() for layout in layouts]
    assert found == [expected] * 3 + [[]] * 3
    assert java_hashes(padded).tolist() == [plain_hash(name) for name in names]


def test_a_null_or_no_partitions_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="expected no null, found 1"):
        offsets_partitions(pa.array(["g", None]), 50)
    with pytest.raises(ValueError, match="expected at least 1, found 0"):
        offsets_partitions(pa.array(["g"]), 0)


def test_a_hundred_thousand_groups_take_a_moment() -> None:
    names = pa.array([f"team-{number % 97}-service-{number:06d}" for number in range(100_000)])
    offsets_partitions(names[:10], 50)
    took = min(_seconds(names) for _ in range(5))
    assert took < 0.5, "about 0.05 s on an idle core"


def _seconds(names: pa.Array) -> float:
    start = time.perf_counter()
    offsets_partitions(names, 50)
    return time.perf_counter() - start
