"""Values of labels: any name that Kafka takes can be scraped, and two names stay two."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from metrics_read import read

from streaming.serve.metrics.catalogue import BY_NAME
from streaming.serve.metrics.exposition import Format, written
from streaming.serve.metrics.labels import MOST_BYTES, is_label_name, label_values
from streaming.serve.metrics.series import Family, Head, Label, Series, lines_of

NAMES = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.sampled_from(["", "\0", "g\0", "\r\n", '"', "\\", "\\n", "x" * 256, "x" * 257, "ü" * 128, "ü" * 129]),
    st.text(st.sampled_from('\\"\n\r\0n~0a'), max_size=8),
    st.builds("{}~{}".format, st.text(max_size=3), st.from_regex("[0-9a-f]{16}", fullmatch=True)),
)


def scraped(names: list[str], style: Format) -> list[str]:
    metric = BY_NAME["group_members"]
    label = Label(label_values(pa.array(names, pa.string())), np.arange(len(names)))
    series = Series(metric, {"group": label}, np.arange(len(names)))
    head = Head(name=metric.full_name, kind="gauge", help="", unit="", labels={"group": "group"})
    data = b"".join(written([Family(head, lines_of(head, [series]))], style))
    values = {
        int(value): dict(labels)["group"] for labels, value in read(data, style)[metric.full_name].items()
    }
    return [values[number] for number in range(len(names))]


@pytest.mark.parametrize("style", ["text", "openmetrics"])
@given(names=st.lists(NAMES, unique=True, min_size=1, max_size=8))
@example(names=["x" * 300 + "a", "x" * 300 + "b", "a\0", "a", "a\N{SYMBOL FOR NULL}"])
@example(names=["g" * 32_767, "g" * 32_766])
def test_names_are_read_back_as_they_are_or_with_a_hash(names: list[str], style: Format) -> None:
    found = scraped(names, style)
    assert len(set(found)) == len(names)
    for name, value in zip(names, found, strict=True):
        assert len(value.encode()) <= MOST_BYTES
        assert "\0" not in value
        if value != name:
            assert value[-17] == "~"


def test_a_name_that_looks_like_one_with_a_hash_has_one_too() -> None:
    [cut] = scraped(["x" * 300], "text")
    assert len(set(scraped(["x" * 300, cut], "text"))) == 2


def test_all_of_a_slice_are_written() -> None:
    names = pa.array(["a", 'say "hi"', "b\0", "c"]).slice(1)
    assert label_values(names).to_pylist()[0] == 'say \\"hi\\"'
    assert len(label_values(names)) == 3


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("env", True), ("_x9", True), ("9x", False), ("a-b", False), ("__name__", False), ("", False)],
)
def test_names_of_labels(name: str, is_one: bool) -> None:
    assert is_label_name(name) == is_one
