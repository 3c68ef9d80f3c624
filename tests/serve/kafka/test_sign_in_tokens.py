"""Signing in to the Kafka listener by OAUTHBEARER: tokens that an issuer has signed, and others."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from certificates import CertificateAuthority
from cryptography.hazmat.primitives.asymmetric import rsa
from listening import Client, Listening, listening
from signing_in import PASSWORD, Credentials, groups_of, librdkafka, principal, some_tables
from token_issuer import AUDIENCE, ISSUER, TokenIssuer, token_issuer

from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.sasl import oauthbearer
from streaming.serve.kafka.sasl.exchange import RefusedError
from streaming.serve.kafka.sasl.oauthbearer import _read
from streaming.serve.kafka.security import Security
from streaming.serve.process.security import read_security
from streaming.tables.tables import Tables

HANDSHAKE, AUTHENTICATE, LIST_GROUPS = 17, 36, 16
NAME = "a client"


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    return Credentials.written(tmp_path_factory.mktemp("certificates"), CertificateAuthority())


@pytest.fixture(autouse=True)
def _trusted(credentials: Credentials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(credentials.ca))


@pytest.fixture
def issuer(credentials: Credentials) -> Iterator[TokenIssuer]:
    with token_issuer(credentials.server) as running:
        running.clients[NAME] = "secret"
        yield running


def by_tokens(credentials: Credentials, issuer: TokenIssuer, **broker: str) -> Security:
    listener = credentials.listener(
        "SASL_SSL",
        sasl_oauthbearer_jwks_endpoint_url=issuer.url("/keys"),
        sasl_oauthbearer_expected_audience=AUDIENCE,
        sasl_oauthbearer_expected_issuer=ISSUER,
        sasl_oauthbearer_clock_skew_seconds="0",
        **broker,
    )
    known = [principal(NAME, "OAUTHBEARER"), principal("plain", "PLAIN", PASSWORD)]
    return read_security(listener, known)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return some_tables(tmp_path)


@pytest.fixture
def endpoint(tables: Tables, credentials: Credentials, issuer: TokenIssuer) -> Iterator[Listening]:
    with listening(tables, security=by_tokens(credentials, issuer), within_ms=10**9) as running:
        yield running


def token_of(issuer: TokenIssuer, **changed: Any) -> str:
    return str(json.loads(issuer.token(NAME, **changed))["access_token"])


def shown(client: Client, token: str, authorized: str = "") -> dict[str, Any]:
    """Show a token; return the answer."""
    assert client.ask(HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})["errorCode"] == 0
    message = f"n,{authorized},\x01auth=Bearer {token}\x01\x01".encode()
    return client.ask(AUTHENTICATE, 2, {"authBytes": message})


def is_refused(client: Client, token: str, authorized: str = "") -> bool:
    """Tell whether a token is refused, as RFC 7628 has it: the client answers to the refusal."""
    answered = shown(client, token, authorized)
    if answered["errorCode"] != 0 or not answered["authBytes"]:
        return False
    assert json.loads(answered["authBytes"]) == {"status": "invalid_token"}
    answered = client.ask(AUTHENTICATE, 2, {"authBytes": b"\x01"})
    assert answered["errorCode"] == Error.SASL_AUTHENTICATION_FAILED
    assert client.frame() == b""
    return True


def test_librdkafka_signs_in_with_a_token(
    endpoint: Listening, credentials: Credentials, issuer: TokenIssuer
) -> None:
    settings = librdkafka(
        endpoint.bootstrap,
        credentials,
        protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_method="oidc",
        sasl_oauthbearer_client_id=NAME,
        sasl_oauthbearer_client_secret="secret",
        sasl_oauthbearer_token_endpoint_url=issuer.url(),
        https_ca_location=str(credentials.ca),
    )
    assert groups_of(settings) == ["g"]


def test_a_session_lasts_as_long_as_its_token(
    endpoint: Listening, credentials: Credentials, issuer: TokenIssuer
) -> None:
    with Client(endpoint.bootstrap, tls=credentials.trusting()) as client:
        answered = shown(client, token_of(issuer, exp=int(time.time()) + 2))
        assert (answered["errorCode"], answered["authBytes"]) == (0, b"")
        assert 0 < answered["sessionLifetimeMs"] <= 2_000
        again = shown(client, token_of(issuer, exp=int(time.time()) + 60))
        assert 55_000 < again["sessionLifetimeMs"] <= 60_000
        time.sleep(2.2)  # the first token has expired
        assert client.ask(LIST_GROUPS, 0, {})["errorCode"] == 0
        shown(client, token_of(issuer, exp=int(time.time()) + 2))
        time.sleep(2.2)
        client.send(LIST_GROUPS, 0, {})
        assert client.frame() == b""


def test_the_name_of_the_principal_may_be_given_beside_the_token(
    endpoint: Listening, credentials: Credentials, issuer: TokenIssuer
) -> None:
    with Client(endpoint.bootstrap, tls=credentials.trusting()) as client:
        assert shown(client, token_of(issuer), f"a={NAME}")["authBytes"] == b""


WRONG: dict[str, dict[str, Any]] = {
    "expired": {"exp": 1},
    "without an end": {"exp": None},
    "not valid yet": {"nbf": 9_999_999_999},
    "of another audience": {"aud": "another"},
    "without an audience": {"aud": None},
    "of another issuer": {"iss": "https://other.example"},
    "of another client": {"sub": "another"},
    "of a principal with a password": {"sub": "plain"},
    "of a client that is no text": {"sub": 7},
    "with an unknown key": {"key_id": "key-2"},
}


@pytest.mark.parametrize("which", WRONG)
def test_a_wrong_token_is_refused(
    endpoint: Listening, credentials: Credentials, issuer: TokenIssuer, which: str
) -> None:
    token = token_of(issuer, **WRONG[which])
    with Client(endpoint.bootstrap, tls=credentials.trusting()) as client:
        assert is_refused(client, token)
    assert token not in str(endpoint.said)
    with Client(endpoint.bootstrap, tls=credentials.trusting()) as client:
        assert not is_refused(client, token_of(issuer))


@pytest.mark.parametrize(
    "way", ["unsigned", "another key", "a public key as a secret", "cut", "empty", "extended"]
)
def test_a_token_that_the_issuer_did_not_sign_is_refused(
    endpoint: Listening, credentials: Credentials, issuer: TokenIssuer, way: str
) -> None:
    right = token_of(issuer)
    claims = jwt.decode(right, options={"verify_signature": False})
    head = {"kid": "key-1"}
    other = rsa.generate_private_key(65537, 2048)
    token = {
        "unsigned": lambda: jwt.encode(claims, None, "none", headers=head),
        "another key": lambda: jwt.encode(claims, other, "RS256", headers=head),
        "a public key as a secret": lambda: jwt.encode(
            claims, issuer.jwks()["keys"][0]["n"], "HS256", headers=head
        ),
        "cut": lambda: right[:-10],
        "empty": lambda: "e.e.e",
        "extended": lambda: right + "x" * 40_000,
    }[way]()
    with Client(endpoint.bootstrap, tls=credentials.trusting()) as client:
        assert is_refused(client, token)


def test_who_is_named_beside_the_token_is_its_principal(
    endpoint: Listening, credentials: Credentials, issuer: TokenIssuer
) -> None:
    with Client(endpoint.bootstrap, tls=credentials.trusting()) as client:
        assert is_refused(client, token_of(issuer), "a=plain")


def test_keys_are_not_requested_for_every_unknown_one_and_remain_without_the_endpoint(
    endpoint: Listening, credentials: Credentials, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = list[str]()
    fetch = oauthbearer._fetched

    def fetched(url: str) -> Any:
        requested.append(url)
        if len(requested) > 1:
            raise OSError("unreachable")
        return fetch(url)

    monkeypatch.setattr(oauthbearer, "_fetched", fetched)
    for key_id in ("key-1", "key-2", "key-3", "key-1"):
        with Client(endpoint.bootstrap, tls=credentials.trusting()) as client:
            assert is_refused(client, token_of(issuer, key_id=key_id)) is (key_id != "key-1")
    assert len(requested) == 1
    monkeypatch.setattr(oauthbearer, "_AGAIN_S", 0.0)
    for key_id in ("key-2", "key-1"):
        with Client(endpoint.bootstrap, tls=credentials.trusting()) as client:
            assert is_refused(client, token_of(issuer, key_id=key_id)) is (key_id != "key-1")
    assert len(requested) == 2


def test_without_the_endpoint_nobody_signs_in_and_the_log_says_why(
    endpoint: Listening, credentials: Credentials, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(credentials.client))  # trusts another one
    with Client(endpoint.bootstrap, tls=credentials.trusting()) as client:
        assert is_refused(client, token_of(issuer))
    assert "the JWKS endpoint does not respond as expected" in str(endpoint.said)
    assert "CERTIFICATE_VERIFY_FAILED" in str(endpoint.said)


def test_an_endpoint_that_is_silent_holds_up_only_clients_with_unknown_keys(
    endpoint: Listening, credentials: Credentials, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(endpoint.bootstrap, tls=credentials.trusting()) as client:
        assert not is_refused(client, token_of(issuer))
    is_over = threading.Event()
    monkeypatch.setattr(oauthbearer, "_fetched", lambda _: is_over.wait(20))
    monkeypatch.setattr(oauthbearer, "_AGAIN_S", 0.0)
    monkeypatch.setattr(oauthbearer.SigningKeys, "_is_due", lambda *_: True)
    with (
        Client(endpoint.bootstrap, tls=credentials.trusting()) as waiting,
        Client(endpoint.bootstrap, tls=credentials.trusting()) as client,
    ):
        assert waiting.ask(HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})["errorCode"] == 0
        message = f"n,,\x01auth=Bearer {token_of(issuer, key_id='key-2')}\x01\x01".encode()
        waiting.send(AUTHENTICATE, 2, {"authBytes": message})
        assert not is_refused(client, token_of(issuer))
        assert not is_over.is_set()
        is_over.set()


@pytest.mark.parametrize("pair", ["auth=bearer a\x01", "a=b\x01", "\x01", "auth=", "n,,"])
def test_a_message_of_many_parts_is_refused_in_time_that_grows_with_its_length(pair: str) -> None:
    def takes(count: int) -> float:
        began = time.process_time()
        for _ in range(5):
            with pytest.raises(RefusedError):
                _read(f"n,,\x01{pair * count}".encode())
        return time.process_time() - began

    assert takes(8_000) < 100 * takes(500) + 0.1  # with a square, 256 times as long
