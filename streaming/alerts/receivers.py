"""The receivers of alerts: lines of a log, a webhook, Prometheus Alertmanager."""

import errno
import json
import os
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Final, Protocol

from streaming.alerts.messages import alertmanager_alerts, document
from streaming.alerts.table import Told
from streaming.common.escapes import json_text
from streaming.common.http_values import shown_url, without_user
from streaming.model.errors import OffsetlakeError
from streaming.settings.model import AlertmanagerSettings, AlertSettings, WebhookSettings

LOG: Final = "log"
WEBHOOK: Final = "webhook"
ALERTMANAGER: Final = "alertmanager"

_VALID_FOR: Final = 4
"""An open alert is valid for this many repetitions, as with Prometheus: three may be lost."""


class DeliveryError(OffsetlakeError):
    """A delivery failed; `is_answer`: the receiver refused it, but may accept others."""

    def __init__(self, message: str, *, is_answer: bool) -> None:
        super().__init__(message)
        self.is_answer = is_answer


class Receiver(Protocol):
    """What alerts are delivered to, `batch_size` at a time."""

    @property
    def name(self) -> str:
        """Its name in the table of alerts."""

    @property
    def batch_size(self) -> int:
        """How many episodes one delivery may contain."""

    @property
    def repeat_every_ms(self) -> int | None:
        """How often open alerts are sent again; None: never."""

    def send(self, news: Sequence[Told], now: int) -> None:
        """Deliver these episodes; raises `DeliveryError` if that failed."""


@dataclass(frozen=True)
class LogLines:
    """Writes one line of JSON per episode."""

    write: Callable[[str], None]
    name: str = LOG
    batch_size: int = 1
    repeat_every_ms: int | None = None

    def send(self, news: Sequence[Told], now: int) -> None:
        """Write it."""
        for told in news:
            try:
                self.write(json_text({"alert": document(told, told.to(self.name))}))
            except (OSError, ValueError) as error:  # ValueError: characters that the output does not take
                raise DeliveryError(
                    f"writing to the log: {type(error).__name__} ({error}).",
                    is_answer=not isinstance(error, OSError),
                ) from error


@dataclass(frozen=True)
class Webhook:
    """Posts one JSON document per episode."""

    settings: WebhookSettings
    timeout_ms: int
    name: str = WEBHOOK
    batch_size: int = 1
    repeat_every_ms: int | None = None

    def send(self, news: Sequence[Told], now: int) -> None:
        """Post it."""
        for told in news:
            key = {"Idempotency-Key": f"{told.episode.id}-{told.episode.revision}"}
            body = document(told, told.to(self.name))
            post(self.settings.url, body, {**key, **self.settings.headers}, self.timeout_ms)


@dataclass(frozen=True)
class Alertmanager:
    """Posts alerts to the API (v2) of Prometheus Alertmanager, open ones again and again.

    `source` are labels that distinguish alerts about this topic from those about others.
    """

    settings: AlertmanagerSettings
    source: Mapping[str, str]
    timeout_ms: int
    name: str = ALERTMANAGER
    batch_size: int = 500

    @property
    def repeat_every_ms(self) -> int:
        """How often open alerts are sent again."""
        return self.settings.repeat_every_ms

    def send(self, news: Sequence[Told], now: int) -> None:
        """Post it."""
        labels = {**self.source, **self.settings.labels}
        until = now + _VALID_FOR * self.repeat_every_ms
        alerts = [
            alert
            for told in news
            for alert in alertmanager_alerts(told, told.to(self.name), labels, until=until)
        ]
        url = f"{self.settings.url.rstrip('/')}/api/v2/alerts"
        post(url, alerts, self.settings.headers, self.timeout_ms)


def source_labels(cluster_id: str | None, topic: str) -> dict[str, str]:
    """Return the labels that distinguish alerts about one offsets topic from those about another."""
    return {"offsets_topic": topic, **({} if cluster_id is None else {"kafka_cluster": cluster_id})}


def receivers(
    settings: AlertSettings, *, write: Callable[[str], None], source: Mapping[str, str]
) -> list[Receiver]:
    """Return the receivers that are configured."""
    found: list[Receiver] = []
    if settings.log == "on":
        found.append(LogLines(write))
    if settings.webhook.url:
        found.append(Webhook(settings.webhook, settings.timeout_ms))
    if settings.alertmanager.url:
        found.append(Alertmanager(settings.alertmanager, source, settings.timeout_ms))
    return found


def post(url: str, body: object, headers: Mapping[str, str], timeout_ms: int) -> None:
    """Post JSON; raises `DeliveryError`, which names no secret, unless the answer is a success (2xx)."""
    try:
        with _OPENER.open(_request(url, body, headers), timeout=timeout_ms / 1_000):
            pass
    except urllib.error.HTTPError as error:
        error.close()
        raise _failed(url, f"HTTP status {error.code}", is_answer=True) from None
    except (OSError, HTTPException, ValueError) as error:  # URLError is an OSError
        raise _failed(url, _kind(error), is_answer=False) from None


def _request(url: str, body: object, headers: Mapping[str, str]) -> urllib.request.Request:
    address, authorization = without_user(url)
    return urllib.request.Request(
        address,
        data=json.dumps(body).encode("utf-8"),
        headers={"Content-Type": "application/json", **authorization, **headers},
        method="POST",
    )


def _kind(error: BaseException) -> str:
    """Name the class of an error, and what it means: its text may quote an address or a header."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    cause = reason if isinstance(reason, BaseException) else error
    meaning = _meaning(cause)
    return type(cause).__name__ + (f" ({meaning})" if meaning else "")


def _meaning(error: BaseException) -> str | None:
    """Say what an error means, from its class and number alone."""
    match error:
        case socket.gaierror():
            return "the host name cannot be resolved"
        case ssl.SSLCertVerificationError():
            return "the certificate is not trusted"
        case ssl.SSLError():
            return None  # its numbers are other ones
        case OSError(errno=int(number)) if number in errno.errorcode:
            return os.strerror(number)
        case _:
            return None


def _failed(url: str, found: str, *, is_answer: bool) -> DeliveryError:
    return DeliveryError(
        f"posting to {shown_url(url)}: expected success, found {found}.", is_answer=is_answer
    )


def _opener() -> urllib.request.OpenerDirector:
    """Return what opens http and https addresses alone, and takes redirects for failures: followed, a POST
    would become a GET, and arrive as nothing."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    return opener


_OPENER: Final = _opener()
