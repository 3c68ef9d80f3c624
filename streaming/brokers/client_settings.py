"""Kafka client settings under their Java names, for Spark's connector, and translated for librdkafka.

Spark's connector runs Kafka's Java client. Metadata and end offsets are requested through librdkafka
(confluent-kafka), whose security settings differ: JAAS becomes a user name and a password, and a Java trust
store becomes PEM text. Both sign in alike.
"""

import itertools
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from streaming.brokers import msk_iam, oauthbearer
from streaming.brokers.jaas import read_jaas
from streaming.brokers.tls import translated_tls
from streaming.jvm.jars import JarSet
from streaming.model.errors import MisuseError
from streaming.settings.model import SourceSettings

SAME_NAME: Final = frozenset(
    {
        "bootstrap.servers",
        "client.dns.lookup",
        "client.id",
        "sasl.oauthbearer.sub.claim.name",
        "security.protocol",
    }
)
"""Settings with the same name, values and meaning in librdkafka.

Others only look the same: `ssl.cipher.suites` has Java's names of ciphers, and intervals have other limits.
"""


class SignIn(Protocol):
    """A SASL mechanism whose settings both clients need in a form of their own."""

    def java(self, client: Mapping[str, str], *, login: int) -> dict[str, str]:
        """Return the settings `client` for the connector's Java client; `login` differs at each call."""

    def librdkafka(self) -> Mapping[str, Any]:
        """Return the settings of librdkafka for this mechanism, perhaps with a callback."""


def _read_oauthbearer(client: Mapping[str, str]) -> SignIn:
    if msk_iam.is_msk_iam(client):
        return msk_iam.read_msk_iam(client)
    return oauthbearer.read_client_credentials(client)


_SIGN_INS: Final[Mapping[str, Callable[[Mapping[str, str]], SignIn]]] = {
    oauthbearer.MECHANISM: _read_oauthbearer,
    msk_iam.MECHANISM: msk_iam.read_msk_iam,
}
"""For each such mechanism, the function that reads Java's settings."""

_PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The SASL mechanisms that both clients support with only a user name and a password."""

SASL_MECHANISMS: Final = (*_PASSWORD_MECHANISMS, *_SIGN_INS)
"""The SASL mechanisms that both clients support."""

_LOGIN_MODULES: Final = ("PlainLoginModule", "ScramLoginModule")
_KERBEROS: Final = "GSSAPI"  # Kafka's default mechanism
_logins: Final = itertools.count(1)


def java_client_settings(source: SourceSettings) -> Mapping[str, str]:
    """Return the settings for Kafka's Java client inside Spark's connector, without Spark's `kafka.` prefix.

    Clients with the result of one call share a login (and so a token), and no others. Raises `MisuseError`.
    """
    client = client_of(source)
    sign_in = _sign_in(client)
    return client if sign_in is None else sign_in.java(client, login=next(_logins))


@dataclass(frozen=True, kw_only=True)
class JavaNeeds:
    """What Java's client needs to sign in: jars besides the connector's, and system properties of its JVM."""

    jar_sets: tuple[JarSet, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


def java_needs(source: SourceSettings) -> JavaNeeds:
    """Return what the sign-in of these settings needs. Raises `MisuseError`."""
    sign_in = _sign_in(client_of(source))
    if not isinstance(sign_in, msk_iam.MskIam):
        return JavaNeeds()
    return JavaNeeds(jar_sets=("msk-iam",), properties={"aws.region": sign_in.region})


def client_of(source: SourceSettings) -> dict[str, str]:
    """Return all settings of Kafka's Java client that the user has given."""
    return {**source.client, "bootstrap.servers": source.bootstrap_servers}


def librdkafka_settings(client: Mapping[str, str]) -> dict[str, Any]:
    """Translate the Java client's settings to librdkafka's.

    Settings that only tune the Java consumer are left out. Raises `MisuseError` for a setting that matters
    for reaching the brokers but has no counterpart.
    """
    translated = {name: client[name] for name in SAME_NAME & client.keys()}
    return {**translated, **_translated_sasl(client), **translated_tls(client)}


def secrets_of(translated: Mapping[str, Any]) -> list[str]:
    """Return the texts by which servers could recognize this user, among librdkafka's settings: an answer
    may repeat what it was sent."""
    secret = translated.get("sasl.oauthbearer.client.secret")
    if secret is None:
        return []
    pair = f"{translated['sasl.oauthbearer.client.id']}:{secret}"
    return [b64encode(pair.encode()).decode(), secret]


def _sign_in(client: Mapping[str, str]) -> SignIn | None:
    read = _SIGN_INS.get(client.get("sasl.mechanism", ""))
    return None if read is None else read(client)


def _translated_sasl(client: Mapping[str, str]) -> Mapping[str, Any]:
    if (sign_in := _sign_in(client)) is not None:
        return sign_in.librdkafka()
    mechanism = _mechanism(client)
    return mechanism | (_credentials(client["sasl.jaas.config"]) if "sasl.jaas.config" in client else {})


def _mechanism(client: Mapping[str, str]) -> dict[str, str]:
    uses_sasl = client.get("security.protocol", "").upper().startswith("SASL_")
    mechanism = client.get("sasl.mechanism", _KERBEROS if uses_sasl else None)
    if mechanism is None or mechanism in _PASSWORD_MECHANISMS:
        return {} if mechanism is None else {"sasl.mechanism": mechanism}
    default = " (Kafka's default)" if "sasl.mechanism" not in client else ""
    reason = (
        "The package confluent-kafka is built without Kerberos (docs/security.md)."
        if mechanism == _KERBEROS
        else "Other SASL mechanisms are not supported yet."
    )
    raise MisuseError(
        f"sasl.mechanism: expected {', '.join(SASL_MECHANISMS[:-1])} or {SASL_MECHANISMS[-1]}, "
        f"found {mechanism!r}{default}. {reason}"
    )


def _credentials(jaas: str) -> dict[str, str]:
    """Extract user name and password from a JAAS entry; other login modules have no counterpart."""
    entry = read_jaas(jaas)
    if not entry.module.endswith(_LOGIN_MODULES):
        raise MisuseError(
            f"sasl.jaas.config: expected a login module named ...{' or ...'.join(_LOGIN_MODULES)}, "
            f"found {entry.module!r}. It does not match sasl.mechanism, or is not supported yet."
        )
    if not {"username", "password"} <= entry.options.keys():
        raise MisuseError(f"sasl.jaas.config: expected username=... and password=... after {entry.module}.")
    return {"sasl.username": entry.options["username"], "sasl.password": entry.options["password"]}
