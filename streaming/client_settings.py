"""Kafka client settings under their Java names, for Spark's connector, and translated for librdkafka.

Spark's connector runs Kafka's Java client and takes its settings as they are. Metadata and end offsets are
asked through librdkafka (confluent-kafka), which spells security differently: JAAS becomes a user name and
a password, and a Java trust store becomes PEM text.
"""

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from streaming.errors import MisuseError
from streaming.java import find_java

SAME_NAME: Final = frozenset(
    {
        "client.dns.lookup",
        "client.id",
        "metadata.max.age.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "sasl.kerberos.service.name",
        "security.protocol",
        "ssl.cipher.suites",
    }
)
"""Settings that librdkafka knows under the same name and with the same meaning."""

_JAAS_OPTION: Final = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'|([^\s;]+))')
_PASSWORD_MODULES: Final = ("PlainLoginModule", "ScramLoginModule")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(file: Path) -> dict[str, str]:
    """Read a Java properties file, the one that Kafka's own tools take as `--command-config`.

    Raises `MisuseError` when the file cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MisuseError(f"client settings {file}: cannot be read ({error}).") from error
    return dict(_property(line) for line in _logical_lines(text))


def librdkafka_settings(client: Mapping[str, str]) -> dict[str, str]:
    """Translate the Java client's settings to librdkafka's.

    Settings that only tune the Java consumer are left out. What cannot be carried over but matters for
    reaching the brokers raises `MisuseError`.
    """
    translated = {name: client[name] for name in SAME_NAME & client.keys()}
    for name, translate in _TRANSLATIONS.items():
        if name in client:
            translated |= translate(client)
    return translated


def _logical_lines(text: str) -> list[str]:
    """Join continued lines (odd number of trailing backslashes); drop blank lines and comments."""
    lines: list[str] = []
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.lstrip()
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = line[:-1]
        else:
            lines.append(line)
            pending = ""
    return [*lines, pending] if pending else lines


def _property(line: str) -> tuple[str, str]:
    """Split at the first unescaped `=`, `:` or blank, as java.util.Properties does."""
    found = re.match(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", line, re.DOTALL)
    assert found is not None  # the pattern matches every text
    return _unescape(found[1]), _unescape(found[2])


def _unescape(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", character, text, flags=re.DOTALL)


def _sasl_mechanism(client: Mapping[str, str]) -> dict[str, str]:
    return {"sasl.mechanism": client["sasl.mechanism"]}


def _sasl_credentials(client: Mapping[str, str]) -> dict[str, str]:
    """Take user name and password out of a JAAS entry; other login modules have no counterpart."""
    jaas = client["sasl.jaas.config"]
    module = jaas.split(maxsplit=1)[0] if jaas.split() else ""
    options = {name: double or single or bare for name, double, single, bare in _JAAS_OPTION.findall(jaas)}
    if not module.endswith(_PASSWORD_MODULES):
        raise MisuseError(
            f"sasl.jaas.config: expected a login module named ...{' or ...'.join(_PASSWORD_MODULES)}, "
            f"found {module or 'nothing'!r}. Other SASL mechanisms are not supported yet."
        )
    if not {"username", "password"} <= options.keys():
        raise MisuseError(f"sasl.jaas.config: expected username=... and password=... after {module}.")
    return {
        "sasl.username": _unescape(options["username"]),
        "sasl.password": _unescape(options["password"]),
    }


def _trusted_certificates(client: Mapping[str, str]) -> dict[str, str]:
    """Give the trusted certificates as PEM text, read by the JDK's keytool from a JKS or PKCS12 store."""
    location = client["ssl.truststore.location"]
    if client.get("ssl.truststore.type", "JKS").upper() == "PEM":
        return {"ssl.ca.location": location}
    keytool = find_java().resolve().with_name("keytool")
    listing = subprocess.run(
        [str(keytool), "-list", "-rfc", "-keystore", location],
        input=client.get("ssl.truststore.password", "") + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    pem = "\n".join(
        re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", listing.stdout, re.S)
    )
    if not pem:
        reason = (listing.stdout + listing.stderr).strip().splitlines()
        raise MisuseError(
            f"ssl.truststore.location: no certificate could be read from {location}: "
            f"{reason[-1] if reason else 'the store is empty'}. Check the file and ssl.truststore.password."
        )
    return {"ssl.ca.pem": pem}


def _trusted_pem(client: Mapping[str, str]) -> dict[str, str]:
    return {"ssl.ca.pem": client["ssl.truststore.certificates"]}


def _client_certificate(client: Mapping[str, str]) -> dict[str, str]:
    location = client["ssl.keystore.location"]
    kind = client.get("ssl.keystore.type", "JKS").upper()
    if kind == "PEM":
        return {"ssl.certificate.location": location, "ssl.key.location": location} | _key_password(client)
    if kind == "PKCS12" or location.endswith((".p12", ".pfx")):
        return {
            "ssl.keystore.location": location,
            "ssl.keystore.password": client.get("ssl.keystore.password", ""),
        }
    raise MisuseError(
        f"ssl.keystore.location: {location} is a {kind} store; a PKCS12 or PEM store is needed. "
        "Convert it with keytool -importkeystore -srckeystore OLD -destkeystore NEW.p12 "
        "-deststoretype PKCS12 and set ssl.keystore.type=PKCS12."
    )


def _client_pem(client: Mapping[str, str]) -> dict[str, str]:
    return {
        "ssl.certificate.pem": client["ssl.keystore.certificate.chain"],
        "ssl.key.pem": client.get("ssl.keystore.key", ""),
    } | _key_password(client)


def _key_password(client: Mapping[str, str]) -> dict[str, str]:
    return {"ssl.key.password": client["ssl.key.password"]} if "ssl.key.password" in client else {}


def _host_name_check(client: Mapping[str, str]) -> dict[str, str]:
    return {
        "ssl.endpoint.identification.algorithm": client["ssl.endpoint.identification.algorithm"] or "none"
    }


_TRANSLATIONS: Final[Mapping[str, Callable[[Mapping[str, str]], dict[str, str]]]] = {
    "sasl.mechanism": _sasl_mechanism,
    "sasl.jaas.config": _sasl_credentials,
    "ssl.truststore.location": _trusted_certificates,
    "ssl.truststore.certificates": _trusted_pem,
    "ssl.keystore.location": _client_certificate,
    "ssl.keystore.certificate.chain": _client_pem,
    "ssl.endpoint.identification.algorithm": _host_name_check,
}
"""For each Java setting that librdkafka spells differently: the function that gives its counterparts."""
