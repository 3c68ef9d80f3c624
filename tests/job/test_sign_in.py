"""Signing in by OAUTHBEARER and by client certificates: both clients do, renew, wait, and say why not."""

import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import kafka_clients as kafka
import pytest
from certificates import CertificateAuthority
from kafka_versions import KafkaVersion
from oauth_broker import KAFKAS, FollowingJob, oauth_broker, oauth_client, options, trusting
from pyspark.sql import SparkSession
from running_job import RunningJob
from secured_broker import SecuredBroker
from test_secured import broker_at, listed_rights
from token_issuer import AUDIENCE, ISSUER, TokenIssuer, answer, cut, refuse, token_issuer

from streaming.brokers.broker import Broker
from streaming.brokers.facts import AccessRefusedError, BrokerError
from streaming.demo.local_broker import free_ports

pytestmark = pytest.mark.broker

ON_ITS_OWN = pytest.mark.skipif("SIGN_IN" not in os.environ, reason="`make test-sign-in` runs it: it waits")
"""Tests that wait for tokens to be renewed and for outages to end: a minute each."""

HOSTILE = 'p4ss:"word\\%22+ü é'
SECRET = "battery-staple-3307"


@dataclass
class World:
    """A broker with OAUTHBEARER on its listener SASL_SSL, and client certificates of a CA on SSL."""

    secured: SecuredBroker
    issuer: TokenIssuer
    client_ca: CertificateAuthority

    @property
    def bootstrap(self) -> str:
        return self.secured.bootstrap_servers

    @property
    def bootstrap_tls(self) -> str:
        return self.secured.broker.bootstrap_servers_of("SSL")

    def oauth(self, path: str = "/token", *, client_id: str = "job", secret: str = SECRET) -> dict[str, str]:
        """The settings of a client that gets tokens."""
        client = oauth_client(self.secured, self.issuer.url(path), client_id, secret)
        client["sasl.jaas.config"] = client["sasl.jaas.config"].replace(";", ' extension_team="a,b";')
        return {**client, "sasl.oauthbearer.scope": "kafka & more"}

    def tls(self, store: Path) -> dict[str, str]:
        """The settings of a client with a certificate."""
        own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
        return {"security.protocol": "SSL", **own, **trusting(self.secured)}

    def replace_client_ca(self) -> None:
        """Let the broker refuse all certificates of clients that there are, also of open connections."""
        self.client_ca = CertificateAuthority()
        self.client_ca.write_trusted(self.secured.certificates / "clients.pem")
        self.secured.broker.restart()


@pytest.fixture(scope="module")
def world(kafka_version: KafkaVersion, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder, ca = tmp_path_factory.mktemp("sign-in"), CertificateAuthority()
    clients = folder / "certificates" / "clients.pem"
    clients.parent.mkdir()
    ca.write_trusted(clients)
    with (
        token_issuer(ca.write_pem(folder / "issuer.pem", "issuer")) as issuer,
        oauth_broker(
            folder,
            kafka_version,
            ca=ca,
            jwks_url=issuer.url("/jwks"),
            issuer=ISSUER,
            audience=AUDIENCE,
            listeners=("SASL_SSL", "SSL"),
            listener__name__ssl__ssl__client__auth="required",
            listener__name__ssl__ssl__truststore__type="PEM",
            listener__name__ssl__ssl__truststore__location=str(clients),
        ) as secured,
    ):
        issuer.clients = {"job": SECRET, "hostile": HOSTILE}
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


@pytest.mark.more
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


@pytest.mark.more
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


@pytest.mark.more
def test_a_client_certificate_that_has_expired_is_refused(world: World, tmp_path: Path) -> None:
    store = world.client_ca.write_pem(tmp_path / "client.pem", "job", valid_s=-60)
    error = failure_of(broker_at(world.bootstrap_tls, world.tls(store), timeout="2s"))
    assert type(error) is AccessRefusedError
    assert "SSL alert number" in str(error)


# --- the job ---------------------------------------------------------------------------------------------


@ON_ITS_OWN
@pytest.mark.spark
@pytest.mark.slow
def test_the_job_renews_tokens_outlasts_the_endpoint_and_ends_when_it_is_refused(
    world: World, spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    issuer = world.issuer
    issuer.lifetime_s = 6
    issuer.asked.clear()
    job = RunningJob(spark, world.bootstrap, tmp_path, options=options(world.oauth()))
    with FollowingJob(job, world.secured) as running:
        running.follows(2)
        asked = {java: issuer.asked_by(java=java) for java in (True, False)}
        kafka.wait_until(
            lambda: all(issuer.asked_by(java=java) >= count + 2 for java, count in asked.items()),
            "tokens to be renewed",
        )
        running.follows(3)
        issuer.fails = cut
        running.says("Waiting for the brokers")
        running.says("Signing in again")
        issuer.fails = None
        running.follows(4)
        issuer.fails = refuse
        error = running.ends()
    issuer.fails = None
    assert isinstance(error, AccessRefusedError), error
    assert 'HTTP status 401, {"error": "invalid_client"' in str(error)
    log = next(tmp_path_factory.getbasetemp().glob("spark*/spark.log")).read_text(errors="replace")
    written = [log, str(error), *job.said]
    for secret in (SECRET, *issuer.issued):
        assert not [text for text in written if secret in text]


@ON_ITS_OWN
@pytest.mark.spark
@pytest.mark.slow
def test_both_clients_go_on_with_a_certificate_that_was_replaced(
    world: World, spark: SparkSession, tmp_path: Path
) -> None:
    store = world.client_ca.write_pem(tmp_path / "client.pem", "job")
    client = world.tls(store)
    alone = broker_at(world.bootstrap_tls, client)  # librdkafka, without the job
    assert alone.topic_facts() is not None
    job = RunningJob(spark, world.bootstrap_tls, tmp_path, options=options(client))
    with FollowingJob(job, world.secured) as running:
        running.follows(5)
        world.replace_client_ca()
        with pytest.raises(BrokerError, match="SSL alert number"):
            alone.topic_facts(2)
        world.client_ca.write_pem(store, "job")
        running.follows(6)
        kafka.wait_until(lambda: answers(alone), "librdkafka to read the new one")


def answers(broker: Broker) -> bool:
    try:
        return broker.topic_facts(2) is not None
    except BrokerError:
        return False
