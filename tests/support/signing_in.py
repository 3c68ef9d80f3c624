"""Certificates, credentials and clients for tests of signing in to the Kafka listener."""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from certificates import CertificateAuthority
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from kafka_clients import wait_until
from listening import Client
from new_tables import new_tables
from table_batches import Batch, append, group, offset

from streaming.brokers.jaas import JaasEntry, written_jaas
from streaming.common.times import now_ms
from streaming.model.progress import PartitionProgress
from streaming.settings.model import KafkaListenerSettings, PrincipalSettings
from streaming.settings.scram_credentials import salted
from streaming.tables.tables import Tables

PASSWORD: Final = "correct, horse=battery\\staple é"
"""What SCRAM and JAAS escape is in it."""

SALTED: Final = {
    mechanism: str(salted(PASSWORD, mechanism, salt=bytes(range(16)), iterations=4_096))
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
}
SUBJECT: Final = "CN=a client of a test"
"""The subject of `Credentials.client`."""


def principal(name: str, mechanism: str, credential: str = "", **changed: Any) -> PrincipalSettings:
    return PrincipalSettings(
        name=name, mechanism=mechanism, credential=credential, **{"groups": ("*",), **changed}
    )


BY_PASSWORD: Final = (
    principal("plain=,é", "PLAIN", PASSWORD),
    *(principal("salted=,é", mechanism, credential) for mechanism, credential in SALTED.items()),
)
"""Principals with a password, whose names have what SCRAM escapes."""


@dataclass(frozen=True)
class Credentials:
    """The files of a listener and of a client, of one CA; and a client's of another CA."""

    ca: Path
    server: Path
    client: Path
    expired: Path
    stranger: Path

    @classmethod
    def written(cls, folder: Path, ca: CertificateAuthority) -> "Credentials":
        other = CertificateAuthority()
        name = SUBJECT.removeprefix("CN=")
        return cls(
            ca=ca.write_trusted(folder / "ca.pem"),
            server=ca.write_pem(folder / "server.pem", "a listener of a test"),
            client=ca.write_pem(folder / "client.pem", name),
            expired=ca.write_pem(folder / "expired.pem", name, valid_s=-60),
            stranger=other.write_pem(folder / "stranger.pem", name),
        )

    def listener(self, protocol: str, **broker: str) -> KafkaListenerSettings:
        """Return the settings of a listener; in the names of `broker`, underscores stand for dots."""
        return KafkaListenerSettings(
            listen="127.0.0.1:0",
            security_protocol=protocol,
            certificate_file=str(self.server) if protocol.endswith("SSL") else "",
            broker={name.replace("_", "."): value for name, value in broker.items()},
        )

    def by_certificate(self) -> KafkaListenerSettings:
        """Return the settings of a listener where clients sign in by certificate."""
        return self.listener(
            "SSL",
            ssl_client_auth="required",
            ssl_truststore_type="PEM",
            ssl_truststore_location=str(self.ca),
        )

    def trusting(self, client: Path | None = None) -> ssl.SSLContext:
        """Return TLS of a client that trusts the CA, perhaps with a certificate of its own."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if client is not None:
            context.load_cert_chain(client)
        return context


def some_tables(folder: Path) -> Tables:
    """Make tables with one group, "g"."""
    made = new_tables(folder / "tables")
    batch: Batch = {("g", "t", 0): offset(source_partition=0), "g": group(source_partition=0)}
    append(made, batch, partitions={0: PartitionProgress(loaded=True)}, now=now_ms())
    return made


def signed_in(
    client: Client, name: str = "plain=,é", password: str = PASSWORD, version: int = 2
) -> dict[str, Any]:
    """Sign in with the mechanism PLAIN; return the response to SaslAuthenticate."""
    assert client.ask(17, 1, {"mechanism": "PLAIN"})["errorCode"] == 0
    return client.ask(36, version, {"authBytes": f"\0{name}\0{password}".encode()})


def librdkafka(bootstrap: str, credentials: Credentials, *, protocol: str, **settings: str) -> dict[str, Any]:
    """Return settings of librdkafka; in the names of `settings`, underscores stand for dots."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": protocol,
        "ssl.ca.location": str(credentials.ca),
        **named,
    }


def by_password(mechanism: str, password: str = PASSWORD, name: str | None = None) -> dict[str, str]:
    known = "plain=,é" if mechanism == "PLAIN" else "salted=,é"
    return {"sasl_mechanism": mechanism, "sasl_username": name or known, "sasl_password": password}


def client_file(folder: Path, credentials: Credentials, **settings: str) -> str:
    """Write the file of --command-config; in the names of `settings`, underscores stand for dots."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    named |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(credentials.ca)}
    named |= {"request.timeout.ms": "3000", "default.api.timeout.ms": "4000"}
    lines = "\n".join(f"{name}={value}" for name, value in named.items()).replace("\\", "\\\\")
    text = "".join(one if one.isascii() else f"\\u{ord(one):04x}" for one in lines)  # Java reads Latin-1
    (folder / "client.properties").write_text(text)
    return str(folder / "client.properties")


def sasl_file(folder: Path, credentials: Credentials, mechanism: str, password: str) -> str:
    kind = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    name = "plain=,é" if mechanism == "PLAIN" else "salted=,é"
    options = {"username": name, "password": password}
    jaas = written_jaas(JaasEntry(f"org.apache.kafka.common.security.{kind}", options))
    return client_file(
        folder, credentials, security_protocol="SASL_SSL", sasl_mechanism=mechanism, sasl_jaas_config=jaas
    )


def groups_of(settings: Mapping[str, Any]) -> list[str]:
    """Return the groups that a client of librdkafka is told of."""
    admin = AdminClient(dict(settings))
    found = admin.list_consumer_groups(request_timeout=10).result(15)
    assert found is not None
    assert found.errors == []
    return sorted(one.group_id for one in found.valid or ())


def refusal_of(settings: Mapping[str, Any]) -> str:
    """Return the first error that a client of librdkafka reports, but for lost connections; nothing is
    answered to it."""
    said: list[KafkaError] = []
    admin = AdminClient({**settings, "error_cb": said.append})  # type: ignore[dict-item]
    wanted = (KafkaError._AUTHENTICATION, KafkaError._SSL)

    def of_interest() -> Sequence[KafkaError]:
        admin.poll(0.05)
        return [error for error in said if error.code() in wanted]

    try:
        wait_until(lambda: bool(of_interest()), "a refusal", timeout_s=15)
    except KafkaException as error:
        return str(error)
    return str(of_interest()[0].str())
