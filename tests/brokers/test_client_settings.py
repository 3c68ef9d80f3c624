"""Client settings: properties are read as Java reads them, and librdkafka takes what is translated."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from streaming.brokers.client_settings import librdkafka_settings
from streaming.jvm.java import JavaError, find_java
from streaming.model.errors import MisuseError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"

# --- SASL ------------------------------------------------------------------------------------------------

JAAS = {
    f'{PLAIN} required username="u" password="p";': ("u", "p"),
    f"{SCRAM} required username='u' password='p';": ("u", "p"),
    f"{SCRAM} required username=u-1.x password=p_2 ;": ("u-1.x", "p_2"),
    f' {PLAIN}\n  required\n  password="p"\n  username = "u"\n; ': ("u", "p"),
    f'{PLAIN} required username="u" password="p;q=\'r\' s";': ("u", "p;q='r' s"),
    f"""{PLAIN} required username='a"b' password="it's";""": ('a"b', "it's"),
    rf'{PLAIN} required username="u\"v" password="a\\b\tc\101\u";': ('u"v', "a\\b\tcAu"),
    f'{PLAIN} required username="ü" password="";': ("ü", ""),
    f'{SCRAM} required username="u" password="p" tokenauth="true";': ("u", "p"),
    "PlainLoginModule optional username=u password=p;": ("u", "p"),
}


@pytest.mark.parametrize(("entry", "credentials"), JAAS.items())
def test_credentials_are_taken_out_of_jaas(entry: str, credentials: tuple[str, str]) -> None:
    username, password = credentials
    assert librdkafka_settings({"sasl.jaas.config": entry}) == {
        "sasl.username": username,
        "sasl.password": password,
    }


BAD_JAAS = {
    "": "expected one entry",
    ";": "expected one entry",
    PLAIN: "expected one entry",
    f'{PLAIN} required username="u" password="s3cret"': "semicolon",
    f'{PLAIN} required username="u" password="s3cret;': "quotes",
    f'{PLAIN} required username="u" password="s3cret"; {PLAIN} required;': "expected one entry",
    f'{PLAIN} required username="u";': "expected username=... and password=...",
    "com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;": "found 'com.sun.security",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;": "not supported yet",
}


@pytest.mark.parametrize(("entry", "message"), BAD_JAAS.items())
def test_jaas_that_cannot_be_translated_is_explained(entry: str, message: str) -> None:
    with pytest.raises(MisuseError, match=r"^sasl\.jaas\.config: ") as raised:
        librdkafka_settings({"sasl.jaas.config": entry})
    assert message in str(raised.value)
    assert "s3cret" not in str(raised.value)


EXPECTED = "expected PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM, found"


@pytest.mark.parametrize("mechanism", ["GSSAPI", "oauthbearer", "plain", ""])
def test_other_mechanisms_are_refused(mechanism: str) -> None:
    with pytest.raises(MisuseError, match=EXPECTED):
        librdkafka_settings({"sasl.mechanism": mechanism})


@pytest.mark.parametrize("protocol", ["SASL_SSL", "sasl_plaintext"])
def test_kerberos_is_refused_with_the_reason_also_as_the_default(protocol: str) -> None:
    with pytest.raises(MisuseError, match=rf"{EXPECTED} 'GSSAPI' \(Kafka's default\)\. .*without Kerberos"):
        librdkafka_settings({"security.protocol": protocol})


# --- TLS -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def java() -> Path:
    try:
        return find_java()
    except JavaError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def stores(java: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one key pair in each form: store.jks, store.p12, certificate.pem."""
    folder = tmp_path_factory.mktemp("stores")
    common = ["-alias", "client", "-storepass", "changeit"]
    for name, kind in [("store.jks", "JKS"), ("store.p12", "PKCS12")]:
        keytool(java, folder, "-genkeypair", "-keyalg", "EC", "-dname", "CN=localhost", *common,
                "-keypass", "changeit", "-storetype", kind, "-keystore", name)  # fmt: skip
    keytool(
        java, folder, "-exportcert", "-rfc", *common, "-keystore", "store.p12", "-file", "certificate.pem"
    )
    shutil.copy(folder / "store.p12", folder / "pkcs12.jks")  # what keytool makes of `-keystore pkcs12.jks`
    return folder


def keytool(java: Path, folder: Path, *arguments: str) -> None:
    program = java.resolve().with_name("keytool")
    subprocess.run([program, *arguments], cwd=folder, capture_output=True, check=True)


@pytest.mark.parametrize(
    "name", ["store.jks", "store.p12", pytest.param("pkcs12.jks", marks=pytest.mark.more)]
)
@pytest.mark.parametrize(
    "kind", ["JKS", *(pytest.param(kind, marks=pytest.mark.more) for kind in ("PKCS12", None))]
)
def test_java_trust_store_becomes_pem(stores: Path, name: str, kind: str | None) -> None:
    given = {"ssl.truststore.location": str(stores / name), "ssl.truststore.password": "changeit"}
    translated = librdkafka_settings(given | ({} if kind is None else {"ssl.truststore.type": kind}))
    assert translated["ssl.ca.pem"].count("-----BEGIN CERTIFICATE-----") == 1
    if name != "store.jks":
        lines = (stores / "certificate.pem").read_text().split()
        assert translated["ssl.ca.pem"].split() == lines
    assert_accepted({"security.protocol": "SSL", **translated})


def test_the_password_of_a_trust_store_is_given_to_keytool_by_a_pipe(
    stores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words of a command line and its environment can be seen by others."""
    keytool = tmp_path / "keytool"
    keytool.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/words; env >> {tmp_path}/words; cat > {tmp_path}/read\n'
        f"cat {stores / 'certificate.pem'}\n"
    )
    keytool.chmod(0o700)
    monkeypatch.setattr("streaming.brokers.tls.find_java", lambda: tmp_path / "java")
    given = {"ssl.truststore.location": "/keys/trust.p12", "ssl.truststore.password": "s3cr3t"}
    assert "ssl.ca.pem" in librdkafka_settings(given)
    assert (tmp_path / "read").read_text() == "s3cr3t\n"
    words = (tmp_path / "words").read_text()
    assert "/keys/trust.p12" in words
    assert "s3cr3t" not in words


@pytest.fixture
def listings(stores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A keytool that lists any store, and the file with a line for each time."""
    keytool = tmp_path / "keytool"
    keytool.write_text(f"#!/bin/sh\necho >> {tmp_path}/listings; cat {stores / 'certificate.pem'}\n")
    keytool.chmod(0o700)
    monkeypatch.setattr("streaming.brokers.tls.find_java", lambda: tmp_path / "java")
    return tmp_path / "listings"


def test_a_trust_store_is_listed_again_only_if_it_was_replaced(tmp_path: Path, listings: Path) -> None:
    store = tmp_path / "trust.p12"
    given = {"ssl.truststore.location": str(store), "ssl.truststore.password": "s3cr3t"}
    for content, password, lines in (
        ("one", "s3cr3t", 1),
        ("one", "another", 2),
        ("two", "s3cr3t", 3),
    ):
        if not store.exists() or store.read_text() != content:
            (tmp_path / "new").write_text(content)
            (tmp_path / "new").rename(store)
        for _ in range(2):
            assert "ssl.ca.pem" in librdkafka_settings({**given, "ssl.truststore.password": password})
        assert listings.read_text().count("\n") == lines


def test_a_keytool_that_does_not_end_is_given_up(
    tmp_path: Path, listings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keytool").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("streaming.brokers.tls._KEYTOOL_LIMIT_S", 0.5)
    with pytest.raises(MisuseError, match=r"keytool within 0\.5 s, found none.*ssl\.truststore\.type=PEM"):
        librdkafka_settings({"ssl.truststore.location": "/keys/trust.p12"})


BAD_TRUST_STORES = {
    "wrong password": ("store.p12", "wrong", "password was incorrect"),
    "no password": ("store.p12", None, "it shows none"),
    "no file": ("none.jks", "changeit", "does not exist"),
    "no store": ("certificate.pem", "changeit", "keytool error"),
}


@pytest.mark.parametrize(
    ("name", "password", "reason"), BAD_TRUST_STORES.values(), ids=BAD_TRUST_STORES.keys()
)
def test_trust_store_that_cannot_be_read_is_explained(
    stores: Path, name: str, password: str | None, reason: str
) -> None:
    given = {"ssl.truststore.location": str(stores / name)}
    with pytest.raises(MisuseError, match="no certificate could be read from") as raised:
        librdkafka_settings(given | ({} if password is None else {"ssl.truststore.password": password}))
    assert reason in str(raised.value)


def test_pem_trust_store_stays_a_file() -> None:
    given = {"ssl.truststore.type": "pem", "ssl.truststore.location": "/keys/ca.pem"}
    assert librdkafka_settings(given) == {"ssl.ca.location": "/keys/ca.pem"}


def test_pem_texts_are_passed_on() -> None:
    given = {
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.certificate.chain": "CHAIN",
        "ssl.keystore.key": "KEY",
        "ssl.key.password": "p",
    }
    expected = {
        "ssl.ca.pem": "CA",
        "ssl.certificate.pem": "CHAIN",
        "ssl.key.pem": "KEY",
        "ssl.key.password": "p",
    }
    assert librdkafka_settings(given) == expected


def test_pem_key_store_stays_a_file() -> None:
    given = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/keys/me.pem", "ssl.key.password": "p"}
    assert librdkafka_settings(given) == {
        "ssl.certificate.location": "/keys/me.pem",
        "ssl.key.location": "/keys/me.pem",
        "ssl.key.password": "p",
    }


@pytest.mark.parametrize("name", ["store.p12", "pkcs12.jks"])
def test_pkcs12_key_store_is_taken_whatever_its_name(stores: Path, name: str) -> None:
    given = {"ssl.keystore.location": str(stores / name), "ssl.keystore.password": "changeit"}
    assert librdkafka_settings(given) == given
    assert_accepted({"security.protocol": "SSL", **given})


@pytest.mark.parametrize(
    ("name", "message"),
    [("store.jks", "found a JKS store at .*keytool -importkeystore"), ("none", "cannot be read")],
)
def test_key_store_that_cannot_be_taken_is_explained(stores: Path, name: str, message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        librdkafka_settings({"ssl.keystore.location": str(stores / name)})


# --- librdkafka ------------------------------------------------------------------------------------------

ACCEPTED: dict[str, dict[str, str]] = {
    "nothing": {},
    "every setting of the same name": {
        "client.dns.lookup": "use_all_dns_ips",
        "client.id": "offsetlake-1",
        "sasl.oauthbearer.sub.claim.name": "azp",
        "security.protocol": "PLAINTEXT",
    },
    "tuning of the Java client": {
        "receive.buffer.bytes": "-1",
        "metadata.max.age.ms": "0",
        "request.timeout.ms": "2000000000",
        "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "fetch.max.wait.ms": "1",
        "max.poll.records": "1000",
    },
    "SASL": {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM} required username="u" password="p";',
    },
    "SASL over TLS without a check of host names": {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="u" password="p";',
        "ssl.endpoint.identification.algorithm": "",
    },
    "TLS with a check of host names": {
        "security.protocol": "ssl",
        "ssl.endpoint.identification.algorithm": "https",
    },
}


@pytest.mark.parametrize("client", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_librdkafka_accepts_what_is_translated(client: dict[str, str]) -> None:
    assert_accepted(librdkafka_settings(client))


def assert_accepted(translated: dict[str, Any]) -> None:
    complaints: list[str] = []

    class Logger:
        def log(self, _level: int, _form: str, *texts: Any) -> None:
            complaints.extend(text for text in map(str, texts) if "CONFWARN" in text)

    admin = AdminClient({"bootstrap.servers": "localhost:1", **translated}, logger=Logger())
    admin.poll(0)
    assert complaints == [], json.dumps(translated)
