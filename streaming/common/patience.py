"""Says what is wrong when it begins and when it is over, and nothing while it lasts."""

from collections.abc import Callable


class Complaints:
    """Remembers what is wrong at present, by what it is about."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._made: dict[str, str] = {}

    def make(self, about: str, sentence: str) -> None:
        """Say the sentence, unless something is known to be wrong about this already."""
        if about not in self._made:
            self._say(sentence)
        self._made[about] = sentence

    def settle(self, about: str, sentence: str) -> None:
        """Say the sentence, if something was wrong about this."""
        if self._made.pop(about, None) is not None:
            self._say(sentence)
