"""Names of client settings: mistaken ones are refused with the nearest, strangers are told of."""

import subprocess
from pathlib import Path

import pytest
from java_programs import java_program

from streaming.brokers.client_settings import SAME_NAME
from streaming.model.errors import MisuseError
from streaming.settings.client_names import KNOWN, refuse_mistaken, unknown_names

MISTAKEN = {
    "securty.protocol": "Did you mean security.protocol?",
    "security_protocol": "Did you mean security.protocol?",
    "kafka.security.protocol": "Did you mean security.protocol?",
    "Security.Protocol": "Did you mean security.protocol?",
    "sasl.mechanisms": "It is one of librdkafka's: use sasl.mechanism.",
    "sasl.username": "It is one of librdkafka's: use sasl.jaas.config.",
    "ssl.ca.location": "It is one of librdkafka's: use ssl.truststore.location.",
}


@pytest.mark.parametrize(("name", "message"), MISTAKEN.items())
def test_a_mistaken_name_is_refused(name: str, message: str) -> None:
    with pytest.raises(MisuseError, match=f"found '{name}', which it would ignore") as raised:
        refuse_mistaken(["client.id", name], where="client.properties")
    assert message in str(raised.value)
    assert unknown_names([name]) == []


def test_strangers_are_reported_and_known_names_are_not() -> None:
    names = [*KNOWN, "my.interceptor.option"]
    refuse_mistaken(names, where="client.properties")
    [sentence] = unknown_names(names)
    assert "'my.interceptor.option' is not one of Kafka's clients" in sentence


def test_what_is_passed_on_is_known() -> None:
    assert SAME_NAME <= KNOWN


@pytest.mark.broker
def test_the_names_are_those_of_kafka_s_own_clients(java_jars: Path) -> None:
    program = java_program("ConfigNames", [java_jars])
    ran = subprocess.run(program, capture_output=True, text=True, check=True)
    assert {name for name in ran.stdout.split() if not name.startswith("internal.")} <= KNOWN
