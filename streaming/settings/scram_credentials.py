"""SCRAM credentials: salted keys of a password, in Kafka's own text form (RFC 5802).

With one, a password can be checked, but a client cannot sign in. The password can only be guessed from it.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from streaming.model.errors import MisuseError

HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The mechanisms, with the name of their hash."""

FEWEST_ITERATIONS: Final = 4_096
"""Kafka's minimum: its Java client refuses fewer."""

NEW_ITERATIONS: Final = 16_384
"""The iterations of new credentials (`offsetlake scram`): four times Kafka's default. A client needs some
milliseconds for them when it signs in."""

_FORM: Final = "salt=...,stored_key=...,server_key=...,iterations=..."
_CREDENTIAL: Final = re.compile(
    r"salt=(?P<salt>[A-Za-z0-9+/=]+),stored_key=(?P<stored>[A-Za-z0-9+/=]+)"
    r",server_key=(?P<server>[A-Za-z0-9+/=]+),iterations=(?P<iterations>[0-9]{1,9})"
)


@dataclass(frozen=True, repr=False)
class ScramCredential:
    """The salt, the iterations of its hash, and the two keys that a server needs."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __str__(self) -> str:
        """Kafka's text form (`ScramCredentialUtils`)."""
        salt, stored, server = (
            b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"


def salted(password: str, mechanism: str, *, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential of a password; like Kafka, without preparing its characters (SASLprep)."""
    name = HASHES[mechanism]
    key = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
    client_key = hmac.digest(key, b"Client Key", name)
    server_key = hmac.digest(key, b"Server Key", name)
    return ScramCredential(salt, hashlib.new(name, client_key).digest(), server_key, iterations)


def read_credential(text: str, mechanism: str, *, where: str) -> ScramCredential:
    """Parse Kafka's text form. Raises `MisuseError`, without the text, for another one."""
    size = hashlib.new(HASHES[mechanism]).digest_size
    found = _CREDENTIAL.fullmatch(text)
    try:
        parts = (
            [b64decode(found[name], validate=True) for name in ("salt", "stored", "server")] if found else []
        )
    except Base64Error:
        parts = []
    if not found or not parts:
        raise _refused(where, f"{_FORM}, the salted keys of a password", "something else", mechanism)
    if {len(parts[1]), len(parts[2])} != {size}:
        other = f"keys of {len(parts[1])} and {len(parts[2])}"
        raise _refused(where, f"keys of {size} bytes", f"{other} (another mechanism?)", mechanism)
    if int(found["iterations"]) < FEWEST_ITERATIONS:
        wanted = f"at least {FEWEST_ITERATIONS} iterations"
        raise _refused(where, wanted, found["iterations"], mechanism)
    return ScramCredential(parts[0], parts[1], parts[2], int(found["iterations"]))


def _refused(where: str, expected: str, found: str, mechanism: str) -> MisuseError:
    return MisuseError(
        f"{where}: expected {expected}, found {found}. Make it with: offsetlake scram "
        f"--mechanism {mechanism}."
    )
