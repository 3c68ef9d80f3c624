"""Stand-ins for what gives credentials of AWS: the metadata service of an instance, and STS.

They answer on 127.0.0.1, in the formats of AWS's documentation. `AwsEndpoints.asked` has their requests.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl

from server_thread import serving

OF_INSTANCE: Final = ("ASIAINSTANCE", "secret/of+instance", "session-of-instance")
OF_STS: Final = ("ASIASTS", "secret/of+sts", "session-of-sts")
"""Access key id, secret access key and session token of what each gives."""

_LIFETIME: Final = timedelta(hours=1)
_ROLES: Final = "/latest/meta-data/iam/security-credentials/"
_ASSUMED: Final = """<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result>
<Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>
<SessionToken>{session}</SessionToken><Expiration>{until}</Expiration></Credentials>
<AssumedRoleUser><Arn>arn:aws:sts::123456789012:assumed-role/r/s</Arn><AssumedRoleId>A:s</AssumedRoleId>
</AssumedRoleUser></{action}Result><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata>
</{action}Response>"""
_REFUSED: Final = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>
<Code>{code}</Code><Message>{message}</Message></Error><RequestId>1</RequestId></ErrorResponse>"""


@dataclass
class AwsEndpoints:
    """Both services at one address. STS refuses with `refusal`, a code and a message, once it is set."""

    port: int = 0
    refusal: tuple[str, str] | None = None
    asked: list[dict[str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _metadata(self, path: str) -> str:
        if path == _ROLES:
            return "role-of-instance"
        key, secret, session = OF_INSTANCE
        return json.dumps(
            {
                "Code": "Success",
                "Type": "AWS-HMAC",
                "LastUpdated": _when(timedelta()),
                "AccessKeyId": key,
                "SecretAccessKey": secret,
                "Token": session,
                "Expiration": _when(_LIFETIME),
            }
        )

    def _sts(self, form: dict[str, str]) -> tuple[int, str]:
        self.asked.append(form)
        if self.refusal is not None:
            code, message = self.refusal
            return 403, _REFUSED.format(code=code, message=message)
        key, secret, session = OF_STS
        return 200, _ASSUMED.format(
            action=form["Action"], key=key, secret=secret, session=session, until=_when(_LIFETIME)
        )


def _when(later: timedelta) -> str:
    return (datetime.now(UTC) + later).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def aws_endpoints() -> Iterator[AwsEndpoints]:
    """Run both services until the end of the block."""
    endpoints = AwsEndpoints()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:  # a token for the metadata service
            self._answer(200, "metadata-token", {"X-aws-ec2-metadata-token-ttl-seconds": "21600"})

        def do_GET(self) -> None:
            known = self.path.startswith(_ROLES)
            self._answer(*((200, endpoints._metadata(self.path)) if known else (404, "")))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._answer(*endpoints._sts(dict(parse_qsl(body))))

        def _answer(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
            content = text.encode()
            with suppress(OSError):  # a client that does not wait
                self.send_response(status)
                for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoints.port = server.server_port
    with serving(server):
        yield endpoints
