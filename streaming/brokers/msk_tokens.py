"""Tokens for Amazon MSK, made by AWS's own library with credentials of its own chain.

Import this only where settings ask for it: it loads boto.
"""

import re
from typing import Any, Final

import boto3
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from botocore.config import Config
from botocore.credentials import CredentialProvider
from botocore.exceptions import ClientError, NoCredentialsError
from botocore.session import Session

from streaming.brokers.client_log import SigningRefusedError

_LIMITS: Final = Config(connect_timeout=3, read_timeout=3, retries={"total_max_attempts": 1})
"""The first token must be there within 10 s (confluent-kafka). By default STS would get five minutes."""


_STILL_EXPIRED: Final = "refreshed credentials are still expired"
"""A `RuntimeError` of botocore: credentials of the environment or of a service have expired, and it has read
them again."""

_LATER: Final = re.compile(r"Throttl|LimitExceeded|TooMany|SlowDown|Timeout|PriorRequest|IDPCommunication")
"""Errors of STS with a status of 4xx that do not refuse."""


class _Chain(CredentialProvider):  # type: ignore[misc]
    """All sources of a session, in their order."""

    def load(self) -> Any:
        credentials = self.session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        return credentials


def signed_token(
    region: str, *, profile: str | None, role: str | None, session_name: str, sts_region: str
) -> tuple[str, float]:
    """Return a token and when it expires, in seconds since 1970.

    Reads credentials anew: they may have been replaced. With a `role`, it is assumed at the STS of
    `sts_region`. Raises errors of botocore, and `SigningRefusedError` if credentials have expired or STS
    refuses them.
    """
    try:
        return _signed_token(region, profile, role, session_name, sts_region)
    except (ClientError, RuntimeError) as error:
        if _is_refusal(error):
            raise SigningRefusedError from error
        raise


def _is_refusal(error: Exception) -> bool:
    if not isinstance(error, ClientError):
        return _STILL_EXPIRED in str(error)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = error.response.get("Error", {}).get("Code", "")
    return 400 <= status < 500 and status not in (408, 429) and not _LATER.search(code)


def _signed_token(
    region: str, profile: str | None, role: str | None, session_name: str, sts_region: str
) -> tuple[str, float]:
    session = Session(profile=profile)
    session.set_default_client_config(_LIMITS)
    if role is None:
        session.set_config_variable("region", region)  # that of STS for a web identity, as in Java
        token, expires_ms = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(
            region, _Chain(session)
        )
    else:
        boto3.setup_default_session(botocore_session=session, region_name=sts_region)  # it takes no other
        token, expires_ms = MSKAuthTokenProvider.generate_auth_token_from_role_arn(region, role, session_name)
    return token, expires_ms / 1_000
