"""Names in cells: none can be taken for another."""

from page_world import HOSTILE

from streaming.serve.page.cells import name_text


def test_no_two_names_look_alike_not_even_one_that_looks_as_another_is_shown() -> None:
    names = [*HOSTILE, *map(name_text, HOSTILE), *map(name_text, map(name_text, HOSTILE))]
    assert len(set(map(name_text, names))) == len(set(names))
    assert max(map(len, map(name_text, names))) < 200
    assert all(name_text(name).isprintable() for name in names)
    assert name_text("billing-2 #1") == "billing-2 #1"
