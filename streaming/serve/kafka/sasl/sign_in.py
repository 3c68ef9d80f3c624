"""The sign-in of one connection by SASL, as a broker does it: first SaslHandshake with a mechanism, then
tokens until the client is signed in; again before its session ends (KIP-368).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from time import monotonic
from typing import Final

from decoders.messages.reader import Message
from streaming.common.times import now_ms
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.limits import Closed, UnansweredError
from streaming.serve.kafka.principals import Principal
from streaming.serve.kafka.sasl.exchange import Exchange, RefusedError, SignedIn
from streaming.serve.kafka.security import Security

HANDSHAKE: Final = 17
AUTHENTICATE: Final = 36
_API_VERSIONS: Final = 18
_WITH_FRAMES: Final = 1  # the first version of SaslHandshake whose tokens come in SaslAuthenticate
_ILLEGAL: Final = "expected SaslHandshake and then SaslAuthenticate, found another order"


class SignInError(UnansweredError):
    """The client must be disconnected: it is not signed in, or failed to."""

    reason = Closed.SIGN_IN


class Tokens(Enum):
    """How the next token comes."""

    NONE = auto()  # no exchange has begun
    FRAMED = auto()  # in SaslAuthenticate
    RAW = auto()  # after its size


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The reply to a token; `refused` says why the client could not sign in, for our log."""

    token: bytes = b""
    session_ms: int = 0
    message: str | None = None
    refused: str = ""

    def body(self) -> Message:
        """Return the body of SaslAuthenticate."""
        error = Error.SASL_AUTHENTICATION_FAILED if self.refused else Error.NONE
        return {
            "errorCode": error,
            "errorMessage": self.message,
            "authBytes": self.token,
            "sessionLifetimeMs": self.session_ms,
        }


class SignIn:
    """Who has signed in at a connection, and until when.

    `present` returns the present mechanisms and limit of sessions, which may change while the connection is
    open. Each handshake reads them again. A refused client gets the reply after `refused_s`.
    """

    def __init__(self, present: Callable[[], Security], *, refused_s: float) -> None:
        self._present, self._refused_s = present, refused_s
        self._security = present()
        self._exchange: Exchange | None = None
        self._mechanism = ""
        self._ends_at: float | None = None
        self.tokens = Tokens.NONE
        self.principal: Principal | None = None

    def admit(self, api_key: int) -> None:
        """Admit a request of another API; raises `SignInError`."""
        if self.tokens is not Tokens.NONE:
            raise SignInError(_ILLEGAL)
        if self.principal is None and api_key != _API_VERSIONS:
            raise SignInError("a request before signing in")
        if self._ends_at is not None and monotonic() >= self._ends_at:
            raise SignInError("a request after its session")

    def handshake(self, mechanism: str, version: int) -> Message:
        """Return the response to SaslHandshake; raises `SignInError` in the middle of an exchange."""
        if self.tokens is not Tokens.NONE:
            raise SignInError(_ILLEGAL)
        self._security = self._present()
        offered = sorted(self._security.mechanisms)
        if mechanism not in self._security.mechanisms:
            return {"errorCode": Error.UNSUPPORTED_SASL_MECHANISM, "mechanisms": offered}
        self._exchange = self._security.mechanisms[mechanism]()
        self.tokens = Tokens.FRAMED if version >= _WITH_FRAMES else Tokens.RAW
        self._is_same, self._mechanism = self._mechanism in ("", mechanism), mechanism
        return {"errorCode": Error.NONE, "mechanisms": offered}

    async def authenticate(self, token: bytes) -> Reply:
        """Return the reply to a token; raises `SignInError` without a handshake before it."""
        if self._exchange is None:
            raise SignInError(_ILLEGAL)
        try:
            step = await self._exchange.next(token)
            if isinstance(step, bytes):
                return Reply(token=step)
            return Reply(token=step.token, session_ms=self._begin_session(step))
        except RefusedError as error:
            await asyncio.sleep(self._refused_s)
            message = f"Signing in by {self._mechanism} failed: invalid credentials."
            return Reply(message=message, refused=f"{self._mechanism}: {error}")

    def _begin_session(self, signed_in: SignedIn) -> int:
        """Begin the session of a client that has signed in; return how long it lasts, 0: without end."""
        before = self.principal
        if before is not None and (before.name != signed_in.principal.name or not self._is_same):
            raise RefusedError("expected the same principal and mechanism again, found another")
        limits = [self._security.session_ms] if self._security.session_ms else []
        if signed_in.expires_at is not None:
            limits.append(signed_in.expires_at - now_ms())
        lasts = min(limits, default=0)
        if limits and lasts <= 0:
            raise RefusedError("the token has expired")
        self.principal, self.tokens, self._exchange = signed_in.principal, Tokens.NONE, None
        self._ends_at = monotonic() + lasts / 1_000 if limits else None
        return lasts
