"""An OAuth 2.0 server for tests: gives signed tokens for a client id and its secret, over https.

It keeps what it is asked, and fails as it is told. Brokers check the signatures by its JWKS.
"""

import json
import ssl
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from server_thread import serving

ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "kafka"
_KEY_ID: Final = "key-1"


@dataclass(frozen=True)
class Asked:
    """A request for a token: the header `Authorization` decoded, the parameters of the body, the client."""

    user: str
    form: dict[str, list[str]]
    agent: str


@dataclass
class TokenIssuer:
    """The server. `fails` answers instead of it, once set; `answers` do so at other paths than /token."""

    port: int = 0
    clients: dict[str, str] = field(default_factory=dict)
    """Secrets by client id."""
    lifetime_s: float = 60
    fails: "Answer | None" = None
    answers: "dict[str, Answer]" = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    issued: list[str] = field(default_factory=list)
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    def url(self, path: str = "/token") -> str:
        return f"https://127.0.0.1:{self.port}{path}"

    def asked_by(self, *, java: bool) -> int:
        """Count the requests of Java, or those of others."""
        return sum(one.agent.startswith("Java") is java for one in self.asked)

    def token(self, client_id: str, *, key_id: str = _KEY_ID, **changed: Any) -> str:
        """Return the answer with a new token whose subject is the client; `changed` replace its claims."""
        now = time.time()
        claims = {"sub": client_id, "iss": ISSUER, "aud": AUDIENCE, "iat": int(now)}
        claims |= {"exp": int(now + self.lifetime_s), "jti": f"{len(self.issued)}", **changed}
        token = jwt.encode(claims, self.key, "RS256", headers={"kid": key_id})
        self.issued.append(token)
        return json.dumps({"access_token": token, "token_type": "Bearer"})

    def jwks(self) -> dict[str, Any]:
        key = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {"keys": [{**key, "kid": _KEY_ID, "use": "sig", "alg": "RS256"}]}


Answer = Callable[[BaseHTTPRequestHandler], None]


def answer(
    handler: BaseHTTPRequestHandler, status: int, body: str | bytes, kind: str = "application/json"
) -> None:
    """Send a whole answer."""
    content = body.encode() if isinstance(body, str) else body
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def cut(handler: BaseHTTPRequestHandler) -> None:
    """Close the connection without an answer."""
    handler.close_connection = True
    handler.connection.close()


def refuse(handler: BaseHTTPRequestHandler) -> None:
    """Answer as for a wrong secret (RFC 6749, section 5.2)."""
    answer(handler, 401, json.dumps({"error": "invalid_client", "error_description": "no such client"}))


@contextmanager
def token_issuer(certificate: Path) -> Iterator[TokenIssuer]:
    """Run an issuer with the key and the certificate in a PEM file."""
    issuer = TokenIssuer()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            user = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
            issuer.asked.append(Asked(user, parse_qs(body), self.headers.get("User-Agent", "")))
            client_id, _, secret = user.partition(":")
            with suppress(OSError):  # a client that does not wait
                if (act := issuer.answers.get(self.path, issuer.fails)) is not None:
                    act(self)
                elif issuer.clients.get(client_id) != secret:
                    refuse(self)
                else:
                    answer(self, 200, issuer.token(client_id))

        def do_GET(self) -> None:
            answer(self, 200, json.dumps(issuer.jwks()))

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    issuer.port = server.server_port
    with serving(server):
        yield issuer
