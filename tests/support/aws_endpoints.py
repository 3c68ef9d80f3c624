"""Stand-ins for services that give credentials of AWS: to an instance, to a container, and STS.

They answer on 127.0.0.1, in the formats of AWS's documentation. `AwsEndpoints.asked` has the requests to STS.
In a process of their own (`start_aws_endpoints`) they also answer delta-rs, which holds Python's lock.
"""

import json
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl
from urllib.request import Request, urlopen

from object_store import accepts, wait_until_ready
from server_thread import serving

from streaming.demo.child import Child
from streaming.demo.local_broker import free_ports

OF_INSTANCE: Final = ("ASIAINSTANCE", "secret/of+instance", "session-of-instance")
OF_STS: Final = ("ASIASTS", "secret/of+sts", "session-of-sts")
"""Access key id, secret access key and session token of what each gives."""

_CONTAINER: Final = "/container"
_CONTROL: Final = "/-control-"
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
    """All services at one address. STS refuses with `refusal`, a code and a message, once it is set."""

    port: int = 0
    of_instance: Sequence[str] = OF_INSTANCE
    of_sts: Sequence[str] = OF_STS
    lifetime_s: float = 3_600
    refusal: tuple[str, str] | None = None
    asked: list[dict[str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _metadata(self, path: str) -> str:
        if path == _ROLES:
            return "role-of-instance"
        key, secret, session = self.of_instance
        return json.dumps(
            {
                "Code": "Success",
                "Type": "AWS-HMAC",
                "LastUpdated": _when(0),
                "AccessKeyId": key,
                "SecretAccessKey": secret,
                "Token": session,
                "Expiration": _when(self.lifetime_s),
            }
        )

    def _sts(self, form: dict[str, str]) -> tuple[int, str]:
        self.asked.append(form)
        if self.refusal is not None:
            code, message = self.refusal
            return 403, _REFUSED.format(code=code, message=message)
        key, secret, session = self.of_sts
        return 200, _ASSUMED.format(
            action=form["Action"], key=key, secret=secret, session=session, until=_when(self.lifetime_s)
        )


def _when(later_s: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=later_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def aws_endpoints() -> Iterator[AwsEndpoints]:
    """Run the services in this process until the end of the block."""
    endpoints = AwsEndpoints()
    with serving(_server(endpoints)):
        yield endpoints


@dataclass(frozen=True)
class AwsProcess:
    """The services in a process of their own; see `start_aws_endpoints`."""

    url: str

    def set(self, **values: object) -> None:
        """Change fields of `AwsEndpoints`."""
        data = json.dumps(values).encode()
        with urlopen(Request(self.url + _CONTROL, data, method="PUT"), timeout=30):
            return


@contextmanager
def start_aws_endpoints(directory: Path) -> Iterator[AwsProcess]:
    """Run the services in a process of their own until the end of the block."""
    [port] = free_ports(1)
    here = Path(__file__).resolve()
    path = [str(here.parents[2]), str(here.parent)]
    program = f"import sys; sys.path[:0] = {path!r}; import aws_endpoints; aws_endpoints.serve({port})"
    child = Child([sys.executable, "-c", program], log=directory / "aws.log", directory=directory)
    try:
        wait_until_ready(child, lambda: accepts(port), directory / "aws.log")
        yield AwsProcess(f"http://127.0.0.1:{port}")
    finally:
        child.end(signal.SIGKILL)


def serve(port: int) -> None:
    """Run the services until killed."""
    _server(AwsEndpoints(), port).serve_forever()


def _server(endpoints: AwsEndpoints, port: int = 0) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:  # a token for the metadata service
            if self.path == _CONTROL:
                vars(endpoints).update(json.loads(self._body()))
            self._answer(200, "metadata-token", {"X-aws-ec2-metadata-token-ttl-seconds": "21600"})

        def do_GET(self) -> None:
            known = self.path.startswith((_ROLES, _CONTAINER))
            self._answer(*((200, endpoints._metadata(self.path)) if known else (404, "")))

        def do_POST(self) -> None:
            self._answer(*endpoints._sts(dict(parse_qsl(self._body()))))

        def _body(self) -> str:
            return self.rfile.read(int(self.headers["Content-Length"])).decode()

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

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    endpoints.port = server.server_port
    return server
