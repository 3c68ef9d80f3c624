"""How clients sign in to a Kafka listener: by TLS, SASL, both or neither."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from streaming.serve.kafka.principals import Principal
from streaming.serve.kafka.sasl.exchange import Begin


@dataclass(frozen=True, kw_only=True)
class Security:
    """Certificates, keys and principals of a listener; a connection keeps those for TLS, and reads
    those for SASL again at each sign-in.

    `tls` None: no TLS. `certified` has the principals by the subject of their certificates; None: clients
    do not sign in by certificate. `mechanisms` has the SASL mechanisms; empty: they do not sign in by SASL. A
    session lasts at most `session_ms` (0: no limit).
    """

    tls: ssl.SSLContext | None = None
    certified: Mapping[str, Principal] | None = None
    mechanisms: Mapping[str, Begin] = field(default_factory=dict)
    session_ms: int = 0


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate (DER) in the form of Kafka's principals: `CN=billing,O=Example`
    (RFC 4514)."""
    from cryptography import x509  # only listeners with TLS need it

    return x509.load_der_x509_certificate(certificate).subject.rfc4514_string()
