"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), as Kafka's brokers speak them: without channel
binding and without delegation tokens.

The client proves that it knows the password, and the listener that it has its salted keys.
"""

import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Final

from streaming.serve.kafka.principals import Principal
from streaming.serve.kafka.sasl.exchange import RefusedError, SignedIn
from streaming.settings.scram_credentials import HASHES, ScramCredential

_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_FIRST: Final = re.compile(
    rf"(?P<gs2>n,(a=(?P<authorized>[^,]+))?,)(?P<bare>n=(?P<name>[^,]+),r=(?P<nonce>{_NONCE})(,.*)?)",
    re.DOTALL,
)
_FINAL: Final = re.compile(
    rf"(?P<unproved>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>{_NONCE})(,.*)?),p=(?P<proof>[A-Za-z0-9+/=]+)",
    re.DOTALL,
)
_NAME: Final = re.compile(r"(?:[^=,\0]|=2C|=3D)+")
_ESCAPES: Final = {"=2C": ",", "=3D": "="}


class ScramUsers:
    """The credentials of one mechanism by name, and challenges for unknown names that look the same."""

    def __init__(self, mechanism: str, known: Mapping[str, tuple[ScramCredential, Principal]]) -> None:
        self.hash = HASHES[mechanism]
        self._known = known
        credentials = [credential for credential, _ in known.values()]
        self._like = credentials[0]
        self._key = hashlib.sha256(b"".join(one.server_key for one in credentials)).digest()

    def find(self, name: str) -> tuple[ScramCredential, Principal | None]:
        """Return the credential of a name; for an unknown one, always the same that no password has."""
        if name in self._known:
            return self._known[name]
        size = len(self._like.salt)
        salt = hashlib.shake_256(self._key + name.encode()).digest(size)
        nothing = secrets.token_bytes(len(self._like.server_key))
        return ScramCredential(salt, nothing, nothing, self._like.iterations), None


class ScramExchange:
    """One exchange: two tokens of the client, two of ours."""

    def __init__(self, users: ScramUsers) -> None:
        self._users = users
        self._credential: ScramCredential | None = None

    async def next(self, token: bytes) -> bytes | SignedIn:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise _malformed() from None
        return self._first(text) if self._credential is None else self._final(text)

    def _first(self, text: str) -> bytes:
        found = _FIRST.fullmatch(text)
        if found is None or not _NAME.fullmatch(found["name"]):
            raise _malformed()
        name = re.sub("=2C|=3D", lambda one: _ESCAPES[one[0]], found["name"])
        if found["authorized"] not in (None, found["name"]):
            raise RefusedError("expected no other authorization id than the name")
        self._credential, self._principal = self._users.find(name)
        self._nonce = found["nonce"] + secrets.token_urlsafe(24)
        self._binding = b64encode(found["gs2"].encode()).decode()
        salt = b64encode(self._credential.salt).decode()
        challenge = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._so_far = f"{found['bare']},{challenge}"
        return challenge.encode()

    def _final(self, text: str) -> SignedIn:
        found = _FINAL.fullmatch(text)
        if found is None or found["binding"] != self._binding or found["nonce"] != self._nonce:
            raise _malformed()
        credential, name = self._credential, self._users.hash
        assert credential is not None
        signed = f"{self._so_far},{found['unproved']}".encode()
        proof = _decoded(found["proof"])
        signature = hmac.digest(credential.stored_key, signed, name)
        if len(proof) != len(signature):
            raise _malformed()
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key)
        if self._principal is None or not is_right:
            raise RefusedError("wrong password, or unknown name")
        ours = b64encode(hmac.digest(credential.server_key, signed, name))
        return SignedIn(self._principal, b"v=" + ours)


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except Base64Error:
        raise _malformed() from None


def _malformed() -> RefusedError:
    return RefusedError("expected the messages of SCRAM without channel binding, found something else")
