"""Tokens for Amazon MSK, made by AWS's own library with credentials of its own chain.

Import this only where settings ask for it: it loads boto.
"""

from typing import Any, Final

import boto3
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from botocore.config import Config
from botocore.credentials import CredentialProvider
from botocore.exceptions import NoCredentialsError
from botocore.session import Session

_LIMITS: Final = Config(connect_timeout=3, read_timeout=3, retries={"total_max_attempts": 1})
"""The first token must be there within 10 s (confluent-kafka). By default STS would get five minutes."""


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
    `sts_region`. Raises errors of botocore.
    """
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
