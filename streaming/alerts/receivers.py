"""The receivers of alerts: a log, a webhook, Prometheus Alertmanager."""

import errno
import json
import os
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from operator import itemgetter
from threading import Thread
from typing import Final, Protocol

from streaming.alerts.messages import alertmanager_alerts, document, summary_document
from streaming.alerts.table import TrackedEpisode
from streaming.common.escapes import json_text
from streaming.common.http_values import shown_url, without_user
from streaming.model.errors import OffsetlakeError
from streaming.settings.model import AlertmanagerSettings, AlertSettings, WebhookSettings

LOG: Final = "log"
WEBHOOK: Final = "webhook"
ALERTMANAGER: Final = "alertmanager"

MOST_OF_RULE: Final = 20
"""With more alerts of one rule and severity than this, one message summarizes them, as in the rules for
Prometheus."""

_VALID_FOR: Final = 4
"""An open alert is valid for this many repetitions, as with Prometheus: three may be lost."""


class DeliveryError(OffsetlakeError):
    """A delivery failed. `is_answer`: the receiver refused this message, but may accept others."""

    def __init__(self, message: str, *, is_answer: bool) -> None:
        super().__init__(message)
        self.is_answer = is_answer


class Receiver(Protocol):
    """A destination of alerts."""

    @property
    def name(self) -> str:
        """The name in the table of alerts."""

    @property
    def batch_size(self) -> int:
        """The largest number of episodes in one delivery."""

    @property
    def repeat_every_ms(self) -> int | None:
        """The interval at which open alerts are repeated; None: never."""

    @property
    def most_of_rule(self) -> int | None:
        """With more episodes of one rule and severity than this, all are one delivery; None: never."""

    def send(self, news: Sequence[TrackedEpisode], now: int) -> None:
        """Deliver these episodes at `now` (ms). Raises `DeliveryError`."""


@dataclass(frozen=True)
class LogLines:
    """Writes one line of JSON per episode."""

    write: Callable[[str], None]
    name: str = LOG
    batch_size: int = 1
    repeat_every_ms: int | None = None
    most_of_rule: int | None = None

    def send(self, news: Sequence[TrackedEpisode], now: int) -> None:
        for tracked in news:
            try:
                self.write(json_text({"alert": document(tracked, tracked.to(self.name))}))
            except (OSError, ValueError) as error:  # ValueError: the output cannot encode a character
                raise DeliveryError(
                    f"writing to the log: {type(error).__name__} ({error}).",
                    is_answer=not isinstance(error, OSError),
                ) from error


@dataclass(frozen=True)
class Webhook:
    """Posts one JSON document per episode, or one summary of many."""

    settings: WebhookSettings
    timeout_ms: int
    name: str = WEBHOOK
    batch_size: int = 1
    repeat_every_ms: int | None = None
    most_of_rule: int | None = MOST_OF_RULE

    def send(self, news: Sequence[TrackedEpisode], now: int) -> None:
        tracked = [(one, one.to(self.name)) for one in news]
        body = document(*tracked[0]) if len(tracked) == 1 else summary_document(tracked)
        key = {"Idempotency-Key": f"{body['id']}-{body['revision']}"}
        post(self.settings.url, body, {**key, **self.settings.headers}, self.timeout_ms)


@dataclass(frozen=True)
class Alertmanager:
    """Posts alerts to the API (v2) of Prometheus Alertmanager, and repeats open ones.

    `source` are labels that distinguish alerts about this topic from those about others.
    """

    settings: AlertmanagerSettings
    source: Mapping[str, str]
    timeout_ms: int
    name: str = ALERTMANAGER
    batch_size: int = 500
    most_of_rule: int | None = None  # Alertmanager groups alerts itself

    @property
    def repeat_every_ms(self) -> int:
        return self.settings.repeat_every_ms

    def send(self, news: Sequence[TrackedEpisode], now: int) -> None:
        labels = {**self.source, **self.settings.labels}
        until = now + _VALID_FOR * self.repeat_every_ms
        alerts = [
            alert
            for tracked in news
            for alert in alertmanager_alerts(tracked, tracked.to(self.name), labels, until=until)
        ]
        alerts.sort(key=itemgetter("endsAt"))  # of two with the same labels, the last one counts
        url = f"{self.settings.url.rstrip('/')}/api/v2/alerts"
        post(url, alerts, self.settings.headers, self.timeout_ms)


def source_labels(cluster_id: str | None, topic: str) -> dict[str, str]:
    """Return the labels that distinguish alerts about one offsets topic from those about others."""
    return {"offsets_topic": topic, **({} if cluster_id is None else {"kafka_cluster": cluster_id})}


def receivers(
    settings: AlertSettings, *, write: Callable[[str], None], source: Mapping[str, str]
) -> list[Receiver]:
    found: list[Receiver] = []
    if settings.log == "on":
        found.append(LogLines(write))
    if settings.webhook.url:
        found.append(Webhook(settings.webhook, settings.timeout_ms))
    if settings.alertmanager.url:
        found.append(Alertmanager(settings.alertmanager, source, settings.timeout_ms))
    return found


def post(url: str, body: object, headers: Mapping[str, str], timeout_ms: int) -> None:
    """Post JSON. Raises `DeliveryError`, whose text contains no secret, unless the answer is a success (2xx).

    The timeout covers everything: resolving the host name, connecting, sending, and the headers of the
    answer.
    """
    try:
        _Exchange(_request(url, body, headers), timeout_ms / 1_000).wait()
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
    """Return the class of an error and its meaning. The text of the error may quote an address or a
    header."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    cause = reason if isinstance(reason, BaseException) else error
    meaning = _meaning(cause)
    return type(cause).__name__ + (f" ({meaning})" if meaning else "")


def _meaning(error: BaseException) -> str | None:
    """Return the meaning of an error, from its class and number only."""
    match error:
        case socket.gaierror():
            return "the host name cannot be resolved"
        case ssl.SSLCertVerificationError():
            return "the certificate is not trusted"
        case TimeoutError(errno=None):
            return "no whole answer within alerts.timeout"
        case ssl.SSLError():
            return None  # its numbers are not those of `errno`
        case OSError(errno=int(number)) if number in errno.errorcode:
            return os.strerror(number)
        case _:
            return None


def _failed(url: str, found: str, *, is_answer: bool) -> DeliveryError:
    return DeliveryError(
        f"posting to {shown_url(url)}: expected success, found {found}.", is_answer=is_answer
    )


class _Exchange:
    """A request and its answer, on a thread that is abandoned when the time is over. (The timeout of a
    socket is for each read, and resolving a host name has none.)"""

    def __init__(self, request: urllib.request.Request, timeout_s: float) -> None:
        self._request, self._timeout_s = request, timeout_s
        self._connections: list[HTTPConnection] = []
        self._is_over = False

    def wait(self) -> None:
        """Wait for a success (2xx). Raises the errors of `urllib.request`, and `TimeoutError` when the
        time is over."""
        done: Future[None] = Future()
        Thread(target=self._run, args=(done,), name="offsetlake-post", daemon=True).start()
        try:
            done.result(self._timeout_s)
        finally:
            self._is_over = True
            for connection in self._connections:
                _cut(connection.sock)

    def _run(self, done: "Future[None]") -> None:
        try:
            with _opener(self._connected).open(self._request, timeout=self._timeout_s):
                pass
        except BaseException as error:  # raised in the waiting thread
            done.set_exception(error)
        else:
            done.set_result(None)

    def _connected(self, connection: HTTPConnection) -> None:
        """Raise `TimeoutError` instead of sending if the time is over, and else be ready to be cut."""
        self._connections.append(connection)
        if self._is_over:
            raise TimeoutError


def _cut(connected: socket.socket | None) -> None:
    """Shut down a socket, so that a blocked read ends."""
    if connected is not None:
        with suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)


def _opener(connected: Callable[[HTTPConnection], None]) -> urllib.request.OpenerDirector:
    """Return an opener for http and https only, in which redirects are failures: followed, a POST would
    become a GET without a body. `connected` is called with each connection before it is opened, and before
    anything is sent."""

    class Plain(HTTPConnection):
        def connect(self) -> None:
            connected(self)
            super().connect()
            connected(self)

    class Tls(Plain, HTTPSConnection):
        """By the order of its bases, `Plain.connect` calls `HTTPSConnection.connect`."""

    class Http(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> HTTPResponse:
            return self.do_open(Plain, req)

    class Https(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> HTTPResponse:
            return self.do_open(Tls, req)

    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        Http(),
        Https(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    return opener
