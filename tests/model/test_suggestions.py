"""What is suggested for a mistyped name."""

import pytest

from streaming.model.suggestions import did_you_mean, nearest


def test_at_most_three_names_are_suggested_the_likeliest_first() -> None:
    names = ["consumer-1", "consumer-2", "consumer-3", "consumer-4", "other", "the-consumers-of-everything"]
    assert nearest("consumer-2x", names)[0] == "consumer-2"
    assert len(nearest("consumer", names)) == 3
    assert nearest("everything", names) == ["the-consumers-of-everything"]
    assert nearest("", names) == nearest("  ", names) == []


def test_suggested_names_are_shown_as_data() -> None:
    assert did_you_mean(["a\x1bb"]) == " Did you mean 'a\\x1bb'?"
    assert did_you_mean(["billing", "[tables]", "b c"]) == " Did you mean billing, [tables] or 'b c'?"
    assert did_you_mean([]) == ""


@pytest.mark.timeout(60)
def test_very_many_names_and_very_long_ones_are_not_all_compared() -> None:
    """Comparing each closely would take minutes."""
    names = [f"consumer-group-{number:07}" for number in range(50_000)] + ["x" * 32_767]
    assert nearest("consumer-grup-0030001", names)[0] == "consumer-group-0030001"
    assert nearest("y" * 32_767, names) == []
