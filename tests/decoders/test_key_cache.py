"""A memory makes things once, within its bounds."""

from decoders.rows.key_cache import Memory


class Maker:
    """Counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[bytes | None] = []

    def __call__(self, thing: bytes | None) -> str:
        self.asked.append(thing)
        return repr(thing)


def test_short_things_are_made_once() -> None:
    make = Maker()
    memory = Memory(make, room=2, longest=3)
    assert [memory[b"abc"], memory[b"abc"]] == ["b'abc'"] * 2
    assert make.asked == [b"abc"]


def test_long_things_and_none_are_made_every_time() -> None:
    make = Maker()
    memory = Memory(make, room=2, longest=3)
    assert [memory[thing] for thing in (b"abcd", None) * 2] == ["b'abcd'", "None"] * 2
    assert make.asked == [b"abcd", None] * 2
    assert not memory


def test_full_memory_forgets_everything_before_it_takes_more() -> None:
    memory = Memory(Maker(), room=2, longest=3)
    sizes = []
    for thing in (b"a", b"b", b"c"):
        assert memory[thing] == repr(thing)
        sizes.append(len(memory))
    assert sizes == [1, 2, 1]
