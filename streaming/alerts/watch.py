"""Evaluates the alert rules at an interval while the job runs, and delivers alerts.

This runs on threads of its own, takes no lock of the writer, and its failures never end the job.
"""

import logging
import threading
from collections.abc import Sequence
from typing import Final, Self

from streaming.alerts.delivery import Notifier, NotifierThread
from streaming.alerts.evaluation import Evaluator
from streaming.alerts.log_starts import AskLogRanges
from streaming.alerts.receivers import Receiver
from streaming.alerts.table import AlertTable
from streaming.common.rate_limits import OngoingProblems
from streaming.common.retries import raise_if_ending
from streaming.common.times import now_ms
from streaming.settings.model import AlertSettings, HealthSettings
from streaming.tables.tables import Tables

_log = logging.getLogger(__name__)

_END_LIMIT_S: Final = 15.0
"""Time limit for each thread at the end. What is not delivered by then is delivered after the next start."""

_OFTEN_EVALUATED: Final = 1_000_000
"""Up to this many live offsets, rules are evaluated at the interval; of more, the interval is longer in
proportion: an evaluation of ten million offsets takes some ten seconds of processor time."""

_LONGEST: Final = 8.0
"""Times the interval, at most: by default less than the 5 minutes after which `OffsetlakeAlertsNotEvaluated`
warns."""


class AlertWatch(threading.Thread):
    """Evaluates at an interval (`evaluate_every_ms`) within a `with` block, and delivers to the receivers.

    Failures are reported and retried: none is raised. At its end the block waits a bounded time for the
    current evaluation and deliveries.
    """

    def __init__(
        self,
        tables: Tables,
        settings: AlertSettings,
        receivers: Sequence[Receiver],
        *,
        ask_log_ranges: AskLogRanges | None,
        health: HealthSettings | None = None,
    ) -> None:
        super().__init__(name="offsetlake-alerts", daemon=True)
        alerts = AlertTable(tables)
        self._tables = tables
        self._evaluator = Evaluator(
            tables,
            alerts,
            settings,
            receivers=[receiver.name for receiver in receivers],
            ask_log_ranges=ask_log_ranges,
            health=health,
        )
        self._notifiers = {receiver.name: Notifier(alerts, receiver) for receiver in receivers}
        self._threads = [NotifierThread(notifier, name) for name, notifier in self._notifiers.items()]
        self._every_s = settings.evaluate_every_ms / 1_000
        self._problems = OngoingProblems(_log)
        self._done = threading.Event()
        self._evaluated_at: int | None = None

    def run(self) -> None:
        """Evaluate at the interval until the block ends: immediately, unless there are so many offsets that
        the start of the job would take longer."""
        if self._offsets_at_start() > _OFTEN_EVALUATED:
            self._done.wait(self._every_s)
        while not self._done.is_set():
            self._evaluate()
            self._done.wait(self.interval_s)

    @property
    def interval_s(self) -> float:
        """The time from the end of the last evaluation to the next one."""
        return self._every_s * min(_LONGEST, max(1.0, self._evaluator.offsets / _OFTEN_EVALUATED))

    def _offsets_at_start(self) -> int:
        try:
            return self._tables.folded_rows("offsets")
        except BaseException as error:  # the evaluation reports it
            raise_if_ending(error)
            return 0

    def evaluate_and_deliver(self) -> bool:
        """Evaluate and deliver once, after the block has ended. Return whether both succeeded."""
        is_evaluated = self._evaluate()
        is_delivered = [notifier.deliver() for notifier in self._notifiers.values()]  # a list: each one runs
        return is_evaluated and all(is_delivered)

    def evaluated_at(self) -> int | None:
        """Return the end of the last successful evaluation (ms); None: there was none."""
        return self._evaluated_at

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join(_END_LIMIT_S)
        for thread in self._threads:
            thread.end()
        for thread in self._threads:
            thread.join(_END_LIMIT_S)

    def _evaluate(self) -> bool:
        try:
            changed = self._evaluator.evaluate()
        except BaseException as error:  # the job continues
            raise_if_ending(error)
            self._problems.make("", f"evaluating alerts failed, retrying: {type(error).__name__}: {error}")
            return False
        self._evaluated_at = now_ms()
        self._problems.settle("", "alerts are evaluated again")
        if changed:
            for thread in self._threads:
                thread.wake()
        return True
