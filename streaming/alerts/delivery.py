"""Delivers alerts to receivers, and retries each delivery until it succeeds.

A delivery is recorded in the table of alerts afterwards. A crash in between delivers it again, with the same
id and revision, so nothing is lost; without a crash nothing is delivered twice.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from deltalake.exceptions import DeltaError

from streaming.alerts.receivers import DeliveryError, Receiver
from streaming.alerts.table import AlertTable, Delivery, Told
from streaming.common.patience import Complaints
from streaming.common.times import now_ms
from streaming.model.errors import OffsetlakeError

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 300.0
"""Between attempts; each pause is twice the one before."""

_NOTE_EVERY: Final = 50
"""How many deliveries are recorded at a time; a crash may send as many twice."""


class Courier:
    """Delivers pending news to one receiver, and repeats open alerts if the receiver requires it."""

    def __init__(
        self,
        alerts: AlertTable,
        receiver: Receiver,
        say: Callable[[str], None],
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._alerts = alerts
        self._receiver = receiver
        self._complaints = Complaints(say)
        self._clock = clock
        self._unnoted: dict[str, Delivery] = {}  # arrived, but not noted yet: not to be sent again for that
        self._repeated_at: int | None = None

    def deliver(self) -> bool:
        """Deliver what is pending; return whether all of it arrived. A failure is reported once."""
        try:
            self._note({})
            failure = self._deliver()
        except (OffsetlakeError, DeltaError, OSError) as error:
            failure = str(error)
        except Exception as error:  # whatever it is, the next attempt may succeed, and no one else delivers
            failure = f"{type(error).__name__}: {error}"
        about = f"alerts for {self._receiver.name}"
        if failure is None:
            self._complaints.settle(about, f"{about} are delivered again")
        else:
            self._complaints.make(about, f"{about} cannot be delivered, retrying: {failure}")
        return failure is None

    @property
    def repeat_pause_s(self) -> float | None:
        """How long until open alerts are sent again; None: never."""
        every_ms = self._receiver.repeat_every_ms
        return None if every_ms is None else every_ms / 1_000

    def _deliver(self) -> str | None:
        """Deliver what is pending, repeat what is due; return why something did not arrive."""
        state, name = self._alerts.read(), self._receiver.name
        pending = state.pending(name)
        failures = [self._deliver_some(some) for some in _chunks(pending, max(_NOTE_EVERY, self._batch_size))]
        if self._is_repeat_due():
            just_sent = {told.episode.id for told in pending}
            repeated = [told for told in state.open_episodes() if told.episode.id not in just_sent]
            failures += [self._deliver_some(some) for some in _chunks(repeated, self._batch_size)]
        return next((failure for failure in failures if failure is not None), None)

    @property
    def _batch_size(self) -> int:
        return self._receiver.batch_size

    def _is_repeat_due(self) -> bool:
        every_ms, now = self._receiver.repeat_every_ms, self._clock()
        if every_ms is None or (self._repeated_at is not None and now - self._repeated_at < every_ms):
            return False
        self._repeated_at = now
        return True

    def _deliver_some(self, some: Sequence[Told]) -> str | None:
        """Send some episodes and record the outcomes; return why one did not arrive."""
        before = {told.episode.id: told.to(self._receiver.name) for told in some}
        outcomes: dict[str, Delivery] = {}
        failure = None
        for batch in _chunks(some, self._batch_size):
            error = self._send(batch)
            failure = failure or error
            for told in batch:
                delivery = before[told.episode.id]
                outcomes[told.episode.id] = self._failed(delivery, error) if error else self._arrived(told)
            if error is not None and not error.is_answer:
                break  # the others would wait for the same silence
        self._note({i: new for i, new in outcomes.items() if _is_news(before[i], new)})
        return None if failure is None else str(failure)

    def _send(self, batch: Sequence[Told]) -> DeliveryError | None:
        try:
            self._receiver.send(batch, self._clock())
        except DeliveryError as error:
            return error
        except Exception as error:  # whatever it is, the next attempt may succeed; its text may hold a secret
            return DeliveryError(f"unexpected {type(error).__name__}.", is_answer=False)
        return None

    def _arrived(self, told: Told) -> Delivery:
        return Delivery(
            receiver=self._receiver.name,
            revision=told.episode.revision,
            severity=told.episode.finding.severity,
            delivered_at=self._clock(),
        )

    def _failed(self, before: Delivery, error: DeliveryError) -> Delivery:
        since = self._clock() if before.failing_since is None else before.failing_since
        return replace(before, failing_since=since, error=str(error))

    def _note(self, outcomes: Mapping[str, Delivery]) -> None:
        """Record the outcomes of deliveries, including those that could not be recorded before."""
        self._unnoted |= outcomes
        if self._unnoted:
            self._alerts.note(self._unnoted)
            self._unnoted = {}


class CourierThread(threading.Thread):
    """Delivers to one receiver whenever it is woken, with growing pauses while that fails."""

    def __init__(self, courier: Courier, name: str) -> None:
        super().__init__(name=f"offsetlake-alerts-{name}", daemon=True)
        self._courier = courier
        self._news = threading.Event()
        self._done = threading.Event()

    def run(self) -> None:
        """Deliver what is left from before, then whatever follows, until told to end."""
        pause_s = FIRST_PAUSE_S
        while not self._done.is_set():
            self._news.clear()
            if self._courier.deliver():
                pause_s = FIRST_PAUSE_S
                self._news.wait(self._courier.repeat_pause_s)
            else:
                self._done.wait(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def wake(self) -> None:
        """Deliver soon: there is news."""
        self._news.set()

    def end(self) -> None:
        """End after the current delivery."""
        self._done.set()
        self._news.set()


def _is_news(before: Delivery, after: Delivery) -> bool:
    """Whether to record it: a mere repetition is not worth a commit."""
    return replace(after, delivered_at=before.delivered_at) != before


def _chunks(told: Sequence[Told], size: int) -> Iterator[Sequence[Told]]:
    return (told[start : start + size] for start in range(0, len(told), size))
