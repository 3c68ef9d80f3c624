"""Brokers that refuse the sign-in: the job's client signs in again, and ends once that has not helped."""

import ssl
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest
from certificates import CertificateAuthority
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from kafka_clients import wait_until
from server_thread import serving

from streaming.brokers import broker as broker_module
from streaming.brokers.broker import Broker
from streaming.brokers.facts import AccessRefusedError, BrokerError
from streaming.demo.local_broker import free_ports
from streaming.settings.reading import read_settings


@pytest.fixture
def untrusted(tmp_path: Path) -> Iterator[str]:
    """The address of a server whose certificate no client of these tests trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CertificateAuthority().write_pem(tmp_path / "server.pem", "localhost"))

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                context.wrap_socket(self.request, server_side=True).recv(1)

    class Server(ThreadingTCPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    with serving(server):
        yield f"127.0.0.1:{server.server_address[1]}"


def broker_at(servers: str, **options: str) -> Broker:
    given = {"bootstrap_servers": servers, "client": {"security.protocol": "SSL"}, **options}
    return Broker(read_settings(options={f"source.{name}": value for name, value in given.items()}).source)


def closed_port() -> str:
    [port] = free_ports(1)
    return f"127.0.0.1:{port}"


def failures_of(broker: Broker, seconds: float) -> Iterator[BrokerError]:
    """Ask until the broker answers, or for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            broker.topic_facts(1)
        except BrokerError as error:
            yield error


def test_brokers_that_refuse_end_the_wait_also_while_another_one_is_down(untrusted: str) -> None:
    broker = broker_at(f"{untrusted},{closed_port()}", connect_timeout="3s")
    began = time.monotonic()
    assert any(isinstance(failure, AccessRefusedError) for failure in failures_of(broker, 25))
    assert time.monotonic() - began >= 3


@pytest.mark.more
def test_brokers_that_are_all_down_are_waited_for() -> None:
    broker = broker_at(f"{closed_port()},{closed_port()}", connect_timeout="1s")
    failures = list(failures_of(broker, 4))
    assert failures
    assert not any(isinstance(failure, AccessRefusedError) for failure in failures)


def test_the_client_before_goes_once_no_request_can_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "REQUEST_TIMEOUT_S", 1.0)
    broker = broker_at(closed_port(), connect_timeout="2s")
    first, began = weakref.ref(broker._admin), time.monotonic()
    broker.sign_in_again()
    second = weakref.ref(broker._admin)
    assert second() is not first()
    wait_until(lambda: first() is None, "the first client to go", timeout_s=10)
    assert time.monotonic() - began >= 2
    assert second() is broker._admin


def test_requests_of_the_client_before_are_not_cut_off() -> None:
    broker = broker_at(closed_port(), connect_timeout="1s")
    waiting = broker._admin.describe_topics(TopicCollection(["orders"]), request_timeout=1)
    for _ in range(2):  # two threads that are refused
        broker.sign_in_again()
    with pytest.raises(KafkaException) as raised:
        waiting["orders"].result(timeout=10)
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT  # not _DESTROY
