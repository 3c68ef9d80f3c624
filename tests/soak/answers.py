"""What answers must be, as each names the snapshot that it is from (pure).

A client asks one thing, and then for the configs of broker 1, which name the batch that was read last
(`asker`). A value tells in which batches it was the newest (`numbered`). All values of an answer must be
of one batch: not before the one that the same client named before it, and not after the one that it names
now.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from streaming.common.times import iso
from tests.soak.numbered import FIRST_END, KEPT, OFFSETS, PARTITIONS, Numbered

DENIED: Final = "denied"
HIDDEN: Final = "b-"
"""The groups that a principal with few rights does not see."""


class Values(NamedTuple):
    """How many values an answer had for a name, the least and the largest."""

    number: int
    low: int
    high: int


class Span(NamedTuple):
    """The batches that an answer may be from, both included."""

    first: int
    last: int

    def both(self, other: "Span") -> "Span":
        return Span(max(self.first, other.first), min(self.last, other.last))


class DifferenceError(Exception):
    """An answer is not of the snapshot that it names."""


@dataclass(frozen=True)
class Reply:
    """A line of an asker: the times of the configs, and the values by name (None: access denied)."""

    read_until: str
    sampled_at: str
    values: Mapping[str, Values | None]

    @classmethod
    def read(cls, words: Sequence[str]) -> "Reply":
        pairs = [word.split("=") for word in words[2:]]
        return cls(words[0], words[1], {name: _values(text) for name, text in pairs})


def _values(text: str) -> Values | None:
    return None if text == DENIED else Values(*map(int, text.split(":")))


@dataclass(frozen=True)
class Ask:
    """What is asked: `offsets`, `members` or `ends` of names, or `groups`."""

    kind: str
    names: Sequence[str] = ()

    @property
    def words(self) -> str:
        return " ".join([self.kind, *self.names])


@dataclass
class Named:
    """The batch and the sample that a client has named last."""

    batch: int = 0
    sample: int = 0


@dataclass
class Judge:
    """Knows the batches, by the times that they were given (ms)."""

    numbered: Numbered
    times: dict[int, int] = field(default_factory=dict)
    _named: dict[str, int] = field(default_factory=dict)

    def note(self, batch: int, at: int) -> None:
        """Take note of a batch that is about to be written."""
        self.times[batch], self._named[iso(at)] = at, batch

    def named(self, reply: Reply, before: Named) -> Named:
        """Return the batch and the sample that a reply names; raises `DifferenceError` if these are none, or
        older than what the same client named before."""
        for time in (reply.read_until, reply.sampled_at):
            if time not in self._named:
                raise DifferenceError(f"expected the time of a batch, found {time}")
        now = Named(self._named[reply.read_until], self._named[reply.sampled_at])
        if now.batch < before.batch or now.sample < before.sample:
            raise DifferenceError(f"named {now} after {before}")
        return now

    def check(self, ask: Ask, reply: Reply, before: Named, *, sees_all: bool) -> Named:
        """Return what a reply names; raises `DifferenceError` if its values are of another snapshot."""
        now = self.named(reply, before)
        if set(ask.names or ("groups", "new")) != set(reply.values):
            raise DifferenceError(f"asked for {ask.names}, found {sorted(reply.values)}")
        allowed = Span(before.sample, now.sample) if ask.kind == "ends" else Span(before.batch, now.batch)
        span = allowed
        for name, values in reply.values.items():
            hidden = not sees_all and name.startswith(HIDDEN)
            if hidden != (values is None):
                raise DifferenceError(
                    f"{name}: expected {'no access' if hidden else 'access'}, found {values}"
                )
            if values is not None:
                span = span.both(self._span(ask.kind, name, values, before.batch, sees_all=sees_all))
        if span.first > span.last:
            raise DifferenceError(f"{ask.words}: expected one of {allowed}, found {dict(reply.values)}")
        return now

    def age_s(self, batch: int, now: float) -> float:
        """Return for how long (s) there has been a newer batch than this one."""
        newer = self.times.get(batch + 1)
        return 0.0 if newer is None else max(0.0, now - newer / 1_000)

    def _span(self, kind: str, name: str, values: Values, since: int, *, sees_all: bool) -> Span:
        """Return the batches in which these were the newest values of a name."""
        if kind == "groups":
            return self._span_of_groups(name, values, sees_all=sees_all)
        if kind == "ends":
            _expect(name, values, Values(PARTITIONS, values.low, values.low))
            return Span(values.low - FIRST_END, values.low - FIRST_END)
        is_new = name.startswith("new-")
        if is_new and not values.number:  # not there yet, or not any more
            number = int(name[4:])
            return Span(0, number - 1) if number > since else Span(number + KEPT, 2**63)
        _expect(name, values, Values(OFFSETS if kind == "offsets" else 1, values.low, values.low))
        if is_new:
            _expect(name, values, values._replace(low=int(name[4:]), high=int(name[4:])))
            return Span(values.low, values.low + KEPT - 1)
        if (values.low - self.numbered.number(name)) % self.numbered.cycle:
            raise DifferenceError(f"{name}: never was {values.low}")
        return Span(values.low, values.low + self.numbered.cycle - 1)

    def _span_of_groups(self, name: str, values: Values, *, sees_all: bool) -> Span:
        if name == "groups":
            every = self.numbered.groups
            _expect(name, values, Values(every if sees_all else every // 2, 0, 0))
            return Span(0, 2**63)
        _expect(name, values, Values(KEPT, values.high - KEPT + 1, values.high))
        return Span(values.high, values.high)


def _expect(name: str, found: Values, expected: Values) -> None:
    if found != expected:
        raise DifferenceError(f"{name}: expected {expected}, found {found}")
