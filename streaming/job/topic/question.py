"""Requests the state of the topic until all brokers answer; meanwhile reports problems and sends
heartbeats."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from streaming.brokers.facts import AccessRefusedError, BrokerError, TopicMissingError
from streaming.common.rate_limits import Interval, OngoingProblems
from streaming.job.housekeeping import Retrying
from streaming.job.reporter import Waiting
from streaming.job.topic.reasons import RebuildNeededError, TopicNow
from streaming.job.topic.watch import TopicWatch
from streaming.settings.model import Settings

_log = logging.getLogger(__name__)


class TopicQuestion:
    """One request, repeated every `topic_poll_every` until it is answered.

    `beside` runs meanwhile (alerts), `heartbeat` commits a heartbeat with the silence of the brokers.
    """

    def __init__(
        self,
        watch: TopicWatch,
        settings: Settings,
        *,
        waiting: Waiting,
        beside: Callable[[], AbstractContextManager[object]],
        heartbeat: Callable[[], None],
    ) -> None:
        self._watch = watch
        self._settings = settings
        self._problems = OngoingProblems(_log)
        self._waiting = waiting
        self._beside = beside
        self._heartbeat = heartbeat
        self._lack: BrokerError | None = None

    def ask(self, stop: threading.Event, *, limit_ms: int | None = None) -> TopicNow | None:
        """Return the state of the topic, None once `stop` is set.

        Raises `AccessRefusedError`, and `BrokerError` if brokers are silent, or the topic does not exist, for
        `limit_ms` (None: never). Raises `RebuildNeededError` after a jump of the clock.
        """
        if stop.is_set():
            return None
        began = time.monotonic()
        topic = self._answer()
        if topic is not None:
            return topic
        beat_ms, poll_ms = self._settings.job.heartbeat_every_ms, self._settings.source.topic_poll_every_ms
        pause_s = min(beat_ms, poll_ms, limit_ms or poll_ms) / 1_000
        beating, asking = Interval(beat_ms, at_once=True), Interval(poll_ms, at_once=False)
        patience = Retrying("a heartbeat")
        what = f"waiting for topic {self._settings.source.topic} on {self._settings.source.bootstrap_servers}"
        with self._beside(), self._waiting(what):
            while not stop.wait(pause_s):
                if beating.is_due():
                    patience.succeeds(self._heartbeat)
                is_over = limit_ms is not None and time.monotonic() - began > limit_ms / 1_000
                if not asking.is_due() and not is_over:
                    continue
                topic = self._answer()
                if topic is not None:
                    return topic
                if self._lack and is_over:
                    raise self._lack
        return None

    def _answer(self) -> TopicNow | None:
        """Return the state of the topic; report the problem and return None if no broker answers, or it does
        not exist."""
        if reason := self._watch.reason_of_clock():
            raise RebuildNeededError(reason)
        servers, name = self._settings.source.bootstrap_servers, self._settings.source.topic
        try:
            topic = self._watch.now()
        except AccessRefusedError:
            raise
        except BrokerError as error:
            self._lack = error
            self._problems.make("brokers", f"{error} Waiting for the brokers.")
            return None
        self._problems.settle("brokers", f"{servers} answers again")
        if topic is None:
            self._lack = TopicMissingError.of(name, servers, self._settings.source.connect_timeout_ms)
            self._problems.make(
                "topic",
                f"topic {name} does not exist on {servers}, or this user may not see it (Describe "
                "permission): waiting for it",
            )
        else:
            self._problems.settle("topic", f"topic {name} exists again")
            self._lack = None
        return topic
