"""Kafka's own kafka-consumer-groups signs in to the listener, and says why it could not."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import CertificateAuthority
from java_lines import JavaLines
from listening import Listening, listening
from signing_in import (
    BY_PASSWORD,
    PASSWORD,
    SUBJECT,
    Credentials,
    client_file,
    principal,
    sasl_file,
    some_tables,
)

from streaming.serve.process.security import read_security
from streaming.tables.tables import Tables

pytestmark = [pytest.mark.broker, pytest.mark.slow]

LIST = ["--list", "--timeout", "4000"]


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    return Credentials.written(tmp_path_factory.mktemp("certificates"), CertificateAuthority())


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return some_tables(tmp_path_factory.mktemp("some"))


@pytest.fixture(scope="module")
def sasl(tables: Tables, credentials: Credentials) -> Iterator[Listening]:
    listener = credentials.listener("SASL_SSL", connections_max_reauth_ms="2000")
    with listening(tables, security=read_security(listener, BY_PASSWORD), within_ms=10**9) as running:
        yield running


@pytest.fixture(scope="module")
def certified(tables: Tables, credentials: Credentials) -> Iterator[Listening]:
    security = read_security(credentials.by_certificate(), [principal(SUBJECT, "SSL")])
    with listening(tables, security=security, within_ms=10**9) as running:
        yield running


def told(tool: JavaLines, endpoint: Listening, file: str) -> str:
    """Return what the tool prints; its exit code is 0 after an error, too."""
    ran = tool.ask({"run": ["--bootstrap-server", endpoint.bootstrap, *LIST, "--command-config", file]})
    return str(ran["out"])


@pytest.mark.parametrize(
    "mechanism",
    [*(pytest.param(name, marks=pytest.mark.more) for name in ("PLAIN", "SCRAM-SHA-256")), "SCRAM-SHA-512"],
)
def test_the_right_password_signs_in(
    consumer_groups: JavaLines, sasl: Listening, credentials: Credentials, tmp_path: Path, mechanism: str
) -> None:
    file = sasl_file(tmp_path, credentials, mechanism, PASSWORD)
    assert told(consumer_groups, sasl, file) == "g\n"


@pytest.mark.parametrize("mechanism", [pytest.param("PLAIN", marks=pytest.mark.more), "SCRAM-SHA-512"])
def test_a_wrong_one_does_not(
    consumer_groups: JavaLines, sasl: Listening, credentials: Credentials, tmp_path: Path, mechanism: str
) -> None:
    said = told(consumer_groups, sasl, sasl_file(tmp_path, credentials, mechanism, "wrong"))
    assert f"SaslAuthenticationException: Signing in by {mechanism} failed: invalid credentials." in said


def test_a_certificate_signs_in_and_none_does_not(
    consumer_groups: JavaLines, certified: Listening, credentials: Credentials, tmp_path: Path
) -> None:
    store = {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(credentials.client)}
    file = client_file(tmp_path, credentials, security_protocol="SSL", **store)
    assert told(consumer_groups, certified, file) == "g\n"
    said = told(consumer_groups, certified, client_file(tmp_path, credentials, security_protocol="SSL"))
    assert "TimeoutException" in said  # asyncio sends no alert, so that Java tries again


@pytest.mark.more
def test_a_certificate_of_another_ca_is_refused_by_the_client(
    consumer_groups: JavaLines, sasl: Listening, credentials: Credentials, tmp_path: Path
) -> None:
    other = Credentials.written(tmp_path, CertificateAuthority())
    said = told(consumer_groups, sasl, sasl_file(tmp_path, other, "PLAIN", PASSWORD))
    assert "SslAuthenticationException: SSL handshake failed" in said
    assert credentials.ca != other.ca
