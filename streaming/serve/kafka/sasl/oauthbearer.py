"""OAUTHBEARER (RFC 7628): tokens (JWT) that are signed with a key of a JWKS endpoint, as Kafka's brokers
check them.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from streaming.serve.kafka.principals import Principal
from streaming.serve.kafka.sasl.exchange import RefusedError, SignedIn
from streaming.serve.kafka.worker import on_own_thread

if TYPE_CHECKING:
    from jwt import PyJWK

_HEADER: Final = re.compile(r"n,(a=(?P<authorized>[^,]*))?,")
_PAIR: Final = re.compile(r"[A-Za-z]+=.*", re.DOTALL)
_TOKEN: Final = re.compile(r"bearer +(?P<token>[A-Za-z0-9._~+/=-]+)", re.IGNORECASE)
_INVALID: Final = b'{"status":"invalid_token"}'
_ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
"""Those of public keys: others would let anyone sign who knows a public key."""

_FETCH_S: Final = 10.0
_AGAIN_S: Final = 10.0  # between two requests for keys: clients may invent ids of keys


@dataclass(frozen=True, kw_only=True)
class TokenRules:
    """What a token must state; empty: anything. `claim` names its principal."""

    audiences: tuple[str, ...]
    issuer: str
    claim: str
    skew_s: int


class SigningKeys:
    """The public keys of a JWKS endpoint by id: requested at the first token, then every `refresh_s`, and
    when a token has an unknown id."""

    def __init__(self, url: str, *, refresh_s: float) -> None:
        self._url, self._refresh_s = url, refresh_s
        self._keys: Mapping[str | None, PyJWK] = {}
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._lock = asyncio.Lock()
        self._refreshing: asyncio.Future[None] | None = None
        self._problem = ""

    async def find(self, key_id: str | None) -> "PyJWK":
        """Return a key; raises `RefusedError` if there is none. Former keys are valid until the endpoint
        has responded: a client with one of them does not wait for it."""
        if key_id not in self._keys:
            await self._request()
        elif self._is_due(self._read_at, self._refresh_s) and not self._lock.locked():
            self._refreshing = asyncio.ensure_future(self._request())
        if key_id not in self._keys:
            raise RefusedError(self._problem or "expected a key of the JWKS endpoint, found another id")
        return self._keys[key_id]

    async def _request(self) -> None:
        """Request the keys, or wait for those that are being requested."""
        async with self._lock:
            if not self._is_due(self._tried_at, _AGAIN_S):
                return
            self._tried_at = monotonic()
            await self._read()

    async def _read(self) -> None:
        from jwt import PyJWKSet
        from jwt.exceptions import PyJWTError

        try:
            async with asyncio.timeout(_FETCH_S):
                fetched = await on_own_thread(partial(_fetched, self._url), name="offsetlake-jwks")
            found = PyJWKSet.from_dict(fetched)
        except (OSError, ValueError, PyJWTError) as error:
            why = str(error) or type(error).__name__
            self._problem = f"the JWKS endpoint does not respond as expected ({why})"
        else:
            self._keys = {key.key_id: key for key in found.keys if key.public_key_use in (None, "sig")}
            self._read_at, self._problem = monotonic(), ""

    def _is_due(self, since: float | None, after_s: float) -> bool:
        return since is None or monotonic() - since > after_s


def _fetched(url: str) -> Any:
    from jwt import PyJWKClient

    return PyJWKClient(url, cache_jwk_set=False, timeout=_FETCH_S).fetch_data()


class OAuthBearerExchange:
    """One exchange: a token, and after a wrong one a reply that ends it."""

    def __init__(self, keys: SigningKeys, rules: TokenRules, known: Mapping[str, Principal]) -> None:
        self._keys, self._rules, self._known = keys, rules, known
        self._refused: RefusedError | None = None

    async def next(self, token: bytes) -> bytes | SignedIn:
        if self._refused is not None:
            raise self._refused
        try:
            return await self._signed_in(token)
        except RefusedError as error:  # the client answers, and is then told that it was refused
            self._refused = error
            return _INVALID

    async def _signed_in(self, message: bytes) -> SignedIn:
        authorized, token = _read(message)
        claims = await self._claims(token)
        name = claims.get(self._rules.claim)
        if not isinstance(name, str) or name not in self._known:
            raise RefusedError(f"expected the name of a principal as {self._rules.claim}, found another")
        if authorized not in ("", name):
            raise RefusedError("expected no other authorization id than the name")
        return SignedIn(self._known[name], expires_at=int(claims["exp"]) * 1_000)

    async def _claims(self, token: str) -> Mapping[str, Any]:
        import jwt

        rules = self._rules
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
            key = await self._keys.find(key_id)
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(_ALGORITHMS),
                audience=rules.audiences or None,
                issuer=rules.issuer or None,
                leeway=rules.skew_s,
                options={"require": ["exp"], "verify_aud": bool(rules.audiences)},
            )
        except jwt.PyJWTError as error:  # its messages name claims, and quote no token
            raise RefusedError(f"invalid token: {type(error).__name__}") from None
        return claims


def _read(message: bytes) -> tuple[str, str]:
    """Return the authorization id (empty: none) and the token of a client's first message.

    Each part is read once: with one expression for all of it, a message of many pairs took seconds.
    """
    header, *pairs = message.decode("utf-8", "replace").split("\x01")
    found = _HEADER.fullmatch(header)
    tokens = [pair.removeprefix("auth=") for pair in pairs if pair.startswith("auth=")]
    is_whole = pairs[-2:] == ["", ""] and all(map(_PAIR.fullmatch, pairs[:-2]))
    if found is None or not is_whole or len(tokens) != 1 or not (token := _TOKEN.fullmatch(tokens[0])):
        raise RefusedError("expected a token, found something else")
    return found["authorized"] or "", token["token"]
