"""Certificates for tests: a CA, and what it signs, valid for as long as a test wants."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

_DAY_S: Final = 86_400.0
_HERE: Final = (x509.DNSName("localhost"), x509.IPAddress(IPv4Address("127.0.0.1")))


class CertificateAuthority:
    """A CA with a key of its own."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"CA {x509.random_serial_number():x} of a test")  # clients look for it by name
        self._certificate = self._sign(self._name, self._key, _DAY_S, is_ca=True)

    def write_trusted(self, file: Path) -> Path:
        """Write the CA's certificate as a PEM trust store."""
        return _replaced(file, self._certificate.public_bytes(Encoding.PEM))

    def write_trust_stores(self, folder: Path, password: str) -> None:
        """Write the CA's certificate as `ca.pem` and `truststore.p12`."""
        self.write_trusted(folder / "ca.pem")
        trusted = [pkcs12.PKCS12Certificate(self._certificate, b"ca")]
        encryption = BestAvailableEncryption(password.encode())
        store = pkcs12.serialize_java_truststore(trusted, encryption)
        (folder / "truststore.p12").write_bytes(store)

    def write_pem(
        self, file: Path, name: str, *, valid_s: float = _DAY_S, hosts: Sequence[x509.GeneralName] = _HERE
    ) -> Path:
        """Write a new key of `CN=name` and its certificate as a PEM key store, in one step."""
        key, certificate = self._issued(name, valid_s, hosts)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return _replaced(file, private + certificate.public_bytes(Encoding.PEM))

    def write_pkcs12(self, file: Path, name: str, password: str, *, valid_s: float = _DAY_S) -> Path:
        """Write the same as a PKCS12 key store."""
        key, certificate = self._issued(name, valid_s)
        encryption = BestAvailableEncryption(password.encode())
        store = pkcs12.serialize_key_and_certificates(
            name.encode(), key, certificate, [self._certificate], encryption
        )
        return _replaced(file, store)

    def _issued(
        self, name: str, valid_s: float, hosts: Sequence[x509.GeneralName] = _HERE
    ) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        key = ec.generate_private_key(ec.SECP256R1())
        return key, self._sign(_name(name), key, valid_s, is_ca=False, hosts=hosts)

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        valid_s: float,
        *,
        is_ca: bool,
        hosts: Sequence[x509.GeneralName] = _HERE,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(seconds=valid_s))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
            .sign(self._key, SHA256())
        )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _replaced(file: Path, content: bytes) -> Path:
    new = file.with_name(f"{file.name}.new")
    new.write_bytes(content)
    return new.replace(file)
