"""Samples the log ends of committed and assigned topic partitions at intervals, and stores them.

Runs in a thread of its own, takes no lock of the writer, and its failures never end the job.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Self

from streaming.brokers.broker import Broker
from streaming.brokers.facts import TopicState
from streaming.brokers.log_end_reader import DISCARDED_AFTER_MS, ROUND_DISCARDED_AFTER_MS, LogEndReader, Round
from streaming.common.rate_limits import OngoingProblems
from streaming.common.retries import raise_if_ending
from streaming.common.times import HOUR_MS, now_ms
from streaming.job.log_ends.rows import RowMaker
from streaming.model.schemas import TOPIC_DENIED, TOPIC_GONE
from streaming.settings.model import LogEndSettings
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables

_log = logging.getLogger(__name__)

_FORGET_MS: Final = HOUR_MS  # after this, partitions without commits are dropped
_FIRST_PAUSE_S: Final = 5.0  # while there are no commits
# At most 1 % of a core: the pause is 200 times the time of a round, of which librdkafka's threads take half.
_SHARE: Final = 200
_MOST_PAUSE_S: Final = 60.0
_END_LIMIT_S: Final = 15.0
_NAMED: Final = 3
_SLOW_ROUNDS: Final = 3  # fewer in a row may be chance


class SampledPartitions:
    """The topic partitions with committed offsets or members, and the subscribed topics, from the tables.
    Assigned partitions of which the log only has the topic id are in `by_id`.

    All are read at intervals; between, only new commits are added, which costs little.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._read_at: float | None = None
        self._sequence = -1
        self.partitions: dict[str, set[int]] = {}
        self.by_id: dict[str, set[int]] = {}
        self.names: set[str] = set()

    def with_named(self, topics: Mapping[str, TopicState]) -> Mapping[str, Collection[int]]:
        """Return the partitions by topic, including those in `by_id` whose topic was seen."""
        ids = {state.topic_id: topic for topic, state in topics.items() if state.topic_id in self.by_id}
        if not ids:
            return self.partitions
        more = {topic: self.partitions.get(topic, set()) | self.by_id[str(of)] for of, topic in ids.items()}
        return {**self.partitions, **more}

    def forget(self) -> None:
        """Read everything at the next update: some partitions may have no commits any more."""
        self._read_at = None

    def update(self) -> None:
        now = time.monotonic()
        if self._read_at is None or now - self._read_at >= _FORGET_MS / 1_000:
            self.partitions, self.by_id, self.names = {}, {}, set()
            self._tables.ask(self._add)
            self._read_at = now
            return
        if self._tables.progress().sequence != self._sequence:
            self._tables.ask(lambda at: self._add(at, after=self._sequence))

    def _add(self, at: Snapshot, after: int | None = None) -> None:
        found: dict[str, set[int]] = defaultdict(set)
        committed = at.committed_partitions(after=after)
        for topic, number in zip(*(column.to_pylist() for column in committed.columns), strict=True):
            found[topic].add(number)
        for topic, topic_id, number in zip(
            *(column.to_pylist() for column in at.assigned_partitions(after=after).columns), strict=True
        ):
            if topic is not None:
                found[topic].add(number)
            elif topic_id is not None:
                self.by_id.setdefault(topic_id, set()).add(number)
        names = {name for name in at.subscribed_topics(after=after)["topic"].to_pylist() if name is not None}
        for topic, numbers in found.items():
            self.partitions.setdefault(topic, set()).update(numbers)
        self.names |= names
        self._sequence = at.progress.sequence


class LogEndSampler(threading.Thread):
    """Takes samples at an interval within a `with` block."""

    def __init__(
        self,
        tables: Tables,
        broker: Broker,
        log_ends: LogEndSettings,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        super().__init__(name="offsetlake-log-ends", daemon=True)
        self._tables = tables
        self._sampled = SampledPartitions(tables)
        self._reader = LogEndReader(broker, clock)
        self._row_maker = RowMaker()
        self._every_s = log_ends.every_ms / 1_000
        self._problems = OngoingProblems(_log)
        self._seen: Mapping[str, TopicState] = {}
        self._gone: set[str] = set()
        self._slow_rounds = 0
        self._done = threading.Event()
        self._turn = threading.Lock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End after the current round, within a bounded time."""
        self._done.set()
        self.join(_END_LIMIT_S)

    def run(self) -> None:
        """Sample at once, then at the interval, until the end; less often if rounds take more than a
        hundredth of a core. Missed rounds are not made up for."""
        due = time.monotonic()
        while not self._done.wait(max(0.0, due - time.monotonic())):
            begun = time.thread_time()
            self.sample()
            pause_s = self._every_s if self._sampled.partitions else min(self._every_s, _FIRST_PAUSE_S)
            pause_s = max(pause_s, min(_MOST_PAUSE_S, _SHARE * (time.thread_time() - begun)))
            due = max(due + pause_s, time.monotonic())

    def sample(self) -> bool:
        """Run one round; return whether its samples are kept, or there was nothing to sample."""
        with self._turn:
            try:
                is_kept = self._round()
            except BaseException as error:  # the job continues after any error
                raise_if_ending(error)
                self._problems.make(
                    "", f"sampling log ends failed, retrying: {type(error).__name__}: {error}"
                )
                return False
            if is_kept:
                self._problems.settle("", "log ends are sampled again")
            return is_kept

    def _round(self) -> bool:
        self._sampled.update()
        if not self._sampled.partitions and not self._sampled.names:
            return True
        answer = self._reader.read(self._sampled.with_named(self._seen), self._sampled.names)
        self._report_slow(is_slow=answer is None)
        if answer is None:
            return False
        self._seen = answer.topics
        rows = self._row_maker.rows(answer)
        if len(rows):
            self._tables.append_log_ends(rows)
        self._row_maker.written()
        self._report(answer)
        return True

    def _report_slow(self, *, is_slow: bool) -> None:
        """Say once when several rounds in a row were in vain, and once that one was quick enough."""
        self._slow_rounds = self._slow_rounds + 1 if is_slow else 0
        if self._slow_rounds >= _SLOW_ROUNDS:
            self._problems.make(
                "slow",
                f"log ends: expected answers within {DISCARDED_AFTER_MS // 1_000} s, in all of a round "
                f"within {ROUND_DISCARDED_AFTER_MS // 1_000} s, found {_SLOW_ROUNDS} rounds in a row that "
                "took longer, or during which the clock was set: they are not kept, so that lag is not "
                "known. Check the load of this machine and of the brokers. Retrying.",
            )
        elif not is_slow:
            self._problems.settle("slow", "log ends: rounds are quick enough again.")

    def _report(self, answer: Round) -> None:
        """Say once what could not be answered, and once that it can be."""
        committed = self._sampled.partitions.keys()
        states = {topic: state.error for topic, state in answer.topics.items() if topic in committed}
        gone = {topic for topic, error in states.items() if error == TOPIC_GONE}
        if gone - self._gone:
            self._sampled.forget()  # the coordinator deletes the offsets of a deleted topic
        still_gone, self._gone = gone & self._gone, gone
        denied = [topic for topic, error in states.items() if error not in (None, TOPIC_GONE)]
        silent = {topic for (topic, _), end in answer.ends.items() if isinstance(end, str)}
        self._warn_of(
            TOPIC_GONE,
            still_gone,
            "the brokers have no {}, although there are committed offsets of it",
            "the brokers have all topics with committed offsets",
        )
        self._warn_of(
            TOPIC_DENIED,
            denied,
            "this user may not describe {}, so that lag is not known. Grant Describe on topics",
            "all topics with committed offsets may be described",
        )
        self._warn_of(
            "silent",
            silent,
            "no answer from leaders of partitions of {}, so that lag is not known. Retrying",
            "the leaders of all partitions answer again",
        )

    def _warn_of(self, about: str, topics: Collection[str], sentence: str, over: str) -> None:
        if topics:
            self._problems.make(about, f"log ends: {sentence.format(_named(topics))}.")
        else:
            self._problems.settle(about, f"log ends: {over}.")


def _named(topics: Iterable[str]) -> str:
    names = sorted(topics)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{'topic' if len(names) == 1 else 'topics'} {', '.join(names[:_NAMED])}{more}"
