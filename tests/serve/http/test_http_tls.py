"""HTTP over TLS: https with a certificate of the settings, and handshakes that do not end."""

import http.client
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import CertificateAuthority
from http_endpoint import Opened, opened
from kafka_clients import wait_until
from signing_in import Credentials, some_tables

from streaming.model.errors import MisuseError
from streaming.serve.http.limits import HttpLimits
from streaming.serve.process.security import read_http_tls
from streaming.settings.model import HttpSettings

TOKEN = "0123456789abcdef"
QUICK = HttpLimits(head_s=1.0, connections=5, connections_of_address=5)


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    return Credentials.written(tmp_path_factory.mktemp("certificates"), CertificateAuthority())


def settings(certificate: Path | str, key: str = "") -> HttpSettings:
    return HttpSettings(
        listen="127.0.0.1:0",
        token_file="",
        behind_proxy="off",
        certificate_file=str(certificate),
        key_file=key,
    )


@pytest.fixture(scope="module")
def endpoint(credentials: Credentials, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    tables = some_tables(tmp_path_factory.mktemp("some"))
    tls = read_http_tls(settings(credentials.server))
    with opened(tables, token=TOKEN, limits=QUICK, tls=tls) as running:
        yield running


def status_of(
    endpoint: Opened, tls: ssl.SSLContext, method: str = "GET", path: str = "/healthz", body: str = ""
) -> tuple[int, str]:
    """Return the status of an answer, and the cookie that it sets."""
    connection = http.client.HTTPSConnection("127.0.0.1", endpoint.endpoint.port, timeout=10, context=tls)
    headers = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
    try:
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers.get("set-cookie", "")
    finally:
        connection.close()


def test_it_is_answered_within_tls(endpoint: Opened, credentials: Credentials) -> None:
    for _ in range(20):
        assert status_of(endpoint, credentials.trusting()) == (200, "")


def test_who_does_not_trust_its_certificate_is_not_answered(endpoint: Opened) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        status_of(endpoint, ssl.create_default_context())


def test_cookies_are_secure(endpoint: Opened, credentials: Credentials) -> None:
    status, cookie = status_of(endpoint, credentials.trusting(), "POST", "/login", f"token={TOKEN}&next=/")
    assert status == 303
    assert "; Secure" in cookie


def test_a_client_that_still_sends_its_body_reads_the_rejection(
    endpoint: Opened, credentials: Credentials
) -> None:
    port = endpoint.endpoint.port
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=credentials.trusting())
    connection.putrequest("POST", "/metrics")
    connection.putheader("Content-Length", "2000000")
    connection.endheaders()
    time.sleep(0.2)  # until it is rejected
    for _ in range(20):
        connection.send(b"x" * 100_000)
    answer = connection.getresponse()
    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert b"expected a request without a body" in answer.read()
    connection.close()


def test_plain_requests_are_not_answered(endpoint: Opened) -> None:
    with endpoint.connect() as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP" not in plain.recv(1_000)


def test_half_open_handshakes_count_and_end(endpoint: Opened, credentials: Credentials) -> None:
    places = endpoint.endpoint._connections
    wait_until(lambda: not places, "connections of before to end")
    began = time.monotonic()
    half_open = [endpoint.connect() for _ in range(QUICK.connections)]
    wait_until(lambda: len(places) == QUICK.connections, "all of them")
    with pytest.raises((OSError, http.client.HTTPException)):
        status_of(endpoint, credentials.trusting())
    for one in half_open:
        assert one.recv(1) == b""
        one.close()
    assert time.monotonic() - began < 30
    wait_until(lambda: not places, "them to end")
    assert status_of(endpoint, credentials.trusting())[0] == 200


def test_clients_that_vanish_within_the_handshake_leave_nothing(endpoint: Opened) -> None:
    for data in (b"", b"\x16\x03\x01", b"\0" * 100):
        with endpoint.connect() as one:
            one.sendall(data)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # RST
    wait_until(lambda: not endpoint.endpoint._connections, "them to end")


def test_a_key_needs_its_certificate(credentials: Credentials) -> None:
    with pytest.raises(MisuseError, match="expected a certificate_file beside key_file"):
        read_http_tls(settings("", str(credentials.server)))
    with pytest.raises(MisuseError, match=r"\[serve.http\]: certificate_file and key_file: /none cannot be"):
        read_http_tls(settings("/none"))
    assert read_http_tls(settings("")) is None
