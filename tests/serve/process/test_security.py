"""What a Kafka listener needs before it is opened: addresses, certificates and their names, principals."""

import ssl
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from certificates import CertificateAuthority
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from signing_in import BY_PASSWORD, PASSWORD, SALTED, SUBJECT, Credentials, principal

from streaming.model.errors import MisuseError
from streaming.serve.kafka.security import Security
from streaming.serve.process.security import read_security
from streaming.settings.model import KafkaListenerSettings, PrincipalSettings

OPEN = "0.0.0.0:9193"


@pytest.fixture(scope="module")
def ca() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.fixture(scope="module")
def credentials(ca: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    return Credentials.written(tmp_path_factory.mktemp("certificates"), ca)


def refused(listener: KafkaListenerSettings, principals: tuple[PrincipalSettings, ...] = BY_PASSWORD) -> str:
    with pytest.raises(MisuseError) as raised:
        read_security(listener, principals)
    return str(raised.value)


def handshake(security: Security, credentials: Credentials, client: Path | None = None) -> bool:
    """Tell whether TLS can be negotiated with a client that trusts the CA."""
    assert security.tls is not None
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = security.tls.wrap_bio(to_server, to_client, server_side=True)
    trusting = credentials.trusting(client)
    own = trusting.wrap_bio(to_client, to_server, server_hostname="localhost")
    for side in [own, server] * 3:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError:
            return False
    return True


# --- addresses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"security_protocol": "SASL_PLAINTEXT"},
        {"security_protocol": "SSL"},
        {"security_protocol": "SSL", "broker": {"ssl.client.auth": "requested"}},
    ],
    ids=str,
)
def test_other_machines_need_tls_and_signing_in(credentials: Credentials, changed: dict[str, Any]) -> None:
    listener = KafkaListenerSettings(listen=OPEN, certificate_file=str(credentials.server), **changed)
    said = refused(listener)
    assert f"listening on {OPEN}: expected a loopback address" in said
    assert 'security_protocol = "SASL_SSL"' in said
    assert "insecure = true" in said


def test_insecure_allows_it() -> None:
    assert read_security(KafkaListenerSettings(listen=OPEN, insecure=True), BY_PASSWORD) == Security()


@pytest.mark.parametrize(
    ("protocol", "broker"), [("SASL_SSL", {}), ("SSL", {"ssl.client.auth": "required"})], ids=str
)
def test_tls_and_signing_in_allow_it(credentials: Credentials, protocol: str, broker: dict[str, str]) -> None:
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(credentials.ca)}
    listener = KafkaListenerSettings(
        listen=OPEN,
        advertise="localhost:9193",
        security_protocol=protocol,
        certificate_file=str(credentials.server),
        broker={**trust, **broker},
    )
    assert read_security(listener, (*BY_PASSWORD, principal(SUBJECT, "SSL"))).tls is not None


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT", "SSL"])
def test_without_principals_nobody_could_sign_in(credentials: Credentials, protocol: str) -> None:
    trust = {"ssl_truststore_type": "PEM", "ssl_truststore_location": str(credentials.ca)}
    listener = credentials.listener(protocol, ssl_client_auth="required", **trust)
    assert "expected [[serve.principals]] that sign in by" in refused(listener, ())


def test_a_certificate_without_tls_is_a_mistake(credentials: Credentials) -> None:
    listener = KafkaListenerSettings(listen="127.0.0.1:0", certificate_file=str(credentials.server))
    assert "expected security_protocol SSL or SASL_SSL beside a certificate" in refused(listener)


# --- the names of a certificate ----------------------------------------------------------------------------


HOSTS = [
    x509.DNSName("offsets.example.com"),
    x509.DNSName("*.lake.example.com"),
    x509.IPAddress(IPv4Address("10.0.0.7")),
]


@pytest.mark.parametrize(
    ("advertise", "is_named"),
    [
        ("offsets.example.com:9193", True),
        ("Offsets.Example.Com:9193", True),
        ("a.lake.example.com:9193", True),
        ("10.0.0.7:9193", True),
        ("lake.example.com:9193", False),
        ("a.b.lake.example.com:9193", False),
        ("other.example.com:9193", False),
        ("10.0.0.8:9193", False),
        ("", False),  # clients would be told 127.0.0.1
    ],
)
def test_what_is_advertised_is_a_name_of_the_certificate(
    ca: CertificateAuthority, tmp_path: Path, advertise: str, is_named: bool
) -> None:
    server = ca.write_pem(tmp_path / "server.pem", "x", hosts=HOSTS)
    listener = KafkaListenerSettings(
        listen="127.0.0.1:0",
        advertise=advertise,
        security_protocol="SASL_SSL",
        certificate_file=str(server),
    )
    if is_named:
        read_security(listener, BY_PASSWORD)
    else:
        assert "(offsets.example.com, *.lake.example.com, 10.0.0.7), found " in refused(listener)


# --- key stores and trust stores ---------------------------------------------------------------------------


def stores(ca: CertificateAuthority, credentials: Credentials, folder: Path) -> dict[str, dict[str, Any]]:
    """The same key in every form that is taken."""
    pem = credentials.server.read_bytes()
    at = pem.index(b"-----BEGIN CERTIFICATE")
    key, chain, encrypted = folder / "tls.key", folder / "tls.crt", folder / "encrypted.key"
    key.write_bytes(pem[:at])
    chain.write_bytes(pem[at:])
    private = load_pem_private_key(pem[:at], None)
    hidden = BestAvailableEncryption(b"secret")
    encrypted.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden))
    pkcs12 = ca.write_pkcs12(folder / "server.p12", "x", "secret")
    p12 = {"ssl.keystore.location": str(pkcs12), "ssl.keystore.password": "secret"}
    texts = {"ssl.keystore.certificate.chain": pem[at:].decode(), "ssl.keystore.key": pem[:at].decode()}
    locations = {"ssl.keystore.location": str(credentials.server), "ssl.keystore.type": "PEM"}
    return {
        "one file": {"certificate_file": str(credentials.server)},
        "two files": {"certificate_file": str(chain), "key_file": str(key)},
        "encrypted": {
            "certificate_file": str(chain),
            "key_file": str(encrypted),
            "broker": {"ssl.key.password": "secret"},
        },
        "PEM": {"broker": locations},
        "PKCS12": {"broker": {**p12, "ssl.keystore.type": "PKCS12"}},
        "JKS, which is PKCS12": {"broker": p12},
        "texts": {"broker": texts},
    }


@pytest.mark.parametrize(
    "form", ["one file", "two files", "encrypted", "PEM", "PKCS12", "JKS, which is PKCS12", "texts"]
)
def test_every_form_of_key_store_is_taken(
    ca: CertificateAuthority, credentials: Credentials, tmp_path: Path, form: str
) -> None:
    given = stores(ca, credentials, tmp_path)[form]
    listener = KafkaListenerSettings(listen="127.0.0.1:0", security_protocol="SASL_SSL", **given)
    assert handshake(read_security(listener, BY_PASSWORD), credentials)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"certificate_file": "/nowhere.pem"}, "/nowhere.pem cannot be read (No such file"),
        ({"certificate_file": ""}, "expected one of certificate_file, ssl.keystore.location"),
        ({"certificate_file": "CA"}, "expected a PEM certificate chain with its own key, found: "),
        ({"key_file": "CLIENT"}, "chain with its own key, found: "),
        ({"broker": {"ssl.keystore.location": "x"}}, "found certificate_file and ssl.keystore.location"),
        ({"broker": {"ssl.enabled.protocols": "TLSv1.1"}}, "expected TLSv1.2 or TLSv1.3, found 'TLSv1.1'"),
        ({"broker": {"ssl.client.auth": "yes"}}, "expected one of none, requested, required, found 'yes'"),
        ({"broker": {"ssl.client.auth": "required"}}, "expected ssl.truststore.location beside it"),
        ({"certificate_file": "", "broker": {"ssl.keystore.location": "JKS"}}, "found a JKS store"),
        (
            {"certificate_file": "", "broker": {"ssl.keystore.location": "SERVER"}},
            "set ssl.keystore.type to PEM",
        ),
        ({"broker": {"connections.max.reauth.ms": "1h"}}, "expected a whole number, found '1h'"),
    ],
    ids=str,
)
def test_an_unusable_one_is_refused(
    credentials: Credentials, tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    jks = tmp_path / "store.jks"
    jks.write_bytes(bytes.fromhex("feedfeed00000002"))
    server = credentials.server.read_text()
    without_key = tmp_path / "certificate.pem"
    without_key.write_text(server[server.index("-----BEGIN CERTIFICATE") :])
    files = {"CA": credentials.ca, "CLIENT": credentials.client, "JKS": jks, "SERVER": credentials.server}

    def of_file(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: of_file(text) for name, text in value.items()}
        return str(files.get(value, value))

    known = {"certificate_file": str(without_key if "key_file" in changed else credentials.server)}
    given = known | {name: of_file(value) for name, value in changed.items()}
    listener = KafkaListenerSettings(listen="127.0.0.1:0", security_protocol="SASL_SSL", **given)
    assert said in refused(listener)


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
@pytest.mark.parametrize("wanted", ["required", "requested"])
def test_certificates_of_clients_are_checked(
    ca: CertificateAuthority, credentials: Credentials, tmp_path: Path, kind: str, wanted: str
) -> None:
    ca.write_trust_stores(tmp_path, "secret")
    file = tmp_path / {"PEM": "ca.pem", "PKCS12": "truststore.p12"}[kind]
    trust = {"ssl_truststore_type": kind, "ssl_truststore_password": "secret"}
    listener = credentials.listener(
        "SASL_SSL", ssl_client_auth=wanted, ssl_truststore_location=str(file), **trust
    )
    security = read_security(listener, BY_PASSWORD)
    assert handshake(security, credentials, credentials.client)
    assert not handshake(security, credentials, credentials.stranger)
    assert not handshake(security, credentials, credentials.expired)
    assert handshake(security, credentials) is (wanted == "requested")


# --- principals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (BY_PASSWORD[0], "expected it once with mechanism PLAIN, found it twice"),
        (principal("a", "PLAIN"), "expected a credential with mechanism PLAIN, found none"),
        (principal("a", "SSL", PASSWORD), "expected no credential with mechanism SSL, found one"),
        (principal("a", "OAUTHBEARER", PASSWORD), "expected no credential with mechanism OAUTHBEARER"),
        (principal("a", "OAUTHBEARER"), "sasl.oauthbearer.jwks.endpoint.url: expected an https address"),
        (principal("a", "SCRAM-SHA-512", PASSWORD), "the salted keys of a password, found something else"),
        (
            principal("a", "SCRAM-SHA-512", SALTED["SCRAM-SHA-256"]),
            "expected keys of 64 bytes, found keys of 32 and 32 (another mechanism?)",
        ),
        (
            principal("a", "SCRAM-SHA-256", SALTED["SCRAM-SHA-256"].replace("4096", "4095")),
            "expected at least 4096 iterations, found 4095",
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else one.mechanism,
)
def test_a_wrong_principal_is_refused_without_its_secret(
    credentials: Credentials, wrong: PrincipalSettings, said: str
) -> None:
    message = refused(credentials.listener("SASL_SSL"), (*BY_PASSWORD, wrong))
    assert said in message
    assert not wrong.credential or wrong.credential not in message


@pytest.mark.parametrize("url", ["http://idp.example/keys", "file:///etc/passwd", "https://", "keys"])
def test_keys_of_tokens_come_by_https(credentials: Credentials, url: str) -> None:
    listener = credentials.listener("SASL_SSL")
    listener = replace(listener, broker={"sasl.oauthbearer.jwks.endpoint.url": url})
    assert f"found {url}" in refused(listener, (principal("a", "OAUTHBEARER"),))
