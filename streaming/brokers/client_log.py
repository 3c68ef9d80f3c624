"""Keeps librdkafka's log of its connections: the last failure, and whether brokers refuse this user."""

import re
import time
from collections.abc import Callable, Collection
from typing import Final

from confluent_kafka import KafkaError

from streaming.common.escapes import shown
from streaming.common.http_values import without_query

_THREAD: Final = re.compile(r"^\[thrd:.*?\]: ")
_BROKER: Final = re.compile(r"\S+/(\d+): ")
REFUSALS: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
"""The codes of errors with which brokers refuse credentials or certificates."""

_ADDRESS: Final = re.compile(r"(\S+)/(?:\d+|bootstrap): ")
"""The broker in an error, without its id: bootstrap servers have none."""

_CERTIFICATE: Final = re.compile(r"SSL alert number (4[2-9]|116)\b|SSL routines::certificate verify failed")
"""What brokers say of a client certificate (RFC 8446, section 6). With TLS 1.3 they say it after the
handshake, and to librdkafka it is a failed connection. So is a certificate of a broker, now and then."""

_OF_TOKENS: Final = "a token"
"""Stands for the address in refusals of a token, or of credentials for signing one."""

_NO_TOKEN: Final = re.compile(
    r'Failed to retrieve OIDC token from "(?P<endpoint>.*?)": (?P<answer>.*?)(?: \((?P<status>-?\d+)\))?\Z',
    re.DOTALL,
)
"""In the log. The status is that of HTTP; -1: no whole answer. It is cut off from answers of 2 KB."""

_NO_TOKEN_ERROR: Final = "Failed to acquire SASL OAUTHBEARER token: "
"""In errors. librdkafka reports an answer both ways, but one without a usable token only this way."""

_REFUSING: Final = frozenset({"400", "401", "403"})
"""The status with which token endpoints refuse an id or its secret (RFC 6749, section 5.2, and practice)."""

_TOKEN: Final = re.compile(r"\beyJ[\w-]{8,}(\.[\w-]*){1,2}")
_COMPARED: Final = 100  # characters of an answer: it may be cut off
_SHOWN: Final = 300
_HIDDEN: Final = "(hidden)"

_NOT_SIGNED: Final = "OAuth callback raised exception"
"""The answer in the error after a failure of `signing`."""

Sign = Callable[[str], tuple[str, float]]
"""Gives librdkafka a token, and when it expires (seconds since 1970)."""


class SigningRefusedError(Exception):
    """Credentials for signing have expired, or were refused; `Sign` raises it from the error that says so."""


class ClientLog:
    """The logger and the error callback of one client, or of several one after the other.

    Both are needed: only the log shows a connection that the broker closed at once because it expects TLS;
    only the callback has a code for a refusal. `secrets` never appear in `last`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, secrets: Collection[str] = ()) -> None:
        self._clock = clock
        self._secrets = secrets
        self._refused_since: dict[str, float] = {}  # by the address of the broker
        self._last_answer = ""
        self._cannot_sign = False
        self.last = ""
        self.last_of: dict[int, str] = {}  # by broker id

    def log(self, _level: int, _form: str, facility: str, _client: str, text: str) -> None:
        """Keep the line if it is about a failed connection, or a failed request for a token."""
        if facility == "FAIL" and not self._cannot_sign:
            self.last = _THREAD.sub("", text)
            if broker := _BROKER.match(self.last):
                self.last_of[int(broker[1])] = self.last
        elif found := _NO_TOKEN.search(text) if facility == "OIDC" else None:
            self._no_token(found)

    def error(self, error: KafkaError) -> None:
        """Record since when each broker has refused the credentials or certificates.

        A failed connection resets it: the broker is away, whatever it answered before. Another one that is
        away says nothing about it. While no token can be signed, only the reason for this counts: brokers may
        refuse only that the one before has expired.
        """
        if error.str().startswith(_NO_TOKEN_ERROR):
            answer = error.str().removeprefix(_NO_TOKEN_ERROR)
            if answer[:_COMPARED] != self._last_answer[:_COMPARED]:
                self.last = f"asking for a token: {self._shown(answer)}"
        elif self._cannot_sign:
            return
        elif error.code() in REFUSALS or _CERTIFICATE.search(error.str()):
            self._refuse(_address_in(error))
        elif error.code() == KafkaError._TRANSPORT:
            self._refused_since.pop(_address_in(error), None)
            self._refused_since.pop(_OF_TOKENS, None)  # without a token there would be no connection

    def signing(self, sign: Sign) -> Sign:
        """Return `sign`, but keep why it fails: librdkafka tells only that it did.

        Refused credentials are like brokers that refuse, every other failure is like silence.
        Only the first line of a message is kept: AWS may repeat after it what was signed, with the session
        token.
        """

        def signed(setting: str) -> tuple[str, float]:
            try:
                token = sign(setting)
            except Exception as error:  # of any library that finds credentials; raised again
                self._not_signed(error)
                raise
            self._cannot_sign = False
            self._refused_since.pop(_OF_TOKENS, None)
            return token

        return signed

    def answered(self) -> None:
        """Forget earlier refusals and failures to sign, since brokers have answered."""
        self._refused_since.clear()
        self._cannot_sign = False

    @property
    def is_refused(self) -> bool:
        """Whether this user was refused since the last answer of brokers."""
        return bool(self._refused_since)

    def is_refused_for(self, seconds: float) -> bool:
        """Whether a broker has refused this user for this time, without an answer of any."""
        since = min(tuple(self._refused_since.values()), default=None)  # other threads change it
        return since is not None and self._clock() - since >= seconds

    def is_signing_refused_for(self, seconds: float) -> bool:
        """Whether no token could be signed for this time, because credentials were refused."""
        return self._cannot_sign and self.is_refused_for(seconds)

    @property
    def cannot_sign(self) -> bool:
        """Whether the last token could not be signed, and brokers have not answered since."""
        return self._cannot_sign

    def _not_signed(self, error: Exception) -> None:
        is_refused = isinstance(error, SigningRefusedError)
        why = error.__cause__ or error if is_refused else error
        line = next(iter(str(why).splitlines()), "")
        self.last = f"signing a token: {type(why).__name__}: {self._shown(line)}"
        self._last_answer = _NOT_SIGNED
        since = self._refused_since.get(_OF_TOKENS, self._clock())
        self._refused_since = {_OF_TOKENS: since} if is_refused else {}
        self._cannot_sign = True

    def _no_token(self, found: re.Match[str]) -> None:
        """A token endpoint that refuses is like brokers that refuse; every other failure is like silence."""
        status, answer = found["status"], found["answer"]
        if status in _REFUSING:
            self._refuse(_OF_TOKENS)
        else:
            self._refused_since.clear()
        self._last_answer = answer
        what = "" if status is None or status == "-1" else f"HTTP status {status}, "
        self.last = f"asking {without_query(found['endpoint'])} for a token: {what}{self._shown(answer)}"

    def _shown(self, answer: str) -> str:
        """Return the beginning of an answer in one line, without secrets and tokens."""
        text = answer
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        text = shown(" ".join(_TOKEN.sub(_HIDDEN, text).split()))
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

    def _refuse(self, address: str) -> None:
        self._refused_since.setdefault(address, self._clock())


def _address_in(error: KafkaError) -> str:
    found = _ADDRESS.match(error.str())
    return found[1] if found else ""
