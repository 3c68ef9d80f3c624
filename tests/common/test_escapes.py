"""Text from outside is shown and never acts; JSON says the same with printable characters alone."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.common.escapes import calling_nobody, json_text, shown, shown_lines

TEXTS = st.text() | st.text(alphabet="\x00\x1b\x7f\x9b\n\r\u2028\u202e\ufffd\ud800\U000e0001'\"\\é🐢a")


@settings(deadline=None)
@given(TEXTS)
def test_everything_that_is_shown_is_printable(text: str) -> None:
    assert shown(text).isprintable()
    assert shown_lines(text).replace("\n", "").isprintable()
    assert shown_lines(text).count("\n") == text.count("\n")


@settings(deadline=None)
@given(TEXTS)
def test_json_is_printable_and_says_the_same(text: str) -> None:
    written = json_text({text: [text]})
    assert written.isprintable()
    assert json.loads(written) == {text: [text]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\x1b[2J", r"a\x1b[2J"),
        ("\x9b2J", r"\x9b2J"),
        ("two\nlines", r"two\nlines"),
        ("\u202eright", r"\u202eright"),
        ("\ud800", r"\ud800"),
        ("grüße 🐢 \ufffd", "grüße 🐢 \ufffd"),
        ("", ""),
    ],
)
def test_shown(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_a_name_is_no_link_in_a_chat() -> None:
    """As in the Markdown of Teams, Mattermost and Discord."""
    assert calling_nobody("[fix it](https://evil.example) ![](x) a[0] (b)") == (
        "[fix it]\\u0028https://evil.example) ![]\\u0028x) a[0] (b)"
    )
