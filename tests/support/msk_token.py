"""A token of Amazon MSK as a broker gets it: who signed it, for which region, when, and whether rightly."""

from base64 import urlsafe_b64decode
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlsplit

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

_UNSIGNED = ("X-Amz-Signature", "User-Agent")


@dataclass(frozen=True)
class MskToken:
    """The presigned URL within a token."""

    text: str

    @property
    def url(self) -> str:
        return urlsafe_b64decode(self.text + "=" * (-len(self.text) % 4)).decode()

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.url).query, strict_parsing=True))

    @property
    def is_of_java(self) -> bool:
        return self.query["User-Agent"].startswith("aws-msk-iam-auth")

    @property
    def key(self) -> str:
        """The access key id."""
        return self.query["X-Amz-Credential"].split("/")[0]

    @property
    def region(self) -> str:
        return self.query["X-Amz-Credential"].split("/")[2]

    @property
    def signed_at(self) -> float:
        """Seconds since 1970."""
        return datetime.strptime(self.query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()

    def is_signed_by(self, key: str, secret: str, session: str | None = None) -> bool:
        """Whether AWS, which knows the secret, would accept key, session token and signature."""
        query = self.query
        if (self.key, query.get("X-Amz-Security-Token")) != (key, session):
            return False
        place = urlsplit(self.url)
        assert (place.scheme, place.netloc) == ("https", f"kafka.{self.region}.amazonaws.com")
        assert query["Action"] == "kafka-cluster:Connect"
        signed = {name: value for name, value in query.items() if name not in _UNSIGNED}
        request = AWSRequest(method="GET", url=f"https://{place.netloc}/", params=signed)
        request.context["timestamp"] = query["X-Amz-Date"]
        signer = SigV4QueryAuth(Credentials(key, secret, session), "kafka-cluster", self.region)
        text = signer.string_to_sign(request, signer.canonical_request(request))
        return bool(signer.signature(text, request) == query["X-Amz-Signature"])
