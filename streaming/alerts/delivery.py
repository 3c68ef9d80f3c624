"""Delivers alerts to receivers. Each delivery is retried until it succeeds, or the receiver has refused this
message too often.

Deliveries are recorded in the table of alerts after they succeed. A crash in between repeats a delivery with
the same id and revision, so no alert is lost; without a crash none is delivered twice.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from deltalake.exceptions import DeltaError

from streaming.alerts.backoff import LONGEST_PAUSE_S, MOST_REFUSALS, Backoff, Refusals
from streaming.alerts.episodes import SEVERITIES, Severity
from streaming.alerts.receivers import DeliveryError, Receiver
from streaming.alerts.table import AlertState, AlertTable, Delivery, TrackedEpisode
from streaming.common.rate_limits import OngoingProblems
from streaming.common.retries import raise_if_ending
from streaming.common.times import now_ms
from streaming.model.errors import OffsetlakeError

_log = logging.getLogger(__name__)

_RECORD_EVERY: Final = 50
"""Number of deliveries recorded in one commit; a crash may repeat as many."""

_MOST_IN_A_ROW: Final = 20
"""After this many refusals in a row the pass ends, and the rest waits."""


class Notifier:
    """Delivers pending alerts to one receiver, and repeats open ones if the receiver requires it.

    `clock` (ms) dates deliveries; `steady` (s, monotonic) times pauses and repetitions. For a receiver that
    repeats, no pause is longer than its interval: it would resolve open alerts.
    """

    def __init__(
        self,
        alerts: AlertTable,
        receiver: Receiver,
        clock: Callable[[], int] = now_ms,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        every_ms = receiver.repeat_every_ms
        self._every_s = None if every_ms is None else every_ms / 1_000
        longest_s = LONGEST_PAUSE_S if self._every_s is None else min(LONGEST_PAUSE_S, self._every_s)
        self._alerts = alerts
        self._receiver = receiver
        self._problems = OngoingProblems(_log)
        self._clock = clock
        self._steady = steady
        self._unrecorded: dict[str, Delivery] = {}  # outcomes by episode id
        self._refusals = Refusals(longest_s)
        self._away = Backoff(longest_s)
        self._is_silent = False  # no answer: nothing else is sent in this pass
        self._is_cut_short = False  # the last call of `_sent` left some unsent
        self._repeated_at: float | None = None
        self._not_repeated: dict[str, str] = {}  # errors of repetitions, by episode id

    def deliver(self) -> bool:
        """Deliver all pending alerts that are not in a pause after a refusal. Return whether none is left.
        A lasting failure is reported once."""
        about = f"alerts for {self._receiver.name}"
        self._is_silent, is_done = False, False
        try:
            self._record({})
            is_done, failure = self._deliver()
        except BaseException as error:  # the next attempt may succeed
            raise_if_ending(error)
            self._away.begin(self._steady())
            is_known = isinstance(error, OffsetlakeError | DeltaError | OSError)
            failure = str(error) if is_known else f"{type(error).__name__}: {error}"
        if is_done and failure is None:
            self._problems.settle(about, f"{about} are delivered again")
        elif failure is not None:
            self._problems.make(about, f"{about} cannot be delivered, retrying: {failure}")
        return is_done and failure is None

    @property
    def pause_s(self) -> float | None:
        """Seconds until something is due again; None: nothing is due before new alerts."""
        now, away = self._steady(), self._away.until
        moments = [self._refusals.next_at, self._repeat_at]
        if away is not None:  # earlier moments belong to the deliveries that failed
            moments = [away, *(at for at in [self._repeat_at] if at is not None and at > now)]
        known = [at for at in moments if at is not None]
        return max(0.0, min(known) - now) if known else None

    @property
    def _repeat_at(self) -> float | None:
        """When open alerts are due to be repeated (s, `steady`); None: never, or immediately."""
        if self._every_s is None or self._repeated_at is None:
            return None
        return self._repeated_at + self._every_s

    def _deliver(self) -> tuple[bool, str | None]:
        """Deliver what is pending and due, and repeat what is due. Return whether nothing is left, and an
        error.

        New messages come before refused ones, so that a row of refusals ends only the pass over the refused
        ones.
        """
        state, name, began = self._alerts.read(), self._receiver.name, self._steady()
        pending = {tracked.episode.id: tracked for tracked in state.pending(name)}
        others = {} if self._every_s is None else _repeated(state, name)
        self._refusals.keep(others | pending)
        self._not_repeated = {key: error for key, error in self._not_repeated.items() if key in others}
        due = {key: self._refusals.due_at(tracked) for key, tracked in (others | pending).items()}
        again = [
            key for at, key in sorted((at, key) for key, at in due.items() if at is not None and at <= began)
        ]

        fresh = _gravest_first(tracked for key, tracked in pending.items() if due[key] is None)
        arrived, failure = self._deliver_due(fresh)
        is_left = self._is_cut_short
        if self._is_repeat_due(began):
            self._repeat(_gravest_first(tracked for key, tracked in others.items() if due[key] is None))
            self._repeated_at = self._repeated_at if self._is_cut_short else began
            is_left |= self._is_cut_short
        if is_left and not self._is_silent:
            self._away.end()  # retry soon: those refused now are in a pause, so the next attempt gets further
        arrived_again, refused = self._deliver_due([pending[key] for key in again if key in pending])
        is_left |= self._is_cut_short
        self._repeat([others[key] for key in again if key in others])
        if is_left or self._is_cut_short:
            self._away.begin(self._steady())
        else:
            self._away.end()
        is_done = arrived + arrived_again == len(pending)
        return is_done, failure or refused or next(iter(self._not_repeated.values()), None)

    def _repeat(self, tracked: Sequence[TrackedEpisode]) -> None:
        """Send open episodes again. Refusals of repetitions do not end them: the receiver may refuse them
        only for a while, but would resolve the alerts without them."""
        for one, error in self._sent(tracked):
            if error is None:
                self._not_repeated.pop(one.episode.id, None)
                continue
            self._not_repeated[one.episode.id] = str(error)
            if error.is_answer:
                self._refusals.refuse(one, self._steady())

    def _is_repeat_due(self, now: float) -> bool:
        return self._every_s is not None and (self._repeat_at is None or self._repeat_at <= now)

    def _deliver_due(self, due: Sequence[TrackedEpisode]) -> tuple[int, str | None]:
        """Send episodes and record the outcomes. Return the number of those that are done, and the error
        of one that is not."""
        outcomes: dict[str, Delivery] = {}
        done, failure = 0, None
        for tracked, error in self._sent(due):
            outcome = self._outcome(tracked, error)
            is_done = outcome.revision == tracked.episode.revision
            done, failure = done + is_done, failure or (None if is_done else str(error))
            if _is_news(tracked.to(self._receiver.name), outcome):
                outcomes[tracked.episode.id] = outcome
            if len(outcomes) >= max(_RECORD_EVERY, self._receiver.batch_size):
                self._record(outcomes)
                outcomes = {}
        self._record(outcomes)
        return done, failure

    def _sent(
        self, tracked: Sequence[TrackedEpisode]
    ) -> Iterator[tuple[TrackedEpisode, DeliveryError | None]]:
        """Send episodes in batches; yield each with its error (None: it was delivered).

        A refused batch is halved until the refused message is found. Without an answer, or after too many
        refusals in a row, the rest stays unsent.
        """
        waiting = _batches(tracked, self._receiver)[::-1]
        refusals, self._is_cut_short = 0, self._is_silent
        while waiting and not self._is_cut_short:
            batch = waiting.pop()
            error = self._send(batch)
            refusals = 0 if error is None else refusals + 1
            self._is_silent = error is not None and not error.is_answer
            self._is_cut_short = self._is_silent or refusals >= _MOST_IN_A_ROW
            if error is None:
                self._away.end()
                self._refusals.take(batch)
            elif len(batch) > 1 and not self._is_cut_short:
                half = len(batch) // 2
                waiting += [batch[half:], batch[:half]]
                continue
            yield from ((one, error) for one in batch)

    def _send(self, batch: Sequence[TrackedEpisode]) -> DeliveryError | None:
        try:
            self._receiver.send(batch, self._clock())
        except DeliveryError as error:
            return error
        except Exception as error:  # the next attempt may succeed; the text may contain a secret
            return DeliveryError(f"unexpected {type(error).__name__}.", is_answer=False)
        return None

    def _outcome(self, tracked: TrackedEpisode, error: DeliveryError | None) -> Delivery:
        before, episode = tracked.to(self._receiver.name), tracked.episode
        if error is None:
            return Delivery(
                receiver=self._receiver.name,
                revision=episode.revision,
                severity=episode.finding.severity,
                delivered_at=self._clock(),
            )
        since = self._clock() if before.failing_since is None else before.failing_since
        failed = replace(before, failing_since=since, error=str(error))
        is_too_often = error.is_answer and self._refusals.refuse(tracked, self._steady())
        if not is_too_often or self._is_repeated(tracked):
            return failed
        _log.warning(
            f"{self._receiver.name} has refused the alert {episode.rule} of {episode.finding.subject} "
            f"{MOST_REFUSALS} times while it took others, so it is not sent again before it changes: {error}"
        )
        return replace(failed, revision=episode.revision)

    def _is_repeated(self, tracked: TrackedEpisode) -> bool:
        """Return whether the receiver has accepted an earlier revision, and resolves it unless it is sent
        again."""
        return (
            self._every_s is not None
            and tracked.episode.is_open
            and tracked.to(self._receiver.name).severity is not None
        )

    def _record(self, outcomes: Mapping[str, Delivery]) -> None:
        """Record the outcomes of deliveries, and those that could not be recorded before."""
        self._unrecorded |= outcomes
        if self._unrecorded:
            self._alerts.note(self._unrecorded)
            self._unrecorded = {}


class NotifierThread(threading.Thread):
    """Delivers to one receiver when there are new alerts, and when the notifier has something due again."""

    def __init__(self, notifier: Notifier, name: str) -> None:
        super().__init__(name=f"offsetlake-alerts-{name}", daemon=True)
        self._notifier = notifier
        self._news = threading.Event()
        self._done = threading.Event()

    def run(self) -> None:
        """Deliver what was pending at the start, then continue until `end`."""
        while not self._done.is_set():
            self._news.clear()
            self._notifier.deliver()
            if not self._done.is_set():
                self._news.wait(self._notifier.pause_s)

    def wake(self) -> None:
        self._news.set()

    def end(self) -> None:
        self._done.set()
        self._news.set()


def _is_news(before: Delivery, after: Delivery) -> bool:
    """Return whether to record an attempt: a repetition with the same outcome is not worth a commit."""
    return replace(after, delivered_at=before.delivered_at) != before


def _repeated(state: AlertState, receiver: str) -> dict[str, TrackedEpisode]:
    """Return the episodes to repeat, by id: open, and neither pending nor finally refused."""
    return {
        tracked.episode.id: tracked
        for tracked in state.open_episodes()
        if not tracked.is_pending_for(receiver) and not tracked.is_refused_by(receiver)
    }


def _gravest_first(tracked: Iterable[TrackedEpisode]) -> list[TrackedEpisode]:
    return sorted(tracked, key=lambda one: SEVERITIES.index(one.episode.finding.severity))


def _batches(tracked: Sequence[TrackedEpisode], receiver: Receiver) -> list[Sequence[TrackedEpisode]]:
    """Divide episodes into deliveries, in their order: `batch_size` each, but more than `most_of_rule` of
    one rule and severity are one delivery."""
    alike: dict[tuple[str, Severity], list[TrackedEpisode]] = {}
    for one in tracked if receiver.most_of_rule is not None else ():
        alike.setdefault((one.episode.rule, one.episode.finding.severity), []).append(one)
    many = [ones for ones in alike.values() if len(ones) > (receiver.most_of_rule or 0)]
    among = {one.episode.id for ones in many for one in ones}
    others = [one for one in tracked if one.episode.id not in among]
    size = receiver.batch_size
    batches = [*(others[start : start + size] for start in range(0, len(others), size)), *many]
    place = {one.episode.id: number for number, one in enumerate(tracked)}
    return sorted(batches, key=lambda batch: place[batch[0].episode.id])
