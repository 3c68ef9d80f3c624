"""A real broker with TLS, SASL and an authorizer; its certificates are signed by a CA made for the test.

The job reaches it by SASL_SSL as a user who may do only what was granted. The tests themselves use the
plaintext listener, on which everybody is a super user: for commits, users, rights and the broker's answers.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from certificates import CertificateAuthority
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka_clients import wait_until
from kafka_versions import KafkaVersion

from streaming.demo.local_broker import LocalBroker

Right = tuple[ResourceType, str, ResourcePatternType, AclOperation]
"""What may be done: kind and name of the resource, how the name is meant, and the operation."""

STORE_PASSWORD: Final = "correct-horse"
PLAIN_USER: Final = ("plain-user", "plain-battery-staple")

_TIMEOUT_S: Final = 15.0
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


@dataclass(frozen=True)
class SecuredBroker:
    """A broker that serves SASL_SSL beside PLAINTEXT, and the CA that its certificate is signed by."""

    broker: LocalBroker
    certificates: Path

    @property
    def bootstrap_servers(self) -> str:
        """Where the job connects: TLS, and a login."""
        return self.broker.bootstrap_servers_of("SASL_SSL")

    @property
    def for_tests(self) -> str:
        """Where everything is allowed."""
        return self.broker.bootstrap_servers

    def client(
        self, user: str, password: str, *, mechanism: str = "SCRAM-SHA-512", store: str = "PEM"
    ) -> dict[str, str]:
        """Return the settings of Kafka's Java client, as they stand in a --command-config file.

        `store` is the type of the trust store: reading one of type PKCS12 starts Java's keytool.
        """
        module = _LOGIN_MODULES[mechanism]
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
            "ssl.truststore.type": store,
            **self._trusted(store),
        }

    def _trusted(self, store: str) -> dict[str, str]:
        if store == "PEM":
            return {"ssl.truststore.location": str(self.certificates / "ca.pem")}
        return {
            "ssl.truststore.location": str(self.certificates / "truststore.p12"),
            "ssl.truststore.password": STORE_PASSWORD,
        }

    def add_user(self, name: str, password: str) -> None:
        """Make a user who logs in by SCRAM and may do nothing."""
        add_scram_user(self.for_tests, name, password)

    def allow_only(self, user: str, *rights: Right) -> None:
        """Give a user these rights and no others; returns when the broker goes by them."""
        allow_only(self.for_tests, user, *rights)


def allow_only(bootstrap: str, user: str, *rights: Right) -> None:
    """Give a user these rights and no others; returns when the broker goes by them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    of_user = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]  # any
        ResourcePatternType.ANY,
        f"User:{user}",
        None,  # type: ignore[arg-type]  # any
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    wanted = [
        AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for kind, name, pattern, operation in rights
    ]
    for future in admin.delete_acls([of_user]).values():
        future.result(_TIMEOUT_S)
    for future in admin.create_acls(wanted).values() if wanted else ():
        future.result(_TIMEOUT_S)
    wait_until(
        lambda: set(admin.describe_acls(of_user).result(_TIMEOUT_S)) == set(wanted),
        "rights to be changed",
    )


def add_scram_user(bootstrap: str, name: str, password: str) -> None:
    """Make a user who logs in by SCRAM, or change the password."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        wanted = ScramCredentialInfo(mechanism, 4096)
        upsertion = UserScramCredentialUpsertion(name, wanted, password.encode())
        for future in admin.alter_user_scram_credentials([upsertion]).values():
            future.result(_TIMEOUT_S)


@contextmanager
def secured_broker(
    directory: Path,
    version: KafkaVersion,
    *,
    listeners: Sequence[str] = ("SASL_SSL",),
    overrides: Mapping[str, str | int] | None = None,
    java_options: Sequence[str] = (),
    ca: CertificateAuthority | None = None,
    advertised: Mapping[str, int] | None = None,
) -> Iterator[SecuredBroker]:
    """Run a secured broker in a directory of its own, with two offsets partitions; further options are those
    of `LocalBroker`.

    Its certificates are signed by a CA that is made for it, or by the given one.
    """
    certificates = directory / "certificates"
    certificates.mkdir(parents=True, exist_ok=True)
    ca = ca or CertificateAuthority()
    ca.write_trust_stores(certificates, STORE_PASSWORD)
    ca.write_pkcs12(certificates / "server.p12", "broker of a test", STORE_PASSWORD)
    user, password = PLAIN_USER
    listener = "listener.name.sasl_ssl"
    scram = f"{_LOGIN_MODULES['SCRAM-SHA-512']} required;"
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # whoever comes by the plaintext listener
        "ssl.keystore.location": certificates / "server.p12",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": STORE_PASSWORD,
        f"{listener}.sasl.enabled.mechanisms": ",".join(_LOGIN_MODULES),
        f"{listener}.scram-sha-256.sasl.jaas.config": scram,
        f"{listener}.scram-sha-512.sasl.jaas.config": scram,
        f"{listener}.plain.sasl.jaas.config": (
            f'{_LOGIN_MODULES["PLAIN"]} required user_{user}="{password}";'
        ),
    }
    broker = version.broker(
        directory / "broker",
        offsets_partitions=2,
        listeners=listeners,
        overrides={name: str(value) for name, value in {**settings, **(overrides or {})}.items()},
        more_java_options=java_options,
        advertised=advertised,
    )
    with broker:
        yield SecuredBroker(broker, certificates)
