"""A key cache makes things once, within its bounds."""

from decoders.rows.key_cache import KeyCache


class Maker:
    """Counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[bytes | None] = []

    def __call__(self, key: bytes | None) -> str:
        self.asked.append(key)
        return repr(key)


def test_what_is_made_of_short_keys_is_made_once() -> None:
    make = Maker()
    cache = KeyCache(make, most_keys=2, longest=3)
    assert [cache[b"abc"], cache[b"abc"]] == ["b'abc'"] * 2
    assert make.asked == [b"abc"]


def test_what_is_made_of_long_keys_and_none_is_made_every_time() -> None:
    make = Maker()
    cache = KeyCache(make, most_keys=2, longest=3)
    assert [cache[key] for key in (b"abcd", None) * 2] == ["b'abcd'", "None"] * 2
    assert make.asked == [b"abcd", None] * 2
    assert not cache


def test_full_cache_is_emptied_before_it_takes_more() -> None:
    cache = KeyCache(Maker(), most_keys=2, longest=3)
    sizes = []
    for key in (b"a", b"b", b"c"):
        assert cache[key] == repr(key)
        sizes.append(len(cache))
    assert sizes == [1, 2, 1]
