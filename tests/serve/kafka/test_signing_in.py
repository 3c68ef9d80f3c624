"""Signing in to the Kafka listener: TLS, SASL and certificates, with right, wrong and missing credentials."""

import asyncio
import base64
import gc
import hashlib
import hmac
import socket
import ssl
import time
from asyncio.sslproto import SSLProtocol
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from certificates import CertificateAuthority
from cryptography import x509
from kafka_clients import wait_until
from listening import Client, Listening, listening
from signing_in import (
    BY_PASSWORD,
    PASSWORD,
    SUBJECT,
    Credentials,
    by_password,
    groups_of,
    librdkafka,
    principal,
    refusal_of,
    signed_in,
    some_tables,
)

from decoders.errors import DecodeError
from decoders.messages import request_bytes
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.limits import Limits
from streaming.serve.process.security import read_security
from streaming.tables.tables import Tables

HANDSHAKE, AUTHENTICATE, VERSIONS, LIST_GROUPS = 17, 36, 18, 16
NOT_ANSWERED = (OSError, DecodeError)
QUICK = Limits(handshake_s=1.0, sign_in_s=2.0, first_frame_s=1.0, unread_s=1.0, connections=10)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def ca() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.fixture(scope="module")
def credentials(ca: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    return Credentials.written(tmp_path_factory.mktemp("certificates"), ca)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return some_tables(tmp_path_factory.mktemp("some"))


@pytest.fixture(scope="module")
def sasl(tables: Tables, credentials: Credentials) -> Iterator[Listening]:
    """A listener with TLS, where clients sign in by a password."""
    security = read_security(credentials.listener("SASL_SSL"), BY_PASSWORD)
    with listening(tables, security=security, limits=QUICK, within_ms=10**9) as running:
        yield running


@pytest.fixture(scope="module")
def plaintext(tables: Tables, credentials: Credentials) -> Iterator[Listening]:
    """The same without TLS, for raw frames."""
    security = read_security(credentials.listener("SASL_PLAINTEXT"), BY_PASSWORD)
    with listening(tables, security=security, limits=QUICK, within_ms=10**9) as running:
        yield running


@pytest.fixture(scope="module")
def certified(tables: Tables, credentials: Credentials) -> Iterator[Listening]:
    """A listener where clients sign in by a certificate."""
    security = read_security(credentials.by_certificate(), [principal(SUBJECT, "SSL")])
    with listening(tables, security=security, limits=QUICK, within_ms=10**9) as running:
        yield running


@pytest.fixture(autouse=True)
def _all_connections_end(sasl: Listening, plaintext: Listening, certified: Listening) -> Iterator[None]:
    """Whatever clients did, nothing of them is left."""
    yield
    for running in (sasl, plaintext, certified):
        assert running.listener is not None
        wait_until(lambda: not running.listener._connections, "connections to end", timeout_s=5)  # type: ignore[union-attr]  # noqa: B023


def closed_for(running: Listening, reason: str) -> int:
    assert running.listener is not None
    return running.listener.counts.closed()[reason]


def is_closed(client: Client) -> bool:
    try:
        return client.frame() == b""
    except OSError:
        return True


def said_in(running: Listening, text: str) -> list[str]:
    return [line for line in running.said if text in line]


# --- librdkafka --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_right_password_signs_in(sasl: Listening, credentials: Credentials, mechanism: str) -> None:
    given = by_password(mechanism)
    assert groups_of(librdkafka(sasl.bootstrap, credentials, protocol="SASL_SSL", **given)) == ["g"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", [None, "no such name"])
def test_a_wrong_password_and_an_unknown_name_are_refused_alike(
    sasl: Listening, credentials: Credentials, mechanism: str, name: str | None
) -> None:
    given = by_password(mechanism, "wrong" if name is None else PASSWORD, name)
    said = refusal_of(librdkafka(sasl.bootstrap, credentials, protocol="SASL_SSL", **given))
    assert f"Signing in by {mechanism} failed: invalid credentials." in said
    assert not said_in(sasl, PASSWORD)


def test_another_mechanism_is_refused_with_those_that_there_are(
    tables: Tables, credentials: Credentials
) -> None:
    security = read_security(credentials.listener("SASL_SSL"), BY_PASSWORD[:1])
    with listening(tables, security=security, within_ms=10**9) as running:
        given = by_password("SCRAM-SHA-512")
        said = refusal_of(librdkafka(running.bootstrap, credentials, protocol="SASL_SSL", **given))
    assert "PLAIN" in said


def test_a_certificate_signs_in(certified: Listening, credentials: Credentials) -> None:
    own = str(credentials.client)
    settings = {"ssl_certificate_location": own, "ssl_key_location": own}
    assert groups_of(librdkafka(certified.bootstrap, credentials, protocol="SSL", **settings)) == ["g"]


@pytest.mark.parametrize("which", ["expired", "stranger", "none"])
def test_other_certificates_do_not(certified: Listening, credentials: Credentials, which: str) -> None:
    own = None if which == "none" else getattr(credentials, which)
    before = closed_for(certified, "tls")
    with pytest.raises(NOT_ANSWERED), Client(certified.bootstrap, tls=credentials.trusting(own)) as client:
        client.ask(VERSIONS, 0, {})  # with TLS 1.3 a client is refused after its part of the handshake
    wait_until(lambda: closed_for(certified, "tls") == before + 1, "the connection to be counted")


def test_the_subject_of_another_certificate_is_in_the_log(
    tables: Tables, credentials: Credentials, ca: CertificateAuthority, tmp_path: Path
) -> None:
    own = ca.write_pem(tmp_path / "nobody.pem", "nobody, of note")
    security = read_security(credentials.by_certificate(), [principal(SUBJECT, "SSL")])
    with listening(tables, security=security) as running:
        with Client(running.bootstrap, tls=credentials.trusting(own)) as client, pytest.raises(NOT_ANSWERED):
            client.ask(VERSIONS, 0, {})
        wait_until(lambda: bool(said_in(running, r"CN=nobody\, of note")), "the subject in the log")


@pytest.mark.parametrize(
    "wrong",
    ["another CA", *(pytest.param(one, marks=pytest.mark.more) for one in ("expired", "another host"))],
)
def test_clients_refuse_wrong_certificates_of_a_listener(
    tables: Tables, credentials: Credentials, ca: CertificateAuthority, tmp_path: Path, wrong: str
) -> None:
    signer = CertificateAuthority() if wrong == "another CA" else ca
    hosts = [x509.DNSName("other.example")] if wrong == "another host" else [x509.DNSName("localhost")]
    valid_s = -60.0 if wrong == "expired" else 60.0
    server = signer.write_pem(tmp_path / "server.pem", "x", valid_s=valid_s, hosts=hosts)
    settings = credentials.listener("SASL_SSL")
    advertised = f"{hosts[0].value}:9192"
    changed = {**vars(settings), "certificate_file": str(server), "advertise": advertised}
    security = read_security(type(settings)(**changed), BY_PASSWORD)
    with listening(tables, security=security, within_ms=10**9) as running:
        at = f"localhost:{running.address.port}"
        said = refusal_of(librdkafka(at, credentials, protocol="SASL_SSL", **by_password("PLAIN")))
    assert "certificate" in said.lower() or "ssl handshake failed" in said.lower(), said


# --- raw frames --------------------------------------------------------------------------------------------


def test_versions_are_told_before_signing_in_and_the_rest_is_not(plaintext: Listening) -> None:
    with Client(plaintext.bootstrap) as client:
        keys = {one["apiKey"] for one in client.ask(VERSIONS, 0, {})["apiKeys"]}
        assert {HANDSHAKE, AUTHENTICATE, LIST_GROUPS} <= keys
        client.send(LIST_GROUPS, 0, {})
        assert is_closed(client)


def test_a_listener_without_sasl_does_not_offer_it(tables: Tables) -> None:
    with listening(tables, within_ms=10**9) as running, Client(running.bootstrap) as client:
        keys = {one["apiKey"] for one in client.ask(VERSIONS, 0, {})["apiKeys"]}
        assert not keys & {HANDSHAKE, AUTHENTICATE}
        refused = Error.ILLEGAL_SASL_STATE
        assert client.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})["errorCode"] == refused
        assert client.ask(AUTHENTICATE, 2, {"authBytes": b""})["errorCode"] == refused
        assert client.ask(LIST_GROUPS, 0, {})["errorCode"] == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_client_that_signed_in_is_answered(plaintext: Listening, version: int) -> None:
    with Client(plaintext.bootstrap) as client:
        assert signed_in(client, version=version)["errorCode"] == 0
        assert [one["groupId"] for one in client.ask(LIST_GROUPS, 0, {})["groups"]] == ["g"]


def test_all_can_be_sent_at_once(plaintext: Listening) -> None:
    with Client(plaintext.bootstrap) as client:
        token = f"\0plain=,é\0{PASSWORD}".encode()
        client.socket.sendall(
            request_bytes(VERSIONS, 0, 1, "", {})
            + request_bytes(HANDSHAKE, 1, 2, "", {"mechanism": "PLAIN"})
            + request_bytes(AUTHENTICATE, 1, 3, "", {"authBytes": token})
            + request_bytes(LIST_GROUPS, 0, 4, "", {})
        )
        assert [int.from_bytes(client.frame()[:4]) for _ in range(4)] == [1, 2, 3, 4]


def test_tokens_without_headers_are_taken_after_the_oldest_handshake(plaintext: Listening) -> None:
    with Client(plaintext.bootstrap) as client:
        assert client.ask(HANDSHAKE, 0, {"mechanism": "PLAIN"})["errorCode"] == 0
        token = f"\0plain=,é\0{PASSWORD}".encode()
        client.socket.sendall(len(token).to_bytes(4) + token)
        assert client.frame() == b""  # an answer of no bytes
        assert client.ask(LIST_GROUPS, 0, {})["errorCode"] == 0
    with Client(plaintext.bootstrap) as client:
        client.ask(HANDSHAKE, 0, {"mechanism": "PLAIN"})
        client.socket.sendall((2).to_bytes(4) + b"\0\0")
        with pytest.raises(NOT_ANSWERED):
            client.ask(LIST_GROUPS, 0, {})


def test_an_unknown_mechanism_is_answered_with_the_known_ones_and_closed(plaintext: Listening) -> None:
    with Client(plaintext.bootstrap) as client:
        answered = client.ask(HANDSHAKE, 1, {"mechanism": "GSSAPI"})
        assert answered["errorCode"] == Error.UNSUPPORTED_SASL_MECHANISM
        assert answered["mechanisms"] == sorted(MECHANISMS)
        assert is_closed(client)


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\0",
        b"\0\0\0",
        b"\0plain=,\xe9\0x",
        b"other\0plain=,\xc3\xa9\0" + PASSWORD.encode(),
        b"x" * 60_000,
    ],
)
def test_a_wrong_token_is_refused_with_one_message_and_closed(plaintext: Listening, token: bytes) -> None:
    with Client(plaintext.bootstrap) as client:
        client.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})
        began = time.monotonic()
        answered = client.ask(AUTHENTICATE, 2, {"authBytes": token})
        assert time.monotonic() - began >= QUICK.refused_s
        assert answered["errorCode"] == Error.SASL_AUTHENTICATION_FAILED
        assert answered["errorMessage"] == "Signing in by PLAIN failed: invalid credentials."
        assert is_closed(client)


@pytest.mark.parametrize(
    "frames",
    {
        "a token without a handshake": [(AUTHENTICATE, 2, {"authBytes": b""})],
        "two handshakes": [(HANDSHAKE, 1, {"mechanism": "PLAIN"})] * 2,
        "another request in between": [(HANDSHAKE, 1, {"mechanism": "PLAIN"}), (VERSIONS, 0, {})],
    }.items(),
    ids=lambda one: one[0],
)
def test_another_order_closes_the_connection(plaintext: Listening, frames: Any) -> None:
    with Client(plaintext.bootstrap) as client:
        *before, last = frames[1]
        for frame in before:
            client.ask(*frame)
        client.send(*last)
        assert is_closed(client)


@pytest.mark.parametrize(
    "frame", [b"", b"\0", b"\0\x11", b"\xff\xff\xff\xff", b"\0\x24\0\x63\0\0\0\1\xff\xff"]
)
def test_odd_frames_before_signing_in_close_the_connection(plaintext: Listening, frame: bytes) -> None:
    with Client(plaintext.bootstrap) as client:
        client.socket.sendall(len(frame).to_bytes(4) + frame)
        assert is_closed(client)


def test_frames_are_small_before_signing_in_and_large_after(plaintext: Listening) -> None:
    names = [{"name": "t" * 100} for _ in range(1_000)]
    assert QUICK.sign_in_bytes < 100 * len(names)
    before = closed_for(plaintext, "size")
    with Client(plaintext.bootstrap) as client:
        client.send(3, 4, {"topics": names})
        assert is_closed(client)
    assert closed_for(plaintext, "size") == before + 1
    with Client(plaintext.bootstrap) as client:
        signed_in(client)
        assert client.ask(3, 4, {"topics": names})["topics"]


def test_who_does_not_sign_in_is_closed_though_it_keeps_asking(plaintext: Listening) -> None:
    with Client(plaintext.bootstrap) as client:
        began = time.monotonic()
        with suppress(*NOT_ANSWERED):
            while time.monotonic() - began < 30:
                client.ask(VERSIONS, 0, {})
                time.sleep(0.05)
        assert QUICK.sign_in_s - 0.1 < time.monotonic() - began < 30


# --- SCRAM -------------------------------------------------------------------------------------------------


def scram_challenge(client: Client, name: str) -> dict[str, str]:
    client.ask(HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"})
    token = f"n,,n={name},r=nonce".encode()
    answered = client.ask(AUTHENTICATE, 2, {"authBytes": token})
    assert answered["errorCode"] == 0
    return dict(part.split("=", 1) for part in answered["authBytes"].decode().split(","))


def scram_final(challenge: Mapping[str, str], name: str, **changed: str) -> bytes:
    """The last token of a client that knows the password, but for what is changed."""
    salt, rounds = base64.b64decode(challenge["s"]), int(challenge["i"])
    key = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), salt, rounds)
    client_key = hmac.digest(key, b"Client Key", "sha256")
    unproved = f"c={changed.get('c', 'biws')},r={changed.get('r', challenge['r'])}"
    first = f"n={name},r=nonce,r={challenge['r']},s={challenge['s']},i={challenge['i']},{unproved}"
    signature = hmac.digest(hashlib.sha256(client_key).digest(), first.encode(), "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    return f"{unproved},p={changed.get('p', base64.b64encode(proof).decode())}".encode()


KNOWN = "salted=3D=2Cé"


def test_an_unknown_name_gets_a_challenge_like_a_known_one_and_the_same_each_time(
    plaintext: Listening,
) -> None:
    found = []
    for name in (KNOWN, "unknown", "unknown", "other"):
        with Client(plaintext.bootstrap) as client:
            found.append(scram_challenge(client, name))
    known, once, again, other = found
    assert [len(base64.b64decode(one["s"])) for one in found] == [16] * 4
    assert known["i"] == once["i"] == other["i"]
    assert (once["s"], len({known["s"], once["s"], other["s"]})) == (again["s"], 3)
    assert len({one["r"] for one in found}) == 4


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({}, 0),
        ({"r": "nonce"}, 58),
        ({"c": "eSws"}, 58),
        ({"p": base64.b64encode(bytes(32)).decode()}, 58),
        ({"p": "AAAA"}, 58),
        ({"p": "A"}, 58),
    ],
)
def test_only_the_proof_of_this_exchange_signs_in(
    plaintext: Listening, changed: dict[str, str], error: int
) -> None:
    with Client(plaintext.bootstrap) as client:
        challenge = scram_challenge(client, KNOWN)
        answered = client.ask(AUTHENTICATE, 2, {"authBytes": scram_final(challenge, KNOWN, **changed)})
        assert answered["errorCode"] == error
        assert answered["authBytes"].startswith(b"v=") is (error == 0)


# --- sessions ----------------------------------------------------------------------------------------------


@pytest.mark.more
def test_a_session_ends_and_signing_in_again_prolongs_it(tables: Tables, credentials: Credentials) -> None:
    settings = credentials.listener("SASL_PLAINTEXT", connections_max_reauth_ms="1000")
    security = read_security(settings, BY_PASSWORD)
    with (
        listening(tables, security=security, within_ms=10**9) as running,
        Client(running.bootstrap) as client,
    ):
        began = time.monotonic()
        assert signed_in(client)["sessionLifetimeMs"] == 1_000
        while time.monotonic() < began + 2.5:  # longer than two sessions
            assert client.ask(LIST_GROUPS, 0, {})["errorCode"] == 0
            assert signed_in(client)["sessionLifetimeMs"] == 1_000
            time.sleep(0.1)
        time.sleep(1.1)
        client.send(LIST_GROUPS, 0, {})
        assert is_closed(client)


def test_after_its_session_a_client_is_not_told_versions_either(
    tables: Tables, credentials: Credentials
) -> None:
    settings = credentials.listener("SASL_PLAINTEXT", connections_max_reauth_ms="300")
    security = read_security(settings, BY_PASSWORD)
    with (
        listening(tables, security=security, within_ms=10**9) as running,
        Client(running.bootstrap) as client,
    ):
        signed_in(client)
        time.sleep(0.4)
        assert signed_in(client)["errorCode"] == 0  # late, as brokers allow
        assert client.ask(VERSIONS, 0, {})["errorCode"] == 0
        time.sleep(0.4)
        client.send(VERSIONS, 0, {})
        assert is_closed(client)


def test_another_principal_may_not_continue_a_session(tables: Tables, credentials: Credentials) -> None:
    known = [*BY_PASSWORD, principal("another", "PLAIN", PASSWORD)]
    security = read_security(credentials.listener("SASL_PLAINTEXT"), known)
    with (
        listening(tables, security=security, within_ms=10**9) as running,
        Client(running.bootstrap) as client,
    ):
        assert signed_in(client)["errorCode"] == 0
        assert signed_in(client, "another")["errorCode"] == Error.SASL_AUTHENTICATION_FAILED
        assert is_closed(client)


# --- TLS ---------------------------------------------------------------------------------------------------


def test_half_open_handshakes_count_as_connections_and_end(sasl: Listening, credentials: Credentials) -> None:
    host, _, port = sasl.bootstrap.rpartition(":")
    half_open = [socket.create_connection((host, int(port)), timeout=5) for _ in range(QUICK.connections)]
    try:
        half_open[0].sendall(b"\x16\x03\x01\x02\x00")  # the begin of a ClientHello
        assert sasl.listener is not None
        wait_until(lambda: sasl.listener.connections == QUICK.connections, "all of them")  # type: ignore[union-attr]
        with pytest.raises(NOT_ANSWERED):
            Client(sasl.bootstrap, tls=credentials.trusting())
        assert [one.recv(1) for one in half_open] == [b""] * QUICK.connections  # after handshake_s
    finally:
        for one in half_open:
            one.close()
    with Client(sasl.bootstrap, tls=credentials.trusting()) as client:
        assert client.ask(VERSIONS, 0, {})["errorCode"] == 0


def test_plain_bytes_at_a_listener_with_tls_close_the_connection(sasl: Listening) -> None:
    with Client(sasl.bootstrap) as client:
        client.send(VERSIONS, 0, {})
        received = client.socket.recv(100)  # an alert of TLS
        assert b"\0\x12" not in received
        assert client.socket.recv(100) == b""


@pytest.mark.parametrize("count", [1, 6_000])  # 6,000 are more than is read ahead
def test_requests_together_with_the_end_of_the_handshake_are_answered_within_tls(
    sasl: Listening, credentials: Credentials, count: int
) -> None:
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = credentials.trusting().wrap_bio(received, sent, server_hostname="127.0.0.1")
    host, _, port = sasl.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as plain:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                plain.sendall(sent.read())
                received.write(plain.recv(65_536))
        tls.write(b"".join(request_bytes(VERSIONS, 0, number, "", {}) for number in range(count)))
        assert sasl.listener is not None
        sasl.listener._checks.get_loop().call_soon_threadsafe(time.sleep, 0.3)  # so that it reads all at once
        plain.sendall(sent.read())
        answered = b""
        for number in range(count):
            while len(answered) < 4 or len(answered) < 4 + int.from_bytes(answered[:4]):
                try:
                    answered += tls.read(65_536)
                except ssl.SSLWantReadError:
                    received.write(plain.recv(65_536))
            assert int.from_bytes(answered[4:8]) == number
            answered = answered[4 + int.from_bytes(answered[:4]) :]


def test_a_client_that_reads_nothing_within_tls_is_closed(sasl: Listening, credentials: Credentials) -> None:
    before = closed_for(sasl, "unread")
    with Client(sasl.bootstrap, tls=credentials.trusting()) as client:
        client.socket.settimeout(1)
        many = b"".join(request_bytes(VERSIONS, 0, number, "", {}) for number in range(10_000))
        with suppress(OSError):  # nothing more is taken
            for _ in range(200):
                client.socket.sendall(many)
        wait_until(lambda: closed_for(sasl, "unread") == before + 1, "the connection to be closed")


def tls_held() -> int:
    return sum(isinstance(one, SSLProtocol) for one in gc.get_objects())


def test_connections_over_tls_leave_nothing_to_the_garbage_collector(
    sasl: Listening, credentials: Credentials
) -> None:
    gc.collect()
    gc.disable()
    try:
        before = tls_held()
        for sent in (b"", b"garbage" * 100, b"\x16\x03\x01\x02\x00"):
            with Client(sasl.bootstrap) as client, suppress(OSError):
                client.socket.sendall(sent)
                client.socket.shutdown(socket.SHUT_WR)
                client.frame()
        with Client(sasl.bootstrap, tls=credentials.trusting()) as client:
            signed_in(client)
            client.ask(LIST_GROUPS, 0, {})
        wait_until(lambda: tls_held() == before, "all to be freed", timeout_s=5)
    finally:
        gc.enable()


def test_handshakes_begin_one_after_the_other_and_addresses_take_turns(sasl: Listening) -> None:
    begun: list[tuple[int, str]] = []

    async def begin(peer: str) -> None:
        assert sasl.listener is not None
        await sasl.listener.may_shake_hands(peer)
        begun.append((passes, peer))

    async def begin_all() -> None:
        nonlocal passes
        tasks = [asyncio.create_task(begin(peer)) for peer in ["a"] * 20 + ["b"]]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            passes += 1

    passes = 0
    assert sasl.listener is not None
    loop = sasl.listener._checks.get_loop()
    asyncio.run_coroutine_threadsafe(begin_all(), loop).result(10)
    assert len({at for at, _ in begun}) == len(begun) == 21
    assert "b" in [peer for _, peer in begun[:3]]


def test_the_time_to_the_first_request_begins_after_the_handshake(
    sasl: Listening, credentials: Credentials
) -> None:
    """A handshake may take long, for example if it waits for its turn."""
    assert QUICK.handshake_s == QUICK.first_frame_s == 1
    host, _, port = sasl.bootstrap.rpartition(":")

    def late(delay_s: float) -> bool:
        time.sleep(delay_s)  # the listener looks every second
        connection = socket.create_connection((host, int(port)), 10)
        time.sleep(0.8)
        with Client(sasl.bootstrap, tls=credentials.trusting(), over=connection) as client:
            time.sleep(0.8)
            return bool(client.ask(VERSIONS, 0, {})["apiKeys"])

    with ThreadPoolExecutor(4) as clients:
        assert all(clients.map(late, (0, 0.25, 0.5, 0.75)))


def test_versions_of_tls_before_1_2_are_refused(sasl: Listening, credentials: Credentials) -> None:
    old = credentials.trusting()
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    before = closed_for(sasl, "tls")
    with pytest.raises(NOT_ANSWERED):
        Client(sasl.bootstrap, tls=old)
    wait_until(lambda: closed_for(sasl, "tls") == before + 1, "the connection to be counted")


def test_new_security_is_for_new_connections(tables: Tables, credentials: Credentials) -> None:
    settings = credentials.listener("SASL_PLAINTEXT")
    security = read_security(settings, BY_PASSWORD)
    with (
        listening(tables, security=security, within_ms=10**9) as running,
        Client(running.bootstrap) as before,
    ):
        signed_in(before)
        assert running.listener is not None
        running.listener.security = read_security(settings, [principal("new", "PLAIN", "new")])
        assert before.ask(LIST_GROUPS, 0, {})["errorCode"] == 0
        with Client(running.bootstrap) as after:
            assert signed_in(after)["errorCode"] == Error.SASL_AUTHENTICATION_FAILED
        with Client(running.bootstrap) as after:
            assert signed_in(after, "new", "new")["errorCode"] == 0
