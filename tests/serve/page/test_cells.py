"""Cells: no name can be taken for another, and moments are in words."""

from page_world import HOSTILE

from streaming.expiry import rules as expiry
from streaming.serve.page.cells import ago, mark, name, name_text, sentence, term, terms
from streaming.serve.page.notes import MEANINGS, RULES


def test_no_two_names_look_alike_not_even_one_that_looks_as_another_is_shown() -> None:
    names = [*HOSTILE, *map(name_text, HOSTILE), *map(name_text, map(name_text, HOSTILE))]
    assert len(set(map(name_text, names))) == len(set(names))
    assert max(map(len, map(name_text, names))) < 200
    assert all(name_text(name).isprintable() for name in names)
    assert name_text("billing-2 #1") == "billing-2 #1"


def test_a_very_long_sentence_is_shortened_in_its_middle() -> None:
    assert str(sentence("a\nb")) == '<span class="sentence">a\nb</span>'
    long = str(sentence("<" * 32_767 + "end"))
    assert len(long) < 10_000
    assert "(32,770 characters)" in long
    assert "end" in long
    assert "<<" not in long


def test_every_rule_of_expiry_has_a_meaning() -> None:
    assert set(RULES) == {rule.name for rule in expiry.RULES}


def test_only_words_that_cells_write_as_such_are_explained() -> None:
    spoofed = name('<span class="term rule" title="">simple</span>')
    assert terms([spoofed, "explicit", mark("not complete"), term("share")]) == [
        ("not complete", MEANINGS["not complete"]),
        ("share", MEANINGS["share"]),
    ]


def test_a_heartbeat_that_came_while_the_page_was_made_is_of_now() -> None:
    def shown(at: int) -> str:
        return ago(at, 1_000_000).striptags()

    assert [shown(at) for at in (990_000, 1_000_000, 1_000_001, 1_000_999, 1_001_000)] == [
        "10 s ago",
        "0 s ago",
        "now",
        "now",
        "in 1 s",
    ]
