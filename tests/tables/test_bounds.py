"""Bounds of texts are true and short: no text lies outside, whatever its length and characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.tables.bounds import LONGEST_BOUND, greatest_bound, least_bound

LAST = "\U0010ffff"
ENDS = st.sampled_from(["a", "\0", "\x7f", "é", "\ud7ff", "\ue000", "\uffff", "\U00010000", "𠮷", LAST])
TEXTS = st.lists(st.tuples(ENDS, st.sampled_from([1, 2, 31, 254, 255, 256, 257, 300])), max_size=4).map(
    lambda pieces: "".join(text * times for text, times in pieces)
)


@given(TEXTS)
def test_no_text_lies_outside_of_its_bounds(text: str) -> None:
    least, greatest = least_bound(text), greatest_bound(text)
    assert least.encode() <= text.encode() <= greatest.encode()
    assert len(least) <= LONGEST_BOUND
    assert len(greatest) <= LONGEST_BOUND or text.startswith(LAST * LONGEST_BOUND)


@given(TEXTS, TEXTS)
def test_bounds_have_the_order_of_their_texts(one: str, other: str) -> None:
    low, high = sorted([one, other])
    assert least_bound(low) <= least_bound(high)
    assert greatest_bound(low) <= greatest_bound(high)


@pytest.mark.parametrize(
    ("text", "greatest"),
    [
        ("", ""),
        ("b" * 256, "b" * 256),
        ("b" * 257, "b" * 255 + "c"),
        ("\ud7ff" * 257, "\ud7ff" * 255 + "\ue000"),  # no surrogates: they are no characters
        ("\uffff" * 257, "\uffff" * 255 + "\U00010000"),
        ("b" * 255 + LAST * 2, "b" * 254 + "c"),
        (LAST * 256, LAST * 256),
        (LAST * 257, LAST * 257),  # no shorter text comes after it, and without a bound the file is not found
    ],
)
def test_the_greatest_bound_is_the_text_or_comes_after_it(text: str, greatest: str) -> None:
    assert greatest_bound(text) == greatest
