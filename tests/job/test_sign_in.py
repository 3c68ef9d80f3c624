"""Signing in by OAUTHBEARER and by client certificates: both clients do, renew, wait, and say why not."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import kafka_clients as kafka
import pytest
from certificates import CertificateAuthority
from history_checks import table_offsets
from kafka_versions import KafkaVersion
from pyspark.sql import SparkSession
from running_job import RunningJob
from secured_broker import STORE_PASSWORD, SecuredBroker, secured_broker
from test_secured import broker_at, listed_rights
from token_issuer import AUDIENCE, ISSUER, TokenIssuer, answer, cut, refuse, token_issuer

from streaming.brokers.broker import Broker
from streaming.brokers.facts import AccessRefusedError, BrokerError
from streaming.demo.local_broker import free_ports
from streaming.model.errors import OffsetlakeError

pytestmark = pytest.mark.broker

KAFKAS = "org.apache.kafka.common.security.oauthbearer"
HOSTILE = 'p4ss:"word\\%22+ü é'
SECRET = "battery-staple-3307"
IMPATIENT = {"request.timeout.ms": "4000", "default.api.timeout.ms": "5000"}
OFTEN = {
    "job.heartbeat_every": "500ms",
    "source.topic_poll_every": "300ms",
    "source.connect_timeout": "4s",
    "log_ends.every": "1s",
}


@dataclass
class World:
    """A broker with OAUTHBEARER on its listener SASL_SSL, and client certificates of a CA on SSL."""

    secured: SecuredBroker
    issuer: TokenIssuer
    client_ca: CertificateAuthority

    @property
    def bootstrap(self) -> str:
        return self.secured.bootstrap_servers

    def oauth(self, path: str = "/token", *, client_id: str = "job", secret: str = SECRET) -> dict[str, str]:
        """The settings of Java's client of Kafka 4.x."""
        options = " ".join(f'{name}="{value}"' for name, value in self.trust().items())
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": f"{KAFKAS}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": self.issuer.url(path),
            "sasl.oauthbearer.client.credentials.client.id": client_id,
            "sasl.oauthbearer.client.credentials.client.secret": secret,
            "sasl.oauthbearer.scope": "kafka & more",
            "sasl.jaas.config": f'{KAFKAS}.OAuthBearerLoginModule required {options} extension_team="a,b";',
            **self.trust(),
        }

    @property
    def bootstrap_tls(self) -> str:
        return self.secured.broker.bootstrap_servers_of("SSL")

    def tls(self, store: Path) -> dict[str, str]:
        """The settings of a client with a certificate."""
        own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
        return {"security.protocol": "SSL", **own, **self.trust()}

    def replace_client_ca(self) -> None:
        """Let the broker refuse all certificates of clients that there are, also of open connections."""
        self.client_ca = CertificateAuthority()
        self.client_ca.write_trusted(self.secured.certificates / "clients.pem")
        self.secured.broker.restart()

    def trust(self) -> dict[str, str]:
        return {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.secured.certificates / "ca.pem"),
        }


@pytest.fixture(scope="module")
def world(kafka_version: KafkaVersion, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder, ca = tmp_path_factory.mktemp("sign-in"), CertificateAuthority()
    trust, clients = (folder / "certificates" / name for name in ("ca.pem", "clients.pem"))
    with token_issuer(ca.write_pem(folder / "issuer.pem", "issuer")) as issuer:
        issuer.clients = {"job": SECRET, "hostile": HOSTILE}
        of_oauth, of_tls = "listener.name.sasl_ssl.oauthbearer", "listener.name.ssl"
        overrides = {
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
            f"{of_oauth}.sasl.jaas.config": (
                f'{KAFKAS}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="unused" '
                f'ssl.truststore.type="PEM" ssl.truststore.location="{trust}";'
            ),
            f"{of_oauth}.sasl.server.callback.handler.class": f"{KAFKAS}.OAuthBearerValidatorCallbackHandler",
            f"{of_oauth}.connections.max.reauth.ms": "4000",
            "sasl.oauthbearer.jwks.endpoint.url": issuer.url("/jwks"),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.clock.skew.seconds": 0,
            f"{of_tls}.ssl.client.auth": "required",
            f"{of_tls}.ssl.truststore.type": "PEM",
            f"{of_tls}.ssl.truststore.location": str(clients),
        }
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.url('/jwks')}"
        clients.parent.mkdir()
        ca.write_trusted(clients)
        with secured_broker(
            folder,
            kafka_version,
            listeners=("SASL_SSL", "SSL"),
            overrides=overrides,
            java_options=[allowed],
            ca=ca,
        ) as secured:
            kafka.create_topics(secured.for_tests, {"orders": 1})
            kafka.commit_offsets(secured.for_tests, "billing", {("orders", 0): 1})
            for user in ("job", "hostile", "CN=job"):
                secured.allow_only(user, *listed_rights())
            yield World(secured, issuer, ca)


def signs_in(bootstrap: str, client: dict[str, str]) -> bool:
    return broker_at(bootstrap, client).topic_facts(10) is not None


# --- librdkafka ------------------------------------------------------------------------------------------


def test_librdkafka_signs_in_by_either_form_of_the_settings(world: World) -> None:
    new = world.oauth()
    given = ("client.credentials.client.id", "client.credentials.client.secret", "scope")
    old = {k: v for k, v in new.items() if k.removeprefix("sasl.oauthbearer.") not in given}
    options = f'clientId="job" clientSecret="{SECRET}" scope="kafka & more";'
    old["sasl.jaas.config"] = old["sasl.jaas.config"].replace(";", f" {options}")
    old["sasl.login.callback.handler.class"] = f"{KAFKAS}.secured.OAuthBearerLoginCallbackHandler"
    for client in (new, old):
        world.issuer.asked.clear()
        assert signs_in(world.bootstrap, client)
        assert world.issuer.asked[0].form == {"grant_type": ["client_credentials"], "scope": ["kafka & more"]}


def test_a_secret_of_any_characters_is_sent_as_it_is(world: World) -> None:
    assert signs_in(world.bootstrap, world.oauth(client_id="hostile", secret=HOSTILE))


PAGE = "<html><body>Not now</body></html>"
LONG = "x" * 5_000
SILENT, REFUSED = BrokerError, AccessRefusedError
Problem = tuple[Callable[[World], Callable[..., None]], str, type[BrokerError]]
PROBLEMS: dict[str, Problem] = {
    "a refused client": (lambda _: refuse, r'HTTP status 401, \{"error": "invalid_client"', REFUSED),
    "a bad request": (lambda _: lambda to: answer(to, 400, "{}"), r"HTTP status 400, \{\}", REFUSED),
    "a forbidden one": (
        lambda _: lambda to: answer(to, 403, PAGE, "text/html"),
        "HTTP status 403, <ht",
        REFUSED,
    ),
    "no such page": (
        lambda _: lambda to: answer(to, 404, PAGE, "text/html"),
        "HTTP status 404, <htm",
        SILENT,
    ),
    "a long answer": (lambda _: lambda to: answer(to, 401, LONG), r"for a token: x{300}\.\.\.", SILENT),
    "no answer": (lambda _: cut, r"for a token: \w", SILENT),
    "a page": (
        lambda _: lambda to: answer(to, 200, PAGE, "text/html"),
        "HTTP status 200, Response is not JSON encoded: text/html",
        SILENT,
    ),
    "no token": (
        lambda _: lambda to: answer(to, 200, "{}"),
        'for a token: Expected JSON .*"access_token"',
        SILENT,
    ),
    "a token that cannot be read": (
        lambda _: lambda to: answer(to, 200, '{"access_token": "opaque-9"}'),
        "for a token: .*less than 2 delimiters",
        SILENT,
    ),
    "an expired token, or a wrong clock": (
        lambda world: lambda to: answer(to, 200, world.issuer.token("job", exp=int(time.time()) - 60)),
        "for a token: Must supply an unexpired token",
        SILENT,
    ),
    "a token for others": (
        lambda world: lambda to: answer(to, 200, world.issuer.token("job", aud="others")),
        r'\{"status":"invalid_token"\}',
        REFUSED,
    ),
    "a token of an unknown key": (
        lambda world: lambda to: answer(to, 200, world.issuer.token("job", key_id="key-2")),
        r'\{"status":"invalid_token"\}',
        REFUSED,
    ),
    "an answer that repeats the request": (
        lambda _: lambda to: answer(to, 401, f"{to.headers['Authorization']} {SECRET} \x1b[2J"),
        r"Basic \(hidden\) \(hidden\) \\x1b",
        REFUSED,
    ),
}


def failure_of(broker: Broker) -> BrokerError:
    """Ask until a refusal would count as one."""
    for timeout_s in (2, 3):
        with pytest.raises(BrokerError) as raised:
            broker.topic_facts(timeout_s)
    return raised.value


def test_a_token_endpoint_that_fails_is_quoted_and_only_a_refusal_counts_as_one(world: World) -> None:
    def failure(name: str) -> BrokerError:
        path = f"/{name.replace(' ', '-')}"
        world.issuer.answers[path] = PROBLEMS[name][0](world)
        return failure_of(broker_at(world.bootstrap, world.oauth(path), timeout="2s"))

    with ThreadPoolExecutor(len(PROBLEMS)) as pool:
        found = dict(zip(PROBLEMS, pool.map(failure, PROBLEMS), strict=True))
    for name, error in found.items():
        print(name, type(error).__name__, error)
    for name, error in found.items():
        _, message, kind = PROBLEMS[name]
        assert (name, type(error)) == (name, kind)
        assert re.search(message, str(error)), f"{name}: {error}"
        assert SECRET not in str(error)
        assert not any(token in str(error) for token in world.issuer.issued)


def test_an_endpoint_that_is_not_there_or_not_trusted_is_said(world: World) -> None:
    [port] = free_ports(1)
    nowhere = world.oauth()
    nowhere["sasl.oauthbearer.token.endpoint.url"] = f"https://127.0.0.1:{port}/token"
    untrusted = world.oauth()
    untrusted["sasl.jaas.config"] = f"{KAFKAS}.OAuthBearerLoginModule required;"
    for client, message in ((nowhere, "onnect"), (untrusted, "certificate")):
        with pytest.raises(BrokerError) as raised:
            broker_at(world.bootstrap, client).topic_facts(2)
        said = rf"asking https://127\.0\.0\.1:\d+/token for a token: .*{message}"
        assert re.search(said, str(raised.value))


def test_a_client_certificate_that_has_expired_is_refused(world: World, tmp_path: Path) -> None:
    store = world.client_ca.write_pem(tmp_path / "client.pem", "job", valid_s=-60)
    error = failure_of(broker_at(world.bootstrap_tls, world.tls(store), timeout="2s"))
    assert type(error) is AccessRefusedError
    assert "SSL alert number" in str(error)


# --- the job ---------------------------------------------------------------------------------------------


class Running:
    """The job in a thread, with its end."""

    def __init__(self, job: RunningJob) -> None:
        self.job, self.stop = job, threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Running":
        self.job.tables.create()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def follows(self, world: World, offset: int) -> None:
        """Commit, and wait until the tables have it."""
        kafka.commit_offsets(world.secured.for_tests, "billing", {("orders", 0): offset})
        kafka.wait_until(lambda: self._offset() == offset, f"offset {offset} in the tables", timeout_s=120)

    def has_said(self, text: str) -> bool:
        return any(text in sentence for sentence in self.job.said)

    def _offset(self) -> int | None:
        assert self.is_alive, self.error
        found = table_offsets(self.job.tables).values()
        return next((committed.offset for committed in found), None)

    def _run(self) -> None:
        try:
            self.job.run(self.stop)
        except OffsetlakeError as error:
            self.error = error


@pytest.mark.spark
@pytest.mark.slow
def test_the_job_renews_tokens_outlasts_the_endpoint_and_ends_when_it_is_refused(
    world: World, spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    issuer = world.issuer
    issuer.lifetime_s = 6
    issuer.asked.clear()
    options = {**OFTEN, "source.client": {**world.oauth(), **IMPATIENT}}
    with Running(RunningJob(spark, world.bootstrap, tmp_path, options=options)) as running:
        running.follows(world, 2)
        asked = {java: issuer.asked_by(java=java) for java in (True, False)}
        kafka.wait_until(
            lambda: all(issuer.asked_by(java=java) >= count + 2 for java, count in asked.items()),
            "tokens to be renewed",
        )
        running.follows(world, 3)
        issuer.fails = cut
        kafka.wait_until(lambda: running.has_said("Waiting for the brokers"), "an outage", timeout_s=60)
        kafka.wait_until(lambda: running.has_said("Signing in again"), "Java to notice it", timeout_s=60)
        assert running.is_alive
        issuer.fails = None
        running.follows(world, 4)
        issuer.fails = refuse
        kafka.wait_until(lambda: not running.is_alive, "the job to end", timeout_s=60)
    issuer.fails = None
    assert isinstance(running.error, AccessRefusedError), running.error
    assert 'HTTP status 401, {"error": "invalid_client"' in str(running.error)
    log = next(tmp_path_factory.getbasetemp().glob("spark*/spark.log")).read_text(errors="replace")
    written = [log, str(running.error), *running.job.said]
    for secret in (SECRET, STORE_PASSWORD, *issuer.issued):
        assert not [text for text in written if secret in text]


@pytest.mark.spark
@pytest.mark.slow
def test_both_clients_go_on_with_a_certificate_that_was_replaced(
    world: World, spark: SparkSession, tmp_path: Path
) -> None:
    store = world.client_ca.write_pem(tmp_path / "client.pem", "job")
    client = {**world.tls(store), **IMPATIENT}
    alone = broker_at(world.bootstrap_tls, client)  # librdkafka, without the job
    assert alone.topic_facts() is not None
    job = RunningJob(spark, world.bootstrap_tls, tmp_path, options={**OFTEN, "source.client": client})
    with Running(job) as running:
        running.follows(world, 5)
        world.replace_client_ca()
        with pytest.raises(BrokerError, match="SSL alert number"):
            alone.topic_facts(2)
        world.client_ca.write_pem(store, "job")
        running.follows(world, 6)
        kafka.wait_until(lambda: answers(alone), "librdkafka to read the new one")


def answers(broker: Broker) -> bool:
    try:
        return broker.topic_facts(2) is not None
    except BrokerError:
        return False
