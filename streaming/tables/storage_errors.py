"""Errors of object stores in one line: what the store said, without what may be secret, and what to do.

delta-rs quotes the whole answer of a store. Some answers repeat the request, with a session token.
"""

import re
from typing import Final

from streaming.model.errors import OffsetlakeError

_ANSWER: Final = re.compile(r"(?:<\?xml[^>]*>\s*)?<Error\b.*?(?:</Error>|$)", re.DOTALL)
_FIELD: Final = re.compile(r"<(Code|Message|Region)>([^<]*)</\1>")

_OPTIONS: Final = "[tables.storage_options] or the environment"
_PERMISSIONS: Final = "docs/operations.md#tables-on-an-object-store"

_ADVICE: Final = (
    (r"\bNoSuchBucket\b", "Create the bucket, or check --table-root"),
    (r"\bContainerNotFound\b", "Create the container, or check --table-root"),
    (r"\bExpiredToken|\bTokenRefreshRequired", f"Renew the credentials, which have expired ({_PERMISSIONS})"),
    (
        r"\b(InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|InvalidClientTokenId|XAdminUserNotFound)\b",
        "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, which the store refuses, in "
        f"{_OPTIONS}",
    ),
    (
        r"\b(AuthenticationFailed|InvalidAuthenticationInfo)\b|failed to authenticate the request"
        r"|MicrosoftAzure.*(Invalid Access Key|Account must be specified)",
        "Check AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or the other credentials, in "
        f"{_OPTIONS}",
    ),
    (
        r"/metadata/identity/",
        "No credentials were found, and this machine has no managed identity: set AZURE_STORAGE_ACCOUNT_KEY "
        f"or other credentials in {_OPTIONS}",
    ),
    (
        r"an error occurred while loading credentials",
        "Check AWS_ROLE_ARN with AWS_WEB_IDENTITY_TOKEN_FILE, AWS_PROFILE or AWS_CONTAINER_CREDENTIALS_..., "
        "whichever is set: it gave no credentials",
    ),
    (
        r"169\.254\.|/latest/(api/token|meta-data)|no credentials found",
        "No credentials were found, and this machine has no role: set AWS_ACCESS_KEY_ID and "
        f"AWS_SECRET_ACCESS_KEY in {_OPTIONS}",
    ),
    (
        r"MicrosoftAzure.*URL scheme is not allowed",
        "Use an endpoint with https, or, in a network that you trust, set AZURE_ALLOW_HTTP=true in "
        f"{_OPTIONS}",
    ),
    (
        r"URL scheme is not allowed",
        f"Use an endpoint with https, or, in a network that you trust, set AWS_ALLOW_HTTP=true in {_OPTIONS}",
    ),
    (
        r"PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraint|redirect without LOCATION",
        f"Set AWS_REGION to the region of the bucket, in {_OPTIONS}",
    ),
    (
        r"\bAccessDenied\b|\b403 Forbidden\b|lacked the necessary privileges",
        f"Grant the user the permissions that {_PERMISSIONS} lists",
    ),
    (
        r"\b(SlowDown|ServiceUnavailable|InternalError)\b|\b50[0234] [A-Z]",
        "Try again later: the store is overloaded or down",
    ),
    (
        r"MicrosoftAzure.*(error sending request|timed out)",
        "Check the network, and AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ENDPOINT in "
        f"{_OPTIONS}: the store did not answer",
    ),
    (
        r"error sending request|timed out|dns error|tcp connect error",
        f"Check the network, and AWS_ENDPOINT_URL in {_OPTIONS}: the store did not answer",
    ),
    (
        r"InvalidUri|\bpanicked\b",
        f"Check AWS_ENDPOINT_URL in {_OPTIONS}: expected an address such as https://host:9000",
    ),
)
"""What to do by what an error says; the first that fits, so the particular ones come first."""


class TablesUnreachableError(OffsetlakeError):
    """The storage under the given root refused access or could not be reached."""


def without_answers(text: str) -> str:
    """Return a text with each answer of an object store replaced by its code and message.

    >>> without_answers("403 <Error><Code>ExpiredToken</Code><Token-0>secret</Token-0></Error>")
    '403 ExpiredToken'
    """
    return _ANSWER.sub(_code_and_message, text)


def advice_about(said: str) -> str | None:
    """Return what to do about an error of an object store by its text; None: it is not known as one.

    >>> advice_about("404 NoSuchBucket")
    'Create the bucket, or check --table-root'
    """
    return next((advice for pattern, advice in _ADVICE if re.search(pattern, said)), None)


def _code_and_message(answer: re.Match[str]) -> str:
    fields = dict(_FIELD.findall(answer[0]))
    named = [fields[name] for name in ("Code", "Message") if name in fields]
    region = f" (region {fields['Region']})" if "Region" in fields else ""
    return ": ".join(named or ["an answer without a code"]) + region
