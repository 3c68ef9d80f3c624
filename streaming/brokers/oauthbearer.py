"""Sign-in by SASL/OAUTHBEARER: tokens that the clients get from a token endpoint with a client id and its
secret (OAuth 2.0, the grant client_credentials).

Each client requests and renews its own tokens. Java's settings have one form up to Kafka 4.0 (options in
`sasl.jaas.config`) and another since 4.1 (`sasl.oauthbearer.client.credentials...`). Both are read; the
connector's Kafka client is of 3.9, so Java gets the first form.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote_plus

from streaming.brokers.jaas import JaasEntry, read_jaas, written_jaas
from streaming.brokers.tls import system_ca_file, translated_tls
from streaming.common.http_values import AN_ADDRESS, holds_user, is_address, refused_text
from streaming.model.errors import MisuseError

MECHANISM: Final = "OAUTHBEARER"

_KAFKAS: Final = "org.apache.kafka.common.security.oauthbearer"
LOGIN_MODULE: Final = f"{_KAFKAS}.OAuthBearerLoginModule"
_HANDLER: Final = f"{_KAFKAS}.OAuthBearerLoginCallbackHandler"

_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "sasl.login.callback.handler.class": (_HANDLER, f"{_KAFKAS}.secured.OAuthBearerLoginCallbackHandler"),
    "sasl.oauthbearer.jwt.retriever.class": (
        f"{_KAFKAS}.ClientCredentialsJwtRetriever",
        f"{_KAFKAS}.DefaultJwtRetriever",
    ),
    "sasl.oauthbearer.jwt.validator.class": (
        f"{_KAFKAS}.DefaultJwtValidator",
        f"{_KAFKAS}.ClientJwtValidator",
    ),
}
"""Settings that name a class of the login, and the classes that get tokens as librdkafka does. Each but the
first may be left out."""

_CLIENT_ID: Final = ("sasl.oauthbearer.client.credentials.client.id", "clientId")
_SECRET: Final = ("sasl.oauthbearer.client.credentials.client.secret", "clientSecret")
_SCOPE: Final = ("sasl.oauthbearer.scope", "scope")
"""Names since Kafka 4.1 (KIP-1139), and those of options in `sasl.jaas.config`. Kafka prefers the former."""

_ASSERTION: Final = "sasl.oauthbearer.assertion."
_EXTENSION: Final = "extension_"
_OF_KEY_STORE: Final = ("ssl.keystore.", "ssl.key.")

_REPLACED: Final = frozenset({"sasl.jaas.config", *_CLASSES, _CLIENT_ID[0], _SECRET[0], _SCOPE[0]})
_TIMEOUTS: Final[Mapping[str, str]] = {
    "sasl.login.connect.timeout.ms": "10000",
    "sasl.login.read.timeout.ms": "10000",
}
"""Java's client would wait without limit for a silent token endpoint."""

_BLANKS: Final = "".join(map(chr, range(0x21)))  # which Java's `trim` removes
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_EXTENSION_NAME: Final = re.compile(r"(?!auth\Z)[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"([!-~]([ -~]*[!-~])?)?")
_ESCAPED: Final = str.maketrans({"\\": "\\\\", ",": "\\,"})


@dataclass(frozen=True, kw_only=True)
class ClientCredentials:
    """The token endpoint, and what it is given. `tls` has Java's settings for connections to it.

    `is_url_encoded`: id and secret are percent-encoded before they become the header `Authorization`.
    """

    endpoint: str
    client_id: str
    secret: str = field(repr=False)
    scope: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_url_encoded: bool = False

    def java(self, client: Mapping[str, str], *, login: int) -> dict[str, str]:
        """Return the settings `client` in the form of Kafka 3.9.

        Java's clients with the same settings share a login, and so a token. Another number `login` makes
        another one, and gets a new token.
        """
        options = {
            "clientId": self.client_id,
            "clientSecret": self.secret,
            **({"scope": self.scope} if self.scope else {}),
            **{f"{_EXTENSION}{name}": value for name, value in self.extensions.items()},
            **self.tls,
            "login": str(login),
        }
        return {
            **_TIMEOUTS,
            **{name: value for name, value in client.items() if name not in _REPLACED},
            "sasl.jaas.config": written_jaas(JaasEntry(LOGIN_MODULE, options)),
            "sasl.login.callback.handler.class": _HANDLER,
        }

    def librdkafka(self) -> dict[str, str]:
        """Return the settings of librdkafka, which encodes neither the scope nor id and secret."""
        encode = quote_plus if self.is_url_encoded else str
        pairs = (f"{name}={value.translate(_ESCAPED)}" for name, value in self.extensions.items())
        optional = {
            "sasl.oauthbearer.scope": quote_plus(self.scope),
            "sasl.oauthbearer.extensions": ",".join(pairs),
        }
        return {
            "sasl.mechanism": MECHANISM,
            "sasl.oauthbearer.method": "oidc",
            _ENDPOINT: self.endpoint,
            "sasl.oauthbearer.client.id": encode(self.client_id),
            "sasl.oauthbearer.client.secret": encode(self.secret),
            **{name: value for name, value in optional.items() if value},
            **self._trusted(),
        }

    def _trusted(self) -> dict[str, str]:
        """Return the CAs of the token endpoint. Other TLS settings have no counterpart there.

        By default, librdkafka looks for the file where Red Hat has it, as its package was built there.
        """
        stores = {name: value for name, value in self.tls.items() if name.startswith("ssl.truststore.")}
        try:
            translated = translated_tls(stores)
        except MisuseError as error:
            raise MisuseError(f"sasl.jaas.config: {error}") from error
        if not translated and (file := system_ca_file()) is not None:
            return {"https.ca.location": file}
        return {name.replace("ssl.", "https.", 1): value for name, value in translated.items()}


def read_client_credentials(client: Mapping[str, str]) -> ClientCredentials:
    """Read the settings of Java's client. Raises `MisuseError` for other grants and other ways to get
    tokens."""
    _refuse_other_ways(client)
    entry = read_jaas(client["sasl.jaas.config"]) if "sasl.jaas.config" in client else None
    options = {} if entry is None else entry.options
    if entry is not None and entry.module != LOGIN_MODULE:
        raise MisuseError(f"sasl.jaas.config: expected {LOGIN_MODULE}, found {entry.module!r}.")
    return ClientCredentials(
        endpoint=_endpoint(client),
        client_id=_required(client, options, _CLIENT_ID),
        secret=_required(client, options, _SECRET),
        scope=_given(client, options, _SCOPE),
        extensions=dict(_extensions(options)),
        tls=_tls(options),
        is_url_encoded=client.get("sasl.oauthbearer.header.urlencode", "false").lower() == "true",
    )


def _refuse_other_ways(client: Mapping[str, str]) -> None:
    for name, classes in _CLASSES.items():
        is_required = classes[0] == _HANDLER
        found = client.get(name, "" if is_required else classes[0])
        if found not in classes:
            default = " (Kafka's default, which makes unsigned tokens)" if is_required and not found else ""
            raise MisuseError(
                f"{name}: expected {classes[0]}, found {found or 'nothing'}{default}. Only tokens by the "
                "grant client_credentials are supported: librdkafka cannot call Java's other classes. Use a "
                "client id and a secret (docs/security.md)."
            )
    if other := next((name for name in client if name.startswith(_ASSERTION)), None):
        raise MisuseError(
            f"{other}: expected a client id and its secret, found a setting of the grant jwt-bearer or of "
            "assertions, which are not supported. Use the grant client_credentials (docs/security.md)."
        )


def _endpoint(client: Mapping[str, str]) -> str:
    endpoint = client.get(_ENDPOINT, "").strip(_BLANKS)
    if not endpoint:
        raise MisuseError(f"{_ENDPOINT}: expected the address of the token endpoint, found nothing.")
    if not is_address(endpoint):
        found = "a file" if endpoint.startswith("file:") else refused_text(endpoint)
        raise MisuseError(f"{_ENDPOINT}: expected {AN_ADDRESS}, found {found}.")
    if holds_user(endpoint):
        raise MisuseError(
            f"{_ENDPOINT}: expected an address without a user, found one with. Id and secret of the client "
            f"belong into {_CLIENT_ID[0]} and {_SECRET[0]}."
        )
    return endpoint


def _required(client: Mapping[str, str], options: Mapping[str, str], names: tuple[str, str]) -> str:
    value = _given(client, options, names)
    if not value:
        raise MisuseError(f"expected {names[0]}, or {names[1]}=... in sasl.jaas.config, found neither.")
    if _CONTROL.search(value):
        raise MisuseError(f"{names[0]}: expected text of one line, found a control character within.")
    return value


def _given(client: Mapping[str, str], options: Mapping[str, str], names: tuple[str, str]) -> str:
    """Return a value without blanks around it, which Java removes."""
    value = client[names[0]] if names[0] in client else options.get(names[1], "")
    return value.strip(_BLANKS)


def _extensions(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for option, value in options.items():
        if not option.startswith(_EXTENSION):
            continue
        name = option.removeprefix(_EXTENSION)
        if not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
            raise MisuseError(
                f"sasl.jaas.config: {option}: expected a name of letters other than `auth`, and a value of "
                "printable ASCII without blanks around it, found something else."
            )
        yield name, value


def _tls(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options about TLS; refuse those that no client would use."""
    own = (_CLIENT_ID[1], _SECRET[1], _SCOPE[1])
    for name in options:
        if name.startswith(_OF_KEY_STORE):
            raise MisuseError(
                f"sasl.jaas.config: {name}: expected a client secret, found a client certificate for the "
                "token endpoint, which librdkafka does not support."
            )
        if name not in own and not name.startswith((_EXTENSION, "ssl.")):
            raise MisuseError(
                f"sasl.jaas.config: expected the options {', '.join(own)}, {_EXTENSION}... and ssl...., "
                f"found {name!r}. Unsecured tokens and other grants are not supported (docs/security.md)."
            )
    return {name: value for name, value in options.items() if name.startswith("ssl.")}
