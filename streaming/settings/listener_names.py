"""Names of settings of Kafka's brokers that our Kafka listeners have, with the brokers' meaning."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from streaming.model.errors import MisuseError
from streaming.model.suggestions import did_you_mean

LISTENER_NAMES: Final = frozenset(
    [
        "connections.max.reauth.ms",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.sub.claim.name",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    ]
)


def refuse_unknown(names: Iterable[str], *, where: str) -> None:
    """Raise `MisuseError` for the first name that is not one of `LISTENER_NAMES`."""
    for name in names:
        if name not in LISTENER_NAMES:
            near = did_you_mean(get_close_matches(name, LISTENER_NAMES, n=1))
            known = near or f" Known: {', '.join(sorted(LISTENER_NAMES))}."
            raise MisuseError(f"{where}: expected settings of Kafka's brokers, found {name!r}.{known}")
