"""What all SASL mechanisms have in common, and PLAIN."""

import hashlib
import hmac
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from streaming.serve.kafka.principals import Principal


class RefusedError(Exception):
    """A client could not sign in; the message is for our log, and says nothing secret."""


@dataclass(frozen=True)
class SignedIn:
    """The end of an exchange: who signed in, the last token for the client, and when what was shown expires
    (milliseconds since the epoch; None: never)."""

    principal: Principal
    token: bytes = b""
    expires_at: int | None = None


class Exchange(Protocol):
    """One exchange of tokens with a client that signs in."""

    async def next(self, token: bytes) -> bytes | SignedIn:
        """Take a token of the client; return the token for it, or the end. Raises `RefusedError`."""


Begin = Callable[[], Exchange]
"""Begins an exchange."""

_UNKNOWN: Final = os.urandom(32)
_NOT_KNOWN: Final = "wrong password, or unknown name"


class PlainExchange:
    """PLAIN (RFC 4616): name and password in one token."""

    def __init__(self, known: Mapping[str, tuple[str, Principal]]) -> None:
        self._known = known

    async def next(self, token: bytes) -> SignedIn:
        try:
            authorized, name, password = token.decode().split("\0")
        except ValueError:
            raise RefusedError("expected a name and a password, found something else") from None
        if authorized not in ("", name):
            raise RefusedError("expected no other authorization id than the name")
        held, principal = self._known.get(name, (None, None))
        is_right = hmac.compare_digest(_digest(password.encode()), _digest(_bytes(held)))
        if principal is None or not is_right:
            raise RefusedError(_NOT_KNOWN)
        return SignedIn(principal)


def _bytes(password: str | None) -> bytes:
    """Return the password to compare with; that of an unknown name is random."""
    return _UNKNOWN if password is None else password.encode()


def _digest(data: bytes) -> bytes:
    """Return a digest: comparing passwords of other lengths takes another time."""
    return hashlib.sha256(data).digest()
