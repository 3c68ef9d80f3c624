"""What the listener counts, and what it logs of refusals."""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from certificates import CertificateAuthority
from kafka_clients import wait_until
from listening import Client, Listening, listening
from new_tables import new_tables
from signing_in import PASSWORD, Credentials, principal
from table_batches import append, group, groups_of_offsets, offset

from decoders.messages import request_bytes
from streaming.common.times import now_ms
from streaming.model.progress import PartitionProgress
from streaming.serve.kafka.counts import MOST_CLIENTS
from streaming.serve.kafka.limits import Limits
from streaming.serve.process.security import read_security
from streaming.tables.tables import Tables

HANDSHAKE, AUTHENTICATE, VERSIONS, LIST_GROUPS, DESCRIBE, FETCH = 17, 36, 18, 16, 15, 9
MANY = 500
QUICK = Limits(
    first_frame_s=1.0,
    frame_s=1.0,
    sign_in_s=2.0,
    handshake_s=1.0,
    connections=20,
    connections_per_principal=3,
)
KNOWN = [
    principal("billing", "PLAIN", PASSWORD, groups=("g*",), topics=("t",)),
    principal("shipping", "PLAIN", PASSWORD, groups=("shipping",), topics=("u",)),
]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """The groups `g0` and `g1`, with offsets of the topics `t` and `u`; one of `u` cannot be read."""
    made = new_tables(tmp_path_factory.mktemp("counts") / "tables")
    batch = groups_of_offsets(2, MANY, "") | {"shipping": group(source_partition=0)}
    batch[("g0", "u", 0)] = offset(source_partition=0)
    batch[("g0", "u", 1)] = offset(source_partition=0, unreadable_source_offset=7)
    append(made, batch, partitions={0: PartitionProgress(loaded=True)}, now=now_ms())
    return made


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    return Credentials.written(tmp_path_factory.mktemp("certificates"), CertificateAuthority())


@pytest.fixture
def endpoint(tables: Tables) -> Iterator[Listening]:
    with listening(tables, limits=QUICK, within_ms=10**9) as running:
        yield running


@pytest.fixture
def sasl(tables: Tables, credentials: Credentials) -> Iterator[Listening]:
    security = read_security(credentials.listener("SASL_PLAINTEXT"), KNOWN)
    with listening(tables, limits=QUICK, security=security, within_ms=10**9) as running:
        yield running


def counts_of(endpoint: Listening, kind: str) -> dict[Any, int]:
    """Return what was counted, without zeros."""
    assert endpoint.listener is not None
    return {key: count for key, count in getattr(endpoint.listener.counts, kind)().items() if count}


def signed_in(client: Client, name: str) -> Client:
    assert client.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})["errorCode"] == 0
    client.ask(AUTHENTICATE, 2, {"authBytes": f"\0{name}\0{PASSWORD}".encode()})
    return client


# --- requests ----------------------------------------------------------------------------------------------


def test_requests_are_counted_by_api_and_version(endpoint: Listening) -> None:
    with Client(endpoint.bootstrap) as client:
        for _ in range(3):  # the last two are kept responses
            client.ask(FETCH, 8, {"groups": [{"groupId": "g1", "topics": []}]})
        client.ask(FETCH, 7, {"groupId": "g1", "topics": None})
        client.ask(LIST_GROUPS, 5, {})
        client.socket.sendall(b"\0\0\0\x0b\0\x12\x12\x34\0\0\0\1\xff\xff\0")  # ApiVersions 4660
        assert client.frame()[4:6] == b"\0\x23"  # UNSUPPORTED_VERSION
    requests = {("OffsetFetch", "8"): 3, ("OffsetFetch", "7"): 1, ("ListGroups", "5"): 1}
    assert counts_of(endpoint, "requests") == {**requests, ("ApiVersions", "other"): 1}
    assert counts_of(endpoint, "software") == {("unknown", "unknown"): 6}
    assert counts_of(endpoint, "errors") == {("ApiVersions", "UNSUPPORTED_VERSION"): 1}


def test_every_supported_version_has_a_count_from_the_begin(endpoint: Listening) -> None:
    assert endpoint.listener is not None
    counted = endpoint.listener.counts.requests()
    with Client(endpoint.bootstrap) as client:
        offered = {one["apiKey"]: one["maxVersion"] for one in client.ask(VERSIONS, 0, {})["apiKeys"]}
    assert set(counted.values()) == {0}
    assert {("OffsetFetch", str(version)) for version in range(1, offered[FETCH] + 1)} <= set(counted)


def test_requests_are_counted_by_the_software_that_the_client_names(endpoint: Listening) -> None:
    with Client(endpoint.bootstrap) as client, Client(endpoint.bootstrap) as other:
        client.named("apache-kafka-java", "4.3.1").ask(LIST_GROUPS, 5, {})
        other.named("librdkafka", "2.16.1").named("not in this form", "1").named("a", "").ask(
            LIST_GROUPS, 5, {}
        )
    assert counts_of(endpoint, "software") == {("apache-kafka-java", "4.3.1"): 2, ("librdkafka", "2.16.1"): 4}
    assert counts_of(endpoint, "errors") == {("ApiVersions", "INVALID_REQUEST"): 2}


def test_clients_with_thousands_of_names_have_one_count_together(endpoint: Listening) -> None:
    with Client(endpoint.bootstrap) as client:
        for number in range(2_000):
            client.named(f"hostile-{number}", "1")
    counted = counts_of(endpoint, "software")
    assert counted["other", "other"] == 2_000 - (MOST_CLIENTS - 1)  # `unknown` is one of them
    assert len(counted) == MOST_CLIENTS


def test_the_name_of_a_client_that_has_not_signed_in_is_not_kept(sasl: Listening) -> None:
    with Client(sasl.bootstrap) as client:
        client.named("stranger", "1")
        client.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})
    with Client(sasl.bootstrap) as client:
        signed_in(client.named("known", "1"), "billing").ask(LIST_GROUPS, 5, {})
    assert counts_of(sasl, "software") == {("unknown", "unknown"): 5, ("known", "1"): 1}


# --- errors ------------------------------------------------------------------------------------------------

BAD_CURSOR = {"topics": [{"name": "t"}], "cursor": {"topicName": "u", "partitionIndex": 0}}
UNREADABLE = {"groupId": "g0", "topics": [{"name": "u", "partitionIndexes": [0, 1, 1, 9]}]}
COMMITTED = [
    {"partitionIndex": number, "committedOffset": 1, "committedMetadata": ""} for number in range(1_000)
]
COMMIT = {"groupId": "g0", "topics": [{"name": "t", "partitions": COMMITTED}]}


@pytest.mark.parametrize(
    ("api_key", "version", "body", "error", "count"),
    [
        (47, 0, {"groupId": "g0", "topics": []}, "GROUP_AUTHORIZATION_FAILED", 1),
        (75, 0, BAD_CURSOR, "INVALID_REQUEST", 1),
        (DESCRIBE, 6, {"groups": ["no", "nor this", "g0"]}, "GROUP_ID_NOT_FOUND", 2),
        (3, 12, {"topics": [{"name": "no"}, {"name": "t"}]}, "UNKNOWN_TOPIC_OR_PARTITION", 1),
        (FETCH, 9, {"groups": [UNREADABLE]}, "UNKNOWN_SERVER_ERROR", 2),
        (8, 8, COMMIT, "GROUP_AUTHORIZATION_FAILED", 1_000),
    ],
)
def test_errors_are_counted_at_every_level(
    endpoint: Listening, api_key: int, version: int, body: dict[str, Any], error: str, count: int
) -> None:
    with Client(endpoint.bootstrap) as client:
        for _ in range(2):  # the second may be kept
            client.ask(api_key, version, body)
    [((_, found), counted)] = counts_of(endpoint, "errors").items()
    assert (found, counted) == (error, 2 * count)


def test_the_errors_of_a_principal_and_of_signing_in_are_counted_and_logged(sasl: Listening) -> None:
    names = ["g0", "shipping", *(f"no-{number}" for number in range(MANY))]
    with Client(sasl.bootstrap) as client:
        signed_in(client, "billing")
        client.ask(FETCH, 9, {"groups": [{"groupId": name, "topics": None} for name in names]})  # as columns
        topics = [{"name": "t", "partitionIndexes": [0]}, {"name": "u", "partitionIndexes": [0, 1]}]
        client.ask(FETCH, 9, {"groups": [{"groupId": "g0", "topics": topics}]})
    with Client(sasl.bootstrap) as client:
        client.ask(HANDSHAKE, 1, {"mechanism": "GSSAPI"})
    with Client(sasl.bootstrap) as client:
        client.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})
        client.ask(AUTHENTICATE, 2, {"authBytes": b"\0billing\0wrong"})
    assert counts_of(sasl, "errors") == {
        ("OffsetFetch", "GROUP_AUTHORIZATION_FAILED"): MANY + 1,
        ("OffsetFetch", "TOPIC_AUTHORIZATION_FAILED"): 2,
        ("SaslHandshake", "UNSUPPORTED_SASL_MECHANISM"): 1,
        ("SaslAuthenticate", "SASL_AUTHENTICATION_FAILED"): 1,
    }
    refused = [line for line in sasl.said if line.startswith("refusing a request: ")]
    kinds = ("GROUP", "TOPIC")
    who = "refusing a request: 127.0.0.1 (billing): OffsetFetch:"
    assert refused == [f"{who} {kind}_AUTHORIZATION_FAILED" for kind in kinds]
    assert not any(PASSWORD in line for line in sasl.said)


# --- refusals ----------------------------------------------------------------------------------------------

MALFORMED = b"\0\0\0\x08\0\x09\0\x09\0\0\0\1"
UNSUPPORTED = request_bytes(VERSIONS, 0, 1, "", {}).replace(b"\0\x12", b"\0\x00")
BEGUN = b"\0\0\1\0\0\x12"
EXPECTED = {
    "a malformed request": (MALFORMED, "request", "expected 2 bytes for clientId"),
    "an API that is not supported": (UNSUPPORTED, "request", "expected a known API"),
    "a size that is too large": (b"\x7f\xff\xff\xff", "size", "expected a request of at most"),
    "no request": (b"", "late", "expected a request within 1 s of connecting"),
    "the begin of a request": (BEGUN, "late", "expected a request within 1 s of connecting"),
}


@pytest.mark.parametrize("what", EXPECTED)
def test_a_client_that_is_disconnected_is_counted_and_logged(endpoint: Listening, what: str) -> None:
    sent, reason, why = EXPECTED[what]
    with Client(endpoint.bootstrap) as client, suppress(OSError):
        client.socket.sendall(sent)
        assert client.frame() == b""
    assert counts_of(endpoint, "closed") == {reason: 1}
    [line] = endpoint.said
    assert ", closing the connection: 127.0.0.1: " in line
    assert why in line


def test_the_rest_of_a_request_that_does_not_come_is_late(endpoint: Listening) -> None:
    with Client(endpoint.bootstrap) as client:
        client.ask(VERSIONS, 0, {})
        client.socket.sendall(BEGUN)
        assert client.frame() == b""
    assert counts_of(endpoint, "closed") == {"late": 1}
    assert "127.0.0.1: expected the rest of a request within 1 s" in endpoint.said[0]


def test_a_handshake_of_tls_that_does_not_come_is_counted_and_logged(
    tables: Tables, credentials: Credentials
) -> None:
    security = read_security(credentials.listener("SASL_SSL"), KNOWN)
    with listening(tables, limits=QUICK, security=security) as running:
        with Client(running.bootstrap) as client:
            assert client.frame() == b""
        wait_until(lambda: counts_of(running, "closed") == {"tls": 1}, "it to be counted")
    assert running.said[0].startswith("TLS with a client failed, closing the connection: 127.0.0.1: ")
    assert "taking longer than 1" in running.said[0]


# --- connections of a principal ----------------------------------------------------------------------------


def test_one_principal_has_only_so_many_connections(sasl: Listening) -> None:
    hosts = [f"127.0.0.{number}" for number in range(1, 4)]
    with ExitStack() as stack:
        held = [stack.enter_context(Client(sasl.bootstrap, source=host)) for host in hosts]
        for client in held:
            assert signed_in(client, "billing").ask(LIST_GROUPS, 0, {})["errorCode"] == 0
            signed_in(client, "billing")  # again, as clients do before their session ends
        with Client(sasl.bootstrap, source="127.0.0.9") as fourth:
            fourth.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})
            fourth.send(AUTHENTICATE, 2, {"authBytes": f"\0billing\0{PASSWORD}".encode()})
            assert fourth.frame() == b""
        assert counts_of(sasl, "closed") == {"principal": 1}
        assert sasl.said == [
            "more connections of one principal than are allowed, closing one: "
            "127.0.0.9 (billing): expected at most 3, found one more"
        ]
        other = stack.enter_context(Client(sasl.bootstrap))
        assert signed_in(other, "shipping").ask(LIST_GROUPS, 0, {})["errorCode"] == 0
        held.pop().close()
        wait_until(lambda: sasl.listener.connections == 3, "room for another", timeout_s=5)  # type: ignore[union-attr]
        again = stack.enter_context(Client(sasl.bootstrap))
        assert signed_in(again, "billing").ask(LIST_GROUPS, 0, {})["errorCode"] == 0
    assert sasl.listener is not None
    wait_until(lambda: not sasl.listener._admitted, "none to be counted", timeout_s=5)  # type: ignore[union-attr]


def test_connections_of_a_certificate_count_for_its_principal(
    tables: Tables, credentials: Credentials
) -> None:
    security = read_security(credentials.by_certificate(), [principal("CN=a client of a test", "SSL")])
    limits = Limits(connections_per_principal=1)
    tls = credentials.trusting(credentials.client)
    with (
        listening(tables, limits=limits, security=security, within_ms=10**9) as running,
        Client(running.bootstrap, tls=tls) as client,
    ):
        assert client.ask(LIST_GROUPS, 0, {})["errorCode"] == 0
        with Client(running.bootstrap, tls=tls) as second, suppress(OSError):
            assert second.frame() == b""
        wait_until(lambda: counts_of(running, "closed") == {"principal": 1}, "it to be counted")
        assert client.ask(LIST_GROUPS, 0, {})["errorCode"] == 0
