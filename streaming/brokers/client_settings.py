"""Kafka client settings under their Java names, for Spark's connector, and translated for librdkafka.

Spark's connector runs Kafka's Java client, which takes the settings unchanged. Metadata and end offsets are
requested through librdkafka (confluent-kafka), whose security settings differ: JAAS becomes a user name and a
password, and a Java trust store becomes PEM text.
"""

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from streaming.jvm.java import find_java
from streaming.model.errors import MisuseError
from streaming.settings.model import SourceSettings

SAME_NAME: Final = frozenset({"client.dns.lookup", "client.id", "security.protocol"})
"""Settings with the same name, values and meaning in librdkafka.

Others only look the same: `ssl.cipher.suites` has Java's names of ciphers, and intervals have other limits.
"""

SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The SASL mechanisms that both clients support with only a user name and a password."""

_LOGIN_MODULES: Final = ("PlainLoginModule", "ScramLoginModule")

_JAAS_VALUE: Final = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s="';]+"""
_JAAS_OPTION: Final = re.compile(rf"([\w.-]+)\s*=\s*({_JAAS_VALUE})", re.DOTALL)
_JAAS_ENTRY: Final = re.compile(
    rf"\s*(?P<module>[\w.$]+)\s+\w+(?P<options>(?:\s+{_JAAS_OPTION.pattern})*)\s*;\s*", re.DOTALL
)
_JAAS_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_JAAS_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "b": "\b", "v": "\v"}

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_JKS_MAGIC: Final = bytes.fromhex("feedfeed")


def java_client_settings(source: SourceSettings) -> Mapping[str, str]:
    """Return the settings for Kafka's Java client inside Spark's connector, without Spark's `kafka.`
    prefix."""
    return {**source.client, "bootstrap.servers": source.bootstrap_servers}


def librdkafka_settings(client: Mapping[str, str]) -> dict[str, str]:
    """Translate the Java client's settings to librdkafka's.

    Settings that only tune the Java consumer are left out. Raises `MisuseError` for a setting that matters
    for reaching the brokers but has no counterpart.
    """
    translated = {name: client[name] for name in SAME_NAME & client.keys()}
    for name, translate in _TRANSLATIONS.items():
        if name in client:
            translated |= translate(client)
    return translated


def _sasl_mechanism(client: Mapping[str, str]) -> dict[str, str]:
    mechanism = client["sasl.mechanism"]
    if mechanism not in SASL_MECHANISMS:
        raise MisuseError(
            f"sasl.mechanism: expected {', '.join(SASL_MECHANISMS[:-1])} or {SASL_MECHANISMS[-1]}, "
            f"found {mechanism!r}. Other SASL mechanisms are not supported yet."
        )
    return {"sasl.mechanism": mechanism}


def _sasl_credentials(client: Mapping[str, str]) -> dict[str, str]:
    """Extract user name and password from a JAAS entry; other login modules have no counterpart."""
    module, options = _read_jaas(client["sasl.jaas.config"])
    if not module.endswith(_LOGIN_MODULES):
        raise MisuseError(
            f"sasl.jaas.config: expected a login module named ...{' or ...'.join(_LOGIN_MODULES)}, "
            f"found {module!r}. Other SASL mechanisms are not supported yet."
        )
    if not {"username", "password"} <= options.keys():
        raise MisuseError(f"sasl.jaas.config: expected username=... and password=... after {module}.")
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _read_jaas(entry: str) -> tuple[str, dict[str, str]]:
    """Parse `module flag name=value ...;` as Kafka does: the class of the module, and the options by name."""
    found = _JAAS_ENTRY.fullmatch(entry)
    if found is None:
        raise MisuseError(  # without the entry itself: it contains the password
            'sasl.jaas.config: expected one entry, LoginModule required name="value" ...; '
            "found something else. Check its quotes and the semicolon at its end."
        )
    options = _JAAS_OPTION.findall(found["options"])
    return found["module"], {name: _jaas_text(value) for name, value in options}


def _jaas_text(value: str) -> str:
    """Remove quotes and escapes from a value, as java.io.StreamTokenizer does."""

    def character(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code, 8)) if code[0] in "01234567" else _JAAS_ESCAPES.get(code, code)

    return _JAAS_ESCAPE.sub(character, value[1:-1]) if value[0] in "\"'" else value


def _trusted_certificates(client: Mapping[str, str]) -> dict[str, str]:
    """Return the trusted certificates as PEM text, read by the JDK's keytool from a JKS or PKCS12 store."""
    location = client["ssl.truststore.location"]
    if client.get("ssl.truststore.type", "JKS").upper() == "PEM":
        return {"ssl.ca.location": location}
    answer = _list_store(location, client.get("ssl.truststore.password", ""))
    certificates = _CERTIFICATE.findall(answer)
    if not certificates:
        reasons = [line for line in answer.splitlines() if "error" in line]
        raise MisuseError(
            f"ssl.truststore.location: no certificate could be read from {location}: "
            f"{reasons[0] if reasons else 'it shows none'}. Check the file and ssl.truststore.password."
        )
    return {"ssl.ca.pem": "\n".join(certificates)}


def _list_store(location: str, password: str) -> str:
    """Return keytool's listing of a store; the password goes through a pipe, hidden from other processes."""
    keytool = find_java().resolve().with_name("keytool")
    try:
        listing = subprocess.run(
            [keytool, "-list", "-rfc", "-keystore", location],
            input=f"{password}\n",
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise MisuseError(
            f"ssl.truststore.location: reading {location} takes keytool, which could not be started "
            f"({error}). Use a PEM file and ssl.truststore.type=PEM, or a Java with keytool."
        ) from error
    return listing.stdout + listing.stderr


def _trusted_pem(client: Mapping[str, str]) -> dict[str, str]:
    return {"ssl.ca.pem": client["ssl.truststore.certificates"]}


def _client_certificate(client: Mapping[str, str]) -> dict[str, str]:
    location = client["ssl.keystore.location"]
    if client.get("ssl.keystore.type", "JKS").upper() == "PEM":
        return {"ssl.certificate.location": location, "ssl.key.location": location} | _key_password(client)
    if _is_jks(location):
        raise MisuseError(
            f"ssl.keystore.location: expected a PKCS12 or PEM store, found a JKS store at {location}. "
            "Convert it with keytool -importkeystore -srckeystore OLD -destkeystore NEW.p12 "
            "-deststoretype PKCS12 and set ssl.keystore.type=PKCS12."
        )
    return {
        "ssl.keystore.location": location,
        "ssl.keystore.password": client.get("ssl.keystore.password", ""),
    }


def _is_jks(location: str) -> bool:
    """Detect JKS or PKCS12 from the file: Java reads either under both names, and keytool writes PKCS12."""
    try:
        with Path(location).open("rb") as store:
            return store.read(len(_JKS_MAGIC)) == _JKS_MAGIC
    except OSError as error:
        raise MisuseError(f"ssl.keystore.location: {location} cannot be read ({error.strerror}).") from error


def _client_pem(client: Mapping[str, str]) -> dict[str, str]:
    return {
        "ssl.certificate.pem": client["ssl.keystore.certificate.chain"],
        "ssl.key.pem": client.get("ssl.keystore.key", ""),
    } | _key_password(client)


def _key_password(client: Mapping[str, str]) -> dict[str, str]:
    return {"ssl.key.password": client["ssl.key.password"]} if "ssl.key.password" in client else {}


def _host_name_check(client: Mapping[str, str]) -> dict[str, str]:
    """Java's empty text (no check of host names) is librdkafka's `none`."""
    name = "ssl.endpoint.identification.algorithm"
    return {name: client[name] or "none"}


_TRANSLATIONS: Final[Mapping[str, Callable[[Mapping[str, str]], dict[str, str]]]] = {
    "sasl.mechanism": _sasl_mechanism,
    "sasl.jaas.config": _sasl_credentials,
    "ssl.truststore.location": _trusted_certificates,
    "ssl.truststore.certificates": _trusted_pem,
    "ssl.keystore.location": _client_certificate,
    "ssl.keystore.certificate.chain": _client_pem,
    "ssl.endpoint.identification.algorithm": _host_name_check,
}
"""For each Java setting with another name in librdkafka, the function that returns its counterparts."""
