"""Rounds of requests for log starts and ends of topic partitions, with the ids of their topics.

A log end belongs to a topic id for certain only if the topic had it both before and after the log end was
requested. So each round ends with the ids, with which the next one begins. Ids are most of the cost of a
round: with very many topics, a round requests only the ids of new topics, of topics whose log end fell or
failed, and a share of the others.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from streaming.brokers.broker import Broker
from streaming.brokers.facts import TopicState
from streaming.model.schemas import IDS_AT_ONCE

STARTS_EVERY: Final = 10
"""Rounds between requests for log starts: they cost as much as log ends, and move less often."""

IDS_EVERY: Final = 6
"""With more topics than `IDS_AT_ONCE`, the id of each is requested at least once in this many rounds."""

DISCARDED_AFTER_MS: Final = 15_000
"""Log ends that took longer are discarded, since their moment is unknown: requests time out earlier
(`broker.REQUEST_TIMEOUT_S`), so the process was suspended."""

ROUND_DISCARDED_AFTER_MS: Final = 60_000
"""The same for all requests of a round."""

_CLOCKS_APART_MS: Final = 2_000
"""If the time of day moved by this much more or less than the time that passed, the clock was set."""

Partition = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Round:
    """The answers of brokers: the state of topics, and by partition the log end, or Kafka's name of the
    error.

    `sampled_at` (ms) is the moment before log ends were requested. `starts` are log starts, up to
    `STARTS_EVERY` rounds old; `topics` are up to `IDS_EVERY` rounds old, except those `asked` for after the
    log ends. Topics without an answer are left out; so are log ends of topics that changed meanwhile.
    """

    sampled_at: int
    topics: Mapping[str, TopicState]
    asked: Collection[str]
    ends: Mapping[Partition, int | str]
    starts: Mapping[Partition, int]


class LogEndReader:
    """Runs the rounds for the given topics."""

    def __init__(self, broker: Broker, clock: Callable[[], int]) -> None:
        self._broker = broker
        self._clock = clock
        self._known: dict[str, TopicState] = {}  # those requested longest ago first
        self._ends: Mapping[Partition, int | str] = {}
        self._starts: dict[Partition, int] = {}
        self._count = 0

    def read(self, partitions: Mapping[str, Collection[int]], names: Collection[str]) -> Round | None:
        """Request the log ends of partitions, by topic, and the state of these and further topics.

        None: it took so long that the moment of the log ends is unknown. Raises `BrokerError` if the brokers
        do not answer.
        """
        wanted = {*partitions, *names}
        new = [topic for topic in partitions if topic not in self._known]
        before = {**self._known, **self._broker.topics(new)}
        asked = [
            (topic, number)
            for topic, numbers in partitions.items()
            if topic in before
            for number in numbers
            if number in before[topic].partitions
        ]
        watch = _Watch(self._clock)
        ends = self._broker.log_offsets(asked, earliest=False)
        is_quick = watch.is_within(DISCARDED_AFTER_MS)
        started = self._broker.log_offsets(self._to_start(asked), earliest=True)
        chosen = self._to_identify(wanted, before, ends).union(new if self._known else ())
        after = {topic: state for topic, state in before.items() if topic in wanted - chosen}
        after |= self._broker.topics(chosen)
        self._known, self._ends, self._count = after, ends, self._count + 1
        same = {topic for topic in partitions if topic in after and _is_same(before.get(topic), after[topic])}
        self._starts = {
            key: start
            for key, start in {**self._starts, **started}.items()
            if key[0] in same and isinstance(start, int)
        }
        kept = {key: end for key, end in ends.items() if key[0] in same}
        if not is_quick or not watch.is_within(ROUND_DISCARDED_AFTER_MS):
            return None
        return Round(
            sampled_at=watch.began_at,
            topics=after,
            asked=chosen & after.keys(),
            ends=kept,
            starts=self._starts,
        )

    def _to_identify(
        self, wanted: set[str], before: Mapping[str, TopicState], ends: Mapping[Partition, int | str]
    ) -> set[str]:
        """Choose the topics whose ids to request: those that may have changed, and a share of the others."""
        chosen = wanted - before.keys()
        for key, end in ends.items():
            last = self._ends.get(key)
            if isinstance(end, str) or (isinstance(last, int) and end < last):
                chosen.add(key[0])
        due = max(IDS_AT_ONCE, -(-len(wanted) // IDS_EVERY))
        return chosen.union(islice((topic for topic in before if topic in wanted), due))

    def _to_start(self, asked: Collection[Partition]) -> list[Partition]:
        is_due = self._count % STARTS_EVERY == 0
        return [key for key in asked if is_due or key not in self._starts]


class _Watch:
    """Measures durations by two clocks: one may be set, the other may stop."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.began_at = clock()
        self._began = time.monotonic()

    def is_within(self, limit_ms: int) -> bool:
        """Whether no more than this has passed, and both clocks agree."""
        passed_ms = round((time.monotonic() - self._began) * 1_000)
        return passed_ms <= limit_ms and abs(self._clock() - self.began_at - passed_ms) <= _CLOCKS_APART_MS


def _is_same(before: TopicState | None, after: TopicState) -> bool:
    """Whether a topic is unchanged; without ids, brokers only show that the name exists."""
    return before is not None and before.error is after.error is None and before.topic_id == after.topic_id
