"""Older releases of kafka-consumer-groups sign in to the listener.

Only `make test-clients` runs this (it sets CLIENTS).
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import CertificateAuthority
from consumer_groups_tool import RELEASES, start_consumer_groups
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

pytestmark = [
    pytest.mark.clients,
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif("CLIENTS" not in os.environ, reason="`make test-clients` runs it"),
]

OLDER = [release for release in RELEASES if release != "4.3.1"]  # which `make test` tries


@pytest.fixture(scope="module")
def ca() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.fixture(scope="module")
def credentials(ca: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    return Credentials.written(tmp_path_factory.mktemp("certificates"), ca)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return some_tables(tmp_path_factory.mktemp("some"))


@pytest.fixture(scope="module")
def sasl(tables: Tables, credentials: Credentials) -> Iterator[Listening]:
    security = read_security(credentials.listener("SASL_SSL"), BY_PASSWORD)
    with listening(tables, security=security, within_ms=10**9) as running:
        yield running


@pytest.fixture(scope="module")
def certified(tables: Tables, credentials: Credentials) -> Iterator[Listening]:
    security = read_security(credentials.by_certificate(), [principal(SUBJECT, "SSL")])
    with listening(tables, security=security, within_ms=10**9) as running:
        yield running


@pytest.mark.parametrize("release", OLDER)
def test_older_releases_sign_in_in_every_way(
    sasl: Listening,
    certified: Listening,
    ca: CertificateAuthority,
    credentials: Credentials,
    tmp_path: Path,
    release: str,
) -> None:
    store = ca.write_pkcs12(
        tmp_path / "client.p12", SUBJECT.removeprefix("CN="), "secret"
    )  # 2.8 needs a password
    own = {"ssl_keystore_type": "PKCS12", "ssl_keystore_location": str(store)}
    own |= {"ssl_keystore_password": "secret", "ssl_key_password": "secret"}
    with start_consumer_groups(release) as tool:

        def told(endpoint: Listening, file: str) -> str:
            listed = ["--bootstrap-server", endpoint.bootstrap, "--list", "--command-config", file]
            return str(tool.ask({"run": listed})["out"])

        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            assert told(sasl, sasl_file(tmp_path, credentials, mechanism, PASSWORD)) == "g\n"
            said = told(sasl, sasl_file(tmp_path, credentials, mechanism, "wrong"))
            assert f"Signing in by {mechanism} failed: invalid credentials." in said
        assert told(certified, client_file(tmp_path, credentials, security_protocol="SSL", **own)) == "g\n"
