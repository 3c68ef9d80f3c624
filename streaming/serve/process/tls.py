"""TLS of the listeners: key stores and trust stores, read from files as Kafka's settings name them."""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

from streaming.model.errors import MisuseError

_JKS_MAGIC: Final = bytes.fromhex("feedfeed")
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_PROTOCOLS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CONVERT: Final = (
    "Convert it with keytool -importkeystore -srckeystore OLD -destkeystore NEW.p12 -deststoretype PKCS12 "
    "and set its type to PKCS12."
)


@dataclass(frozen=True)
class ServerTls:
    """A context for a listener, and the names (DNS names and addresses) in its certificate."""

    context: ssl.SSLContext
    names: Sequence[str]

    def is_named(self, host: str) -> bool:
        """Return whether clients that connect to a host accept the certificate."""
        wanted = _name(host)
        wild = f"*.{wanted.partition('.')[2]}"
        return any(name == wanted or (name == wild and "." in wanted) for name in map(_name, self.names))


def read_tls(certificate_file: str, key_file: str, broker: Mapping[str, str], *, where: str) -> ServerTls:
    """Read certificate, key and trusted certificates from their files, or from texts within the settings.

    `broker` has Kafka's names (`ssl...`). Raises `MisuseError`, which begins with `where`, for files that
    cannot be read or do not belong together.
    """
    try:
        pem = _key_store(certificate_file, key_file, broker)
        context = _context(broker)
        _load(context, pem, broker.get("ssl.key.password", ""))
        _trust(context, broker)
    except MisuseError as error:
        raise MisuseError(f"{where}: {error}") from error
    return ServerTls(context, _names_in(pem))


def has_key_store(certificate_file: str, broker: Mapping[str, str]) -> bool:
    return bool(
        certificate_file or broker.keys() & {"ssl.keystore.location", "ssl.keystore.certificate.chain"}
    )


def _context(broker: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    names = [name.strip() for name in broker.get("ssl.enabled.protocols", ",".join(_PROTOCOLS)).split(",")]
    if unknown := [name for name in names if name not in _PROTOCOLS]:
        raise MisuseError(f"ssl.enabled.protocols: expected {' or '.join(_PROTOCOLS)}, found {unknown[0]!r}.")
    versions = [_PROTOCOLS[name] for name in names]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


# --- key stores --------------------------------------------------------------------------------------------


def _key_store(certificate_file: str, key_file: str, broker: Mapping[str, str]) -> bytes:
    """Return key and certificate chain as PEM."""
    if certificate_file:
        return b"\n".join(
            _read(file, "certificate_file and key_file") for file in (certificate_file, key_file) if file
        )
    if "ssl.keystore.certificate.chain" in broker:
        return f"{broker['ssl.keystore.certificate.chain']}\n{broker.get('ssl.keystore.key', '')}".encode()
    data = _read(broker["ssl.keystore.location"], "ssl.keystore.location")
    if _is_pem(broker, "ssl.keystore.type"):
        return data
    return _pem_of_pkcs12(data, broker.get("ssl.keystore.password", ""), "ssl.keystore")


def _load(context: ssl.SSLContext, pem: bytes, password: str) -> None:
    """Load key and chain; Python takes them from a file only."""
    with NamedTemporaryFile(prefix="offsetlake-") as file:  # readable by its owner alone
        file.write(pem)
        file.flush()
        try:
            context.load_cert_chain(file.name, password=password)
        except (ssl.SSLError, ValueError) as error:
            why = getattr(error, "reason", None) or str(error)
            raise MisuseError(
                f"expected a PEM certificate chain with its own key, found: {why}. Check that key and "
                "certificate belong together, and ssl.key.password if the key is encrypted."
            ) from None


def _pem_of_pkcs12(data: bytes, password: str, name: str) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store = _pkcs12(data, password, name)
    if store.key is None or store.cert is None:
        raise MisuseError(f"{name}.location: expected a key with its certificate, found none.")
    certificates = [store.cert, *store.additional_certs]
    key: bytes = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return key + b"".join(one.certificate.public_bytes(Encoding.PEM) for one in certificates)


def _pkcs12(data: bytes, password: str, name: str) -> Any:
    from cryptography.hazmat.primitives.serialization import pkcs12

    if data.startswith(_JKS_MAGIC):
        raise MisuseError(f"{name}.location: expected a PKCS12 or PEM store, found a JKS store. {_CONVERT}")
    try:
        return pkcs12.load_pkcs12(data, password.encode())
    except ValueError:
        raise MisuseError(
            f"{name}.location: expected a PKCS12 store, found something else, or another password. Check "
            f"{name}.password, and set {name}.type to PEM for a PEM file."
        ) from None


# --- trust stores ------------------------------------------------------------------------------------------


def _trust(context: ssl.SSLContext, broker: Mapping[str, str]) -> None:
    """Trust the issuers of client certificates, and demand these as `ssl.client.auth` says."""
    wanted = broker.get("ssl.client.auth", "none")
    if wanted not in _CLIENT_AUTH:
        raise MisuseError(f"ssl.client.auth: expected one of {', '.join(_CLIENT_AUTH)}, found {wanted!r}.")
    context.verify_mode = _CLIENT_AUTH[wanted]
    if wanted == "none":
        return
    trusted = _trusted(broker)
    try:
        context.load_verify_locations(cadata=trusted.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        raise MisuseError("ssl.truststore: expected PEM certificates, found none.") from None


def _trusted(broker: Mapping[str, str]) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    if "ssl.truststore.certificates" in broker:
        return broker["ssl.truststore.certificates"].encode()
    if "ssl.truststore.location" not in broker:
        raise MisuseError(
            "ssl.client.auth: expected ssl.truststore.location beside it, with the issuers of client "
            "certificates, found none."
        )
    data = _read(broker["ssl.truststore.location"], "ssl.truststore.location")
    if _is_pem(broker, "ssl.truststore.type"):
        return data
    store = _pkcs12(data, broker.get("ssl.truststore.password", ""), "ssl.truststore")
    return b"".join(one.certificate.public_bytes(Encoding.PEM) for one in store.additional_certs)


def _is_pem(broker: Mapping[str, str], name: str) -> bool:
    return broker.get(name, "JKS").upper() == "PEM"  # Java reads PKCS12 under the name JKS, too


def _read(file: str, name: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise MisuseError(f"{name}: {file} cannot be read ({error.strerror}).") from error


# --- names -------------------------------------------------------------------------------------------------


def _names_in(pem: bytes) -> list[str]:
    """Return the DNS names and addresses in the first certificate."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificates(pem)[0]
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    dns, addresses = names.get_values_for_type(x509.DNSName), names.get_values_for_type(x509.IPAddress)
    return [*dns, *map(str, addresses)]


def _name(host: str) -> str:
    try:
        return str(ip_address(host.partition("%")[0]))
    except ValueError:
        return host.lower().rstrip(".")
