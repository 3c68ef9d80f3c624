"""The log start offsets of committed topic partitions, requested from the brokers every few minutes."""

import logging
from collections.abc import Callable, Iterable, Mapping

from streaming.alerts.rules import OFFSET_BELOW_LOG_START
from streaming.common.rate_limits import OngoingProblems
from streaming.lag.log_ranges import LogRange, Partition
from streaming.model.errors import OffsetlakeError

_log = logging.getLogger(__name__)


AskLogRanges = Callable[[Iterable[Partition]], Mapping[Partition, LogRange]]
"""Requests the log ranges of partitions from the brokers; partitions without an answer are left out."""


class LogStarts:
    """Caches the answer of the brokers for `every_ms`."""

    def __init__(self, ask: AskLogRanges | None, every_ms: int) -> None:
        self._ask = ask
        self._every_ms = every_ms
        self._problems = OngoingProblems(_log)
        self._asked_at: int | None = None
        self._starts: Mapping[Partition, int | None] | None = None

    def of(
        self, partitions: Callable[[], list[Partition]], now: int
    ) -> Mapping[Partition, int | None] | None:
        """Return the log start offset of each partition (None: no answer), at `now` (ms). `partitions` is
        called only for a request.

        Return None if there is no broker to ask, or the last request failed, which is reported once.
        """
        if self._ask is not None and (self._asked_at is None or now - self._asked_at >= self._every_ms):
            self._starts, self._asked_at = None, now
            self._starts = self._answered(self._ask, partitions())
        return self._starts

    def _answered(
        self, ask: AskLogRanges, partitions: list[Partition]
    ) -> Mapping[Partition, int | None] | None:
        rule = OFFSET_BELOW_LOG_START.id
        try:
            ranges = ask(partitions)
        except OffsetlakeError as error:
            self._problems.make(rule, f"alerts: {rule} is suspended: {error}")
            return None
        self._problems.settle(rule, f"alerts: {rule} is evaluated again")
        return {one: ranges[one].earliest if one in ranges else None for one in partitions}
