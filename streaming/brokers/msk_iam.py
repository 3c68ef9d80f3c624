"""Sign-in by AWS IAM at Amazon MSK: SASL/OAUTHBEARER with tokens that each client signs itself.

Both clients leave credentials to AWS's own libraries. Java's settings have two forms: the mechanism
AWS_MSK_IAM, and OAUTHBEARER with a handler of AWS. Both are read. Java gets the second, which is what
librdkafka can do.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from streaming.brokers.jaas import JaasEntry, read_jaas, written_jaas
from streaming.brokers.oauthbearer import LOGIN_MODULE
from streaming.brokers.oauthbearer import MECHANISM as OAUTHBEARER
from streaming.model.errors import MisuseError

MECHANISM: Final = "AWS_MSK_IAM"

_AWS: Final = "software.amazon.msk.auth.iam"
_HANDLER: Final = f"{_AWS}.IAMOAuthBearerLoginCallbackHandler"
_LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"
_CLIENT_HANDLER: Final = "sasl.client.callback.handler.class"

_MODULES: Final = {MECHANISM: f"{_AWS}.IAMLoginModule", OAUTHBEARER: LOGIN_MODULE}
_CLIENT_HANDLERS: Final = {
    MECHANISM: (f"{_AWS}.IAMClientCallbackHandler",),
    OAUTHBEARER: (_HANDLER, ""),
}
"""What AWS's documentation has in each form; empty: it may be left out."""

_PROFILE: Final = "awsProfileName"
_ROLE: Final = "awsRoleArn"
_SESSION_NAME: Final = "awsRoleSessionName"
_STS_REGION: Final = "awsStsRegion"
_FALLBACK: Final = "awsAddDefaultProviders"
_OF_BOTH: Final = (_PROFILE, _ROLE, _SESSION_NAME, _STS_REGION)
_OF_JAVA: Final = ("awsMaxRetries", "awsMaxBackOffTimeMs", "awsDebugCreds")  # they change no identity

_IN_PROFILE: Final = f"Put it into a profile of ~/.aws/config, and its name into {_PROFILE}"
_REMEDIES: Final = {
    "awsRoleExternalId": f"{_IN_PROFILE} (external_id).",
    "awsRoleAccessKeyId": f"{_IN_PROFILE} (source_profile).",
    "awsRoleSecretAccessKey": f"{_IN_PROFILE} (source_profile).",
    "awsRoleSessionToken": f"{_IN_PROFILE} (source_profile).",
    "awsShouldUseFips": "Set the environment variable AWS_USE_FIPS_ENDPOINT=true.",
    "awsMskRegionProvider": "Set the environment variable AWS_REGION.",
}
"""For each option that librdkafka's client cannot follow, what both can."""

_DEFAULT_SESSION_NAME: Final = "aws-msk-iam-auth"
_DEFAULT_STS_REGION: Final = "aws-global"
"""Java's defaults; Python's library has others."""

_REGION: Final = r"[a-z0-9]+(?:-[a-z0-9]+)+"
_MSK_HOST: Final = re.compile(
    rf"\.kafka(?:-serverless)?\.({_REGION})\.amazonaws\.com(?:\.cn)?\.?(?::\d+)?\Z", re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True)
class MskIam:
    """The region of the cluster, and the options about credentials by their names in `sasl.jaas.config`."""

    region: str
    options: Mapping[str, str]

    def java(self, client: Mapping[str, str], *, login: int) -> dict[str, str]:
        """Return the settings `client` in the form of OAUTHBEARER.

        With a profile or a role, Java must not fall back to other credentials, as librdkafka does not.
        Another number `login` makes another login, and gets a new token.
        """
        options = {**self.options, "login": str(login)}
        if self.options.keys() & {_PROFILE, _ROLE}:
            options[_FALLBACK] = "false"
        if _ROLE in options:
            options.setdefault(_SESSION_NAME, _DEFAULT_SESSION_NAME)
        kept = {name: value for name, value in client.items() if name != _CLIENT_HANDLER}
        return {
            **kept,
            "sasl.mechanism": OAUTHBEARER,
            "sasl.jaas.config": written_jaas(JaasEntry(LOGIN_MODULE, options)),
            _LOGIN_HANDLER: _HANDLER,
        }

    def librdkafka(self) -> dict[str, Any]:
        """Return the settings of librdkafka, with a callback that signs tokens.

        Raises `MisuseError` without the packages for it.
        """
        return {"sasl.mechanism": OAUTHBEARER, "oauth_cb": partial(_token, self._signer())}

    def _signer(self) -> Callable[[], tuple[str, float]]:
        try:  # only here: it loads boto
            from streaming.brokers.msk_tokens import signed_token
        except ModuleNotFoundError as error:
            raise MisuseError(
                f"signing in by AWS IAM: expected the package aws-msk-iam-sasl-signer-python, found no "
                f"module {error.name}. Install it: pip install aws-msk-iam-sasl-signer-python"
            ) from error
        return partial(
            signed_token,
            self.region,
            profile=self.options.get(_PROFILE),
            role=self.options.get(_ROLE),
            session_name=self.options.get(_SESSION_NAME, _DEFAULT_SESSION_NAME),
            sts_region=self.options.get(_STS_REGION, _DEFAULT_STS_REGION),
        )


def is_msk_iam(client: Mapping[str, str]) -> bool:
    """Whether Java's settings sign in by AWS IAM."""
    mechanism = client.get("sasl.mechanism")
    return mechanism == MECHANISM or (mechanism == OAUTHBEARER and client.get(_LOGIN_HANDLER) == _HANDLER)


def read_msk_iam(client: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> MskIam:
    """Read the settings of Java's client, with `bootstrap.servers`.

    Raises `MisuseError` for what the two clients cannot both follow, and without a region.
    """
    mechanism = client["sasl.mechanism"]
    handlers = _CLIENT_HANDLERS[mechanism]
    if (found := client.get(_CLIENT_HANDLER, "")) not in handlers:
        raise MisuseError(f"{_CLIENT_HANDLER}: expected {handlers[0]}, found {found or 'nothing'}.")
    entry = read_jaas(client.get("sasl.jaas.config", f"{_MODULES[mechanism]} required;"))
    if entry.module != _MODULES[mechanism]:
        raise MisuseError(f"sasl.jaas.config: expected {_MODULES[mechanism]}, found {entry.module!r}.")
    return MskIam(
        region=_region(client.get("bootstrap.servers", ""), environment), options=_options(entry.options)
    )


def _options(options: Mapping[str, str]) -> dict[str, str]:
    for name, value in options.items():
        if name in _REMEDIES:
            raise MisuseError(
                f"sasl.jaas.config: {name} is not supported: only Java's client could follow it. "
                f"{_REMEDIES[name]}"
            )
        if name not in (*_OF_BOTH, *_OF_JAVA, _FALLBACK):
            raise MisuseError(
                f"sasl.jaas.config: expected the options {', '.join(_OF_BOTH)}, found {name!r}."
            )
        if name == _FALLBACK and value != "false":
            raise MisuseError(
                f"sasl.jaas.config: {name}: expected false, found {value!r}: librdkafka's client does "
                "not fall back to other credentials, and both clients sign in alike."
            )
    if {_PROFILE, _ROLE} <= options.keys():
        raise MisuseError(
            f"sasl.jaas.config: expected {_PROFILE} or {_ROLE}, found both. {_IN_PROFILE} (role_arn)."
        )
    if _ROLE not in options and (alone := options.keys() & {_SESSION_NAME, _STS_REGION}):
        raise MisuseError(f"sasl.jaas.config: expected {_ROLE} with {min(alone)}, found none.")
    return {name: value for name, value in options.items() if name != _FALLBACK}


def _region(servers: str, environment: Mapping[str, str]) -> str:
    """Return the region in the brokers' names, else that of AWS_REGION.

    A token is valid in one region. The libraries would take it from different places.
    """
    named = {match[1].lower() for one in servers.split(",") if (match := _MSK_HOST.search(one.strip()))}
    if len(named) > 1:
        raise MisuseError(
            f"bootstrap servers: expected brokers of one AWS region, found {', '.join(sorted(named))}."
        )
    region = named.pop() if named else environment.get("AWS_REGION", "")
    if not re.fullmatch(_REGION, region):
        raise MisuseError(
            "signing in by AWS IAM: expected a region in the names of the brokers "
            "(...kafka.REGION.amazonaws.com) or in the environment variable AWS_REGION, found "
            f"{'neither' if not region else repr(region)}. Set AWS_REGION to the region of the cluster."
        )
    return region


def _token(sign: Callable[[], tuple[str, float]], _setting: str) -> tuple[str, float]:
    """Answer librdkafka's request for a token, with the setting `sasl.oauthbearer.config`."""
    return sign()
