"""Watches the topic: is it unchanged, and is reading on enough?

There are two checks. Before each reading and at intervals: has the topic changed? Before
each batch is appended: has so much time passed since everything was last known to be read that tombstones may
have been missed? A job that was suspended, or whose brokers were away, reads its backlog within seconds;
afterwards the gap is invisible.
"""

from collections.abc import Callable, Mapping

from streaming.brokers.broker import QUICK_TIMEOUT_S, REQUEST_TIMEOUT_S, Broker
from streaming.brokers.facts import DEFAULT_DELETE_RETENTION_MS, BrokerError, LogRange
from streaming.common.times import now_ms
from streaming.job.topic.clock_pace import ClockPace
from streaming.job.topic.reasons import TopicNow, missed_tombstones, reason_to_rebuild
from streaming.model.progress import Progress


class TopicWatch:
    """Requests about one topic, for the thread of the batches and one other thread.

    If everything is known to have been read `pause_ms` ago, a batch is appended without a request.
    """

    def __init__(
        self,
        broker: Broker,
        topic: str,
        *,
        pause_ms: int,
        clock: Callable[[], int] = now_ms,
        pace: ClockPace | None = None,
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._pause_ms = pause_ms
        self._clock = clock
        self._pace = pace or ClockPace(clock)
        self._kept_ms = DEFAULT_DELETE_RETENTION_MS
        self._kept_as_of: int | None = None

    @property
    def tombstones_kept_ms(self) -> int:
        """The topic's minimum retention of tombstones, as of the last answer."""
        return self._kept_ms

    def now(self, timeout_s: float = REQUEST_TIMEOUT_S) -> TopicNow | None:
        """Return the state of the topic; None if it does not exist, or this user may not see it.

        Raises `BrokerError` unless all requests are answered in time, for every partition.
        """
        topic = self._answered(timeout_s)
        silent = set(range(topic.partition_count)) - topic.ranges.keys() if topic else set[int]()
        if silent:
            raise self._broker.silence_of(silent)
        return topic

    def _answered(self, timeout_s: float) -> TopicNow | None:
        """As `now`, but without the partitions whose leaders do not answer."""
        asked_at = self._clock()  # before the answers: the process may be suspended meanwhile
        facts = self._broker.topic_facts(timeout_s)
        if facts is None:
            return None
        ends = self._broker.ends(facts.partition_count, timeout_s)
        starts = self._broker.starts(facts.partition_count, timeout_s)
        self._kept_ms, self._kept_as_of = self._broker.delete_retention_ms(timeout_s), asked_at
        return TopicNow(
            cluster_id=facts.cluster_id,
            partition_count=facts.partition_count,
            topic_id=facts.topic_id,
            ends=ends,
            ranges={
                number: LogRange(starts[number], end.high_watermark)
                for number, end in ends.items()
                if number in starts
            },
            delete_retention_ms=self._kept_ms,
            now=asked_at,
        )

    def reason_to_rebuild(self, progress: Progress) -> str | None:
        """Return why reading on is not enough; None if it is, or if brokers do not answer quickly. What is
        known without the leader of some partition counts: it may be away for days."""
        try:
            topic = self._answered(QUICK_TIMEOUT_S)
        except BrokerError:
            return None  # heartbeats report that
        return None if topic is None else reason_to_rebuild(progress, topic)

    def reason_of_clock(self) -> str | None:
        """Return why tombstones may have been missed if the clock has jumped since the last call, else None.

        The next call does not return the reason again: the caller must commit it, or act on it.
        """
        jumped_ms = self._pace.jumped_ms()
        if jumped_ms <= self._kept_ms:
            return None
        return (
            f"the clock of this machine jumped forward by {jumped_ms // 1_000} s, which is longer than "
            "tombstones are retained: if the machine was suspended and its clock stood still, some may have "
            "been missed"
        )

    def missed(self, progress: Progress, positions: Mapping[int, int]) -> str | None:
        """Return why a batch just read, from a progress up to these positions, may lack tombstones; None if
        it cannot. Raises `BrokerError` if that depends on silent brokers."""
        now = self._clock()  # after the batch was read
        short = min(self._pause_ms, self._kept_ms)
        if missed_tombstones(progress, positions, delete_retention_ms=short, now=now) is None:
            return None
        kept = self._tombstones_kept_ms(now)
        return missed_tombstones(progress, positions, delete_retention_ms=kept, now=now)

    def _tombstones_kept_ms(self, now: int) -> int:
        """Return the retention of tombstones; requested again after a pause, since it may have changed.

        Of two values the smaller: it is unknown when the change took effect.
        """
        if self._kept_as_of is None or not 0 <= now - self._kept_as_of <= self._pause_ms:
            self._kept_ms = min(self._kept_ms, self._broker.delete_retention_ms())
            self._kept_as_of = now
        return self._kept_ms
