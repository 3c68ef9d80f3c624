"""TLS settings of Kafka's Java client, translated for librdkafka: trust stores, key stores, host names."""

import re
import ssl
import subprocess
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from streaming.jvm.java import find_java
from streaming.model.errors import MisuseError

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_JKS_MAGIC: Final = bytes.fromhex("feedfeed")
_KEYTOOL_LIMIT_S: Final = 30.0

_CA_FILES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Red Hat
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # macOS
)


def translated_tls(client: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's settings for the TLS settings among these. Raises `MisuseError`."""
    translated: dict[str, str] = {}
    for name, translate in _TRANSLATIONS.items():
        if name in client:
            translated |= translate(client)
    return translated


def system_ca_file() -> str | None:
    """Return the file with the CAs that this system trusts; None: there is none at the usual places.

    It is SSL_CERT_FILE, if that is set.
    """
    found = (ssl.get_default_verify_paths().cafile, *_CA_FILES)
    return next((file for file in found if file and Path(file).is_file()), None)


def _trusted_certificates(client: Mapping[str, str]) -> dict[str, str]:
    """Return the trusted certificates as PEM text, read by the JDK's keytool from a JKS or PKCS12 store."""
    location = client["ssl.truststore.location"]
    if client.get("ssl.truststore.type", "JKS").upper() == "PEM":
        return {"ssl.ca.location": location}
    password = client.get("ssl.truststore.password", "")
    return {"ssl.ca.pem": _certificates_in(location, password, _version_of(location))}


def _version_of(location: str) -> tuple[int, ...]:
    """Return what differs once the file was replaced; empty if there is no file."""
    try:
        found = Path(location).stat()
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size


@lru_cache(maxsize=4)  # of brokers and of a token endpoint; keytool starts a JVM, and clients are often new
def _certificates_in(location: str, password: str, _version: tuple[int, ...]) -> str:
    answer = _list_store(location, password)
    certificates = _CERTIFICATE.findall(answer)
    if not certificates:
        reasons = [line for line in answer.splitlines() if "error" in line]
        raise MisuseError(
            f"ssl.truststore.location: no certificate could be read from {location}: "
            f"{reasons[0] if reasons else 'it shows none'}. Check the file and ssl.truststore.password."
        )
    return "\n".join(certificates)


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
            timeout=_KEYTOOL_LIMIT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise MisuseError(
            f"ssl.truststore.location: reading {location}: expected an answer of keytool within "
            f"{_KEYTOOL_LIMIT_S:g} s, found none. Check that the file can be read, or use a PEM file and "
            "ssl.truststore.type=PEM."
        ) from error
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
    "ssl.truststore.location": _trusted_certificates,
    "ssl.truststore.certificates": _trusted_pem,
    "ssl.keystore.location": _client_certificate,
    "ssl.keystore.certificate.chain": _client_pem,
    "ssl.endpoint.identification.algorithm": _host_name_check,
}
"""For each Java setting, the function that returns its counterparts in librdkafka."""
