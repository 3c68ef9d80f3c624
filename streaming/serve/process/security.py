"""How clients sign in to each Kafka listener, from the settings and the files that they name.

`read_security` reads all files and secrets again, so that they can be replaced while the process runs.
"""

import ssl
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from streaming.common.http_values import is_address, is_loopback, without_query
from streaming.model.errors import MisuseError
from streaming.serve.kafka.principals import Principal
from streaming.serve.kafka.sasl.exchange import Begin, PlainExchange
from streaming.serve.kafka.sasl.oauthbearer import OAuthBearerExchange, SigningKeys, TokenRules
from streaming.serve.kafka.sasl.scram import ScramExchange, ScramUsers
from streaming.serve.kafka.security import Security
from streaming.serve.process.addresses import address, addresses_at, others_at
from streaming.serve.process.tls import ServerTls, has_key_store, read_tls
from streaming.settings.model import HttpSettings, KafkaListenerSettings, PrincipalSettings
from streaming.settings.scram_credentials import HASHES, read_credential

_CERTIFICATE: Final = "SSL"
_WITH_CREDENTIAL: Final = ("PLAIN", *HASHES)
_JWKS: Final = "sasl.oauthbearer.jwks.endpoint.url"


def read_security(listener: KafkaListenerSettings, principals: Sequence[PrincipalSettings]) -> Security:
    """Read certificates, keys and credentials of a listener.

    Raises `MisuseError` for those that cannot be used, and for a listener that other machines can reach
    without TLS and signing in, unless it is `insecure`.
    """
    where = f"[[serve.kafka]] {listener.listen}"
    protocol = listener.security_protocol
    _refuse_open(listener)
    tls = _tls(listener, where) if protocol.endswith("SSL") else None
    if tls is not None:
        _refuse_other_name(listener, tls)
    elif has_key_store(listener.certificate_file, listener.broker):
        raise MisuseError(
            f"{where}: expected security_protocol SSL or SASL_SSL beside a certificate, found {protocol}."
        )
    _refuse_wrong(principals)
    certified = _by_name(principals, _CERTIFICATE) if _asks_for_certificates(listener) else None
    mechanisms = _mechanisms(listener, principals, where) if protocol.startswith("SASL") else {}
    if certified == {} or (protocol.startswith("SASL") and not mechanisms):
        kind = "SASL" if certified is None else "SSL"
        raise MisuseError(
            f"{where}: expected [[serve.principals]] that sign in by {kind}, found none: no client could "
            f"connect. Add one, or set another security_protocol than {protocol}."
        )
    return Security(
        tls=None if tls is None else tls.context,
        certified=certified,
        mechanisms=mechanisms,
        session_ms=_number(listener, "connections.max.reauth.ms", 0, where),
    )


def read_http_tls(http: HttpSettings) -> ssl.SSLContext | None:
    """Read certificate and key of the HTTP listener; None: it has none. Raises `MisuseError`."""
    if http.certificate_file:
        return read_tls(http.certificate_file, http.key_file, {}, where="[serve.http]").context
    if http.key_file:
        raise MisuseError("[serve.http]: expected a certificate_file beside key_file, found none.")
    return None


def _asks_for_certificates(listener: KafkaListenerSettings) -> bool:
    """Return whether clients sign in by certificate: with SASL, certificates only admit them."""
    is_asked = listener.broker.get("ssl.client.auth", "none") != "none"
    return listener.security_protocol == "SSL" and is_asked


def _refuse_open(listener: KafkaListenerSettings) -> None:
    """Refuse an address that other machines can reach, without TLS or without signing in."""
    others = [] if listener.insecure else others_at(listener.listen)
    is_certified = listener.broker.get("ssl.client.auth") == "required"
    if not others or listener.security_protocol == "SASL_SSL":
        return
    if listener.security_protocol == "SSL" and is_certified:
        return
    raise MisuseError(
        f"listening on {listener.listen}: expected a loopback address, such as 127.0.0.1 or [::1], found "
        f"{others[0]}, which other machines can reach, with security_protocol {listener.security_protocol}: "
        'they need TLS and must sign in. In [[serve.kafka]] set security_protocol = "SASL_SSL" and a '
        "certificate_file, and add [[serve.principals]] (docs/security.md#kafka-clients); or set insecure = "
        "true, if only trusted machines can connect. Or use a tunnel (ssh -L), and set --advertise to the "
        "address that clients then connect to."
    )


def _tls(listener: KafkaListenerSettings, where: str) -> ServerTls:
    names = ("certificate_file", "ssl.keystore.location", "ssl.keystore.certificate.chain")
    given = [
        name
        for name in names
        if listener.broker.get(name) or (name == names[0] and listener.certificate_file)
    ]
    if len(given) != 1:
        raise MisuseError(
            f"{where}: expected one of {', '.join(names)} with security_protocol "
            f"{listener.security_protocol}, found {' and '.join(given) or 'none'}."
        )
    return read_tls(listener.certificate_file, listener.key_file, listener.broker, where=where)


def _refuse_other_name(listener: KafkaListenerSettings, tls: ServerTls) -> None:
    """Refuse an advertised address that is not in the certificate: clients would refuse to connect."""
    advertised = listener.advertise
    hosts = [address(advertised).host] if advertised else addresses_at(listener.listen)
    unnamed = [host for host in hosts if not tls.is_named(host)]
    if not unnamed:
        return
    names = ", ".join(tls.names) or "none"
    raise MisuseError(
        f"advertising {advertised or listener.listen}: expected one of the names in the certificate "
        f"({names}), found {unnamed[0]}. Set `advertise` to a name of the certificate, with the port, or use "
        "another certificate."
    )


# --- principals --------------------------------------------------------------------------------------------


def _refuse_wrong(principals: Sequence[PrincipalSettings]) -> None:
    """Refuse principals with the same name and mechanism, and wrong credentials."""
    seen = set[tuple[str, str]]()
    for one in principals:
        where = _where(one)
        if (one.name, one.mechanism) in seen:
            raise MisuseError(f"{where}: expected it once with mechanism {one.mechanism}, found it twice.")
        seen.add((one.name, one.mechanism))
        if bool(one.credential) != (one.mechanism in _WITH_CREDENTIAL):
            expected, found = ("no credential", "one") if one.credential else ("a credential", "none")
            raise MisuseError(f"{where}: expected {expected} with mechanism {one.mechanism}, found {found}.")
        if one.mechanism in HASHES:
            read_credential(one.credential, one.mechanism, where=where)


def _where(principal: PrincipalSettings) -> str:
    return f"[[serve.principals]] {principal.name!r}"


def _by_name(principals: Sequence[PrincipalSettings], mechanism: str) -> Mapping[str, Principal]:
    return {
        one.name: Principal(name=one.name, groups=one.groups, topics=one.topics)
        for one in principals
        if one.mechanism == mechanism
    }


def _mechanisms(
    listener: KafkaListenerSettings, principals: Sequence[PrincipalSettings], where: str
) -> Mapping[str, Begin]:
    """Return the SASL mechanisms of which there are principals."""
    begins: dict[str, Begin] = {}
    for mechanism in dict.fromkeys(one.mechanism for one in principals if one.mechanism != _CERTIFICATE):
        known = _by_name(principals, mechanism)
        credentials = {one.name: one.credential for one in principals if one.mechanism == mechanism}
        begins[mechanism] = _begin(mechanism, known, credentials, listener, where)
    return begins


def _begin(
    mechanism: str,
    known: Mapping[str, Principal],
    credentials: Mapping[str, str],
    listener: KafkaListenerSettings,
    where: str,
) -> Begin:
    if mechanism == "PLAIN":
        passwords = {name: (credentials[name], principal) for name, principal in known.items()}
        return lambda: PlainExchange(passwords)
    if mechanism in HASHES:
        salted = {
            name: (read_credential(credentials[name], mechanism, where=where), principal)
            for name, principal in known.items()
        }
        users = ScramUsers(mechanism, salted)
        return lambda: ScramExchange(users)
    keys, rules = _signing_keys(listener, where), _token_rules(listener, where)
    return lambda: OAuthBearerExchange(keys, rules, known)


def _signing_keys(listener: KafkaListenerSettings, where: str) -> SigningKeys:
    url = listener.broker.get(_JWKS, "")
    is_here = url.startswith("http://") and is_loopback(urlsplit(url).hostname or "")
    if not is_address(url) or not (url.startswith("https://") or is_here):
        raise MisuseError(
            f"{where}: {_JWKS}: expected an https address with the keys of tokens, because there are "
            f"principals with OAUTHBEARER, found {without_query(url) or 'none'}."
        )
    refresh_ms = _number(listener, "sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, where)
    return SigningKeys(url, refresh_s=refresh_ms / 1_000)


def _token_rules(listener: KafkaListenerSettings, where: str) -> TokenRules:
    broker = listener.broker
    audiences = [text.strip() for text in broker.get("sasl.oauthbearer.expected.audience", "").split(",")]
    return TokenRules(
        audiences=tuple(text for text in audiences if text),
        issuer=broker.get("sasl.oauthbearer.expected.issuer", ""),
        claim=broker.get("sasl.oauthbearer.sub.claim.name", "sub"),
        skew_s=_number(listener, "sasl.oauthbearer.clock.skew.seconds", 30, where),
    )


def _number(listener: KafkaListenerSettings, name: str, default: int, where: str) -> int:
    text = listener.broker.get(name, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise MisuseError(f"{where}: {name}: expected a whole number, found {text!r}.")
    return int(text)
