"""Determines the retention of offsets: from the settings, else from the brokers, which then also report their
default assignor."""

import logging
from typing import Final

from streaming.brokers.broker import Broker
from streaming.brokers.facts import BrokerError
from streaming.model.progress import Retention
from streaming.settings.model import OFFSETS_TOPIC, Settings

_log = logging.getLogger(__name__)

DEFAULT_CHECK_INTERVAL_MS: Final = 600_000
"""Kafka's default of `offsets.retention.check.interval.ms`."""


class RetentionReader:
    """Reads the retention on request; reports a problem with it once, not every time."""

    def __init__(self, broker: Broker, settings: Settings) -> None:
        self._broker = broker
        self._settings = settings.expiry
        self._topic = settings.source.topic
        self._said: str | None = None

    def read(self, now: int) -> Retention | None:
        """Return the retention as of `now` (ms); None if neither the settings nor a broker contain it."""
        settings = self._settings
        if settings.retention_ms is not None:
            interval = settings.check_interval_ms or DEFAULT_CHECK_INTERVAL_MS
            return _retention(settings.retention_ms, interval, "setting", now)
        if self._topic != OFFSETS_TOPIC:
            self._warn(
                f"topic {self._topic} may be a copy from another cluster, so these brokers are not asked how "
                "long offsets are retained: set [expiry] retention to predict when they expire"
            )
            return None
        try:
            answered = self._broker.retention()
        except BrokerError as error:
            self._warn(str(error))
            return None
        self._warn(answered.warning)
        interval = settings.check_interval_ms or answered.check_interval_ms
        return _retention(answered.retention_ms, interval, "broker", now, answered.default_assignor)

    def _warn(self, warning: str | None) -> None:
        if warning is not None and warning != self._said:
            _log.warning(warning)
        self._said = warning


def _retention(
    retention_ms: int, check_interval_ms: int, source: str, now: int, default_assignor: str | None = None
) -> Retention:
    return Retention(
        retention_ms=retention_ms,
        check_interval_ms=check_interval_ms,
        source=source,
        read_at=now,
        known_since=now,
        default_assignor=default_assignor,
    )
