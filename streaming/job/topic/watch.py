"""Watches the topic itself: is it still the one that was read, and is reading on enough?

Two questions are answered here. One is put before each reading and every now and then: what is the topic like
now? The other is put before each batch is appended: has so much time passed since everything was last known
to be read that tombstones may have been missed? A job that was suspended, or whose brokers were away, reads
its backlog within seconds; afterwards nothing is left to see.
"""

from collections.abc import Callable, Mapping

from streaming.brokers.broker import QUICK_TIMEOUT_S, REQUEST_TIMEOUT_S, Broker
from streaming.brokers.facts import DEFAULT_DELETE_RETENTION_MS, BrokerError, LogRange
from streaming.common.times import now_ms
from streaming.job.topic.reasons import TopicNow, missed_tombstones, reason_to_rebuild
from streaming.model.progress import Progress


class TopicWatch:
    """Asks about one topic. For the thread of the batches and one other.

    Where everything is known to have been read `pause_ms` ago, a batch is appended without asking them.
    """

    def __init__(
        self, broker: Broker, topic: str, *, pause_ms: int, clock: Callable[[], int] = now_ms
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._pause_ms = pause_ms
        self._clock = clock
        self._kept_ms = DEFAULT_DELETE_RETENTION_MS
        self._kept_as_of: int | None = None

    @property
    def tombstones_kept_ms(self) -> int:
        """For how long the topic keeps a tombstone, as last told."""
        return self._kept_ms

    def now(self, timeout_s: float = REQUEST_TIMEOUT_S) -> TopicNow | None:
        """Return what the topic is like; None if it is not there, or may not be seen.

        Raises `BrokerError` unless every question is answered in time, for every partition.
        """
        asked_at = self._clock()  # before the answers: a process may be suspended between the two
        facts = self._broker.topic_facts(timeout_s)
        if facts is None:
            return None
        ends = self._broker.ends(facts.partition_count, timeout_s)
        starts = self._broker.starts(facts.partition_count, timeout_s)
        silent = set(range(facts.partition_count)) - (ends.keys() & starts.keys())
        if silent:
            raise self._broker.silence_of(silent)
        self._kept_ms, self._kept_as_of = self._broker.delete_retention_ms(timeout_s), asked_at
        return TopicNow(
            cluster_id=facts.cluster_id,
            partition_count=facts.partition_count,
            topic_id=facts.topic_id,
            ends=ends,
            ranges={number: LogRange(starts[number], end.high_watermark) for number, end in ends.items()},
            delete_retention_ms=self._kept_ms,
            now=asked_at,
        )

    def reason_to_rebuild(self, progress: Progress) -> str | None:
        """Say why reading on is not enough; None if it is, or if not everything is answered quickly."""
        try:
            topic = self.now(QUICK_TIMEOUT_S)
        except BrokerError:
            return None  # heartbeats tell of that
        return None if topic is None else reason_to_rebuild(progress, topic)

    def missed(self, progress: Progress, positions: Mapping[int, int]) -> str | None:
        """Say why a batch that has just been read, from a progress up to these positions, may lack
        tombstones; None if it cannot. Raises `BrokerError` where that depends on brokers that are silent."""
        now = self._clock()  # after the batch was read
        short = min(self._pause_ms, self._kept_ms)
        if missed_tombstones(progress, positions, delete_retention_ms=short, now=now) is None:
            return None
        kept = self._tombstones_kept_ms(now)
        return missed_tombstones(progress, positions, delete_retention_ms=kept, now=now)

    def _tombstones_kept_ms(self, now: int) -> int:
        """Return for how long tombstones were kept; asked again after a pause, as it may have been changed.

        Of two values the smaller one: no one knows which was in force when.
        """
        if self._kept_as_of is None or not 0 <= now - self._kept_as_of <= self._pause_ms:
            self._kept_ms = min(self._kept_ms, self._broker.delete_retention_ms())
            self._kept_as_of = now
        return self._kept_ms
