"""A real broker whose listener SASL_SSL takes tokens (OAUTHBEARER), and a job that follows it."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import kafka_clients as kafka
from certificates import CertificateAuthority
from history_checks import table_offsets
from kafka_versions import KafkaVersion
from running_job import RunningJob
from secured_broker import SecuredBroker, secured_broker

from streaming.model.errors import OffsetlakeError

KAFKAS: Final = "org.apache.kafka.common.security.oauthbearer"

QUICK: Final = {
    "job.heartbeat_every": "500ms",
    "source.topic_poll_every": "300ms",
    "source.connect_timeout": "4s",
    "log_ends.every": "1s",
}
"""Options of a job that notices things soon."""

IMPATIENT: Final = {"request.timeout.ms": "4000", "default.api.timeout.ms": "5000"}
"""Settings of a Java client that does so."""


@contextmanager
def oauth_broker(
    directory: Path,
    version: KafkaVersion,
    *,
    ca: CertificateAuthority,
    jwks_url: str,
    issuer: str,
    audience: str,
    listeners: Sequence[str] = ("SASL_SSL",),
    **overrides: str | int,
) -> Iterator[SecuredBroker]:
    """Run a broker that takes tokens of an issuer, whose certificate is of the same CA as its own.

    Sessions last 4 s. In the names of `overrides` two underscores stand for a dot.
    """
    trust = directory / "certificates" / "ca.pem"
    of_oauth = "listener.name.sasl_ssl.oauthbearer"
    settings: dict[str, str | int] = {
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
        f"{of_oauth}.sasl.jaas.config": (
            f'{KAFKAS}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="unused" '
            f'ssl.truststore.type="PEM" ssl.truststore.location="{trust}";'
        ),
        f"{of_oauth}.sasl.server.callback.handler.class": f"{KAFKAS}.OAuthBearerValidatorCallbackHandler",
        f"{of_oauth}.connections.max.reauth.ms": 4_000,
        "sasl.oauthbearer.jwks.endpoint.url": jwks_url,
        "sasl.oauthbearer.expected.audience": audience,
        "sasl.oauthbearer.expected.issuer": issuer,
        "sasl.oauthbearer.clock.skew.seconds": 0,
        **{name.replace("__", "."): value for name, value in overrides.items()},
    }
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks_url}"  # needed since Kafka 4.0
    with secured_broker(
        directory, version, ca=ca, listeners=listeners, overrides=settings, java_options=[allowed]
    ) as broker:
        kafka.create_topics(broker.for_tests, {"orders": 1})
        kafka.commit_offsets(broker.for_tests, "billing", {("orders", 0): 1})
        yield broker


def trusting(secured: SecuredBroker) -> dict[str, str]:
    """Return the settings of a client that trusts the broker's CA."""
    return {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured.certificates / "ca.pem"),
    }


def oauth_client(secured: SecuredBroker, endpoint: str, client_id: str, secret: str) -> dict[str, str]:
    """Return the settings of a client in the form of Kafka 4.x; broker and endpoint have the same CA."""
    trust = trusting(secured)
    options = " ".join(f'{name}="{value}"' for name, value in trust.items())
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{KAFKAS}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": endpoint,
        "sasl.oauthbearer.client.credentials.client.id": client_id,
        "sasl.oauthbearer.client.credentials.client.secret": secret,
        "sasl.jaas.config": f"{KAFKAS}.OAuthBearerLoginModule required {options};",
        **trust,
    }


class FollowingJob:
    """A job in a thread, and how it ended. It follows commits of one group."""

    def __init__(self, job: RunningJob, secured: SecuredBroker) -> None:
        self.error: OffsetlakeError | None = None
        self._job, self._secured, self._stop = job, secured, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "FollowingJob":
        self._job.tables.create()
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    def follows(self, offset: int) -> None:
        """Commit, and wait until the tables have it."""
        kafka.commit_offsets(self._secured.for_tests, "billing", {("orders", 0): offset})
        kafka.wait_until(lambda: self._offset() == offset, f"offset {offset} in the tables", timeout_s=120)

    def says(self, text: str) -> None:
        """Wait until it has said this."""
        kafka.wait_until(lambda: any(text in one for one in self._job.said), text, timeout_s=90)
        assert self.is_alive, self.error

    def ends(self) -> OffsetlakeError:
        """Wait until it ends with an error."""
        kafka.wait_until(lambda: not self.is_alive, "the job to end", timeout_s=90)
        assert self.error is not None
        return self.error

    def _offset(self) -> int | None:
        assert self.is_alive, self.error
        found = table_offsets(self._job.tables).values()
        return next((committed.offset for committed in found), None)

    def _run(self) -> None:
        try:
            self._job.run(self._stop)
        except OffsetlakeError as error:
            self.error = error


def options(client: Mapping[str, str]) -> dict[str, object]:
    """Return the options of a job with this client."""
    return {**QUICK, "source.client": {**client, **IMPATIENT}}
