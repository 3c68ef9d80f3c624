"""Kafka's own generated classes as the judge: what they write we read the same, what they refuse we refuse.

A Java process (`java/MessageOracle.java`, with the jars of a broker) makes random messages of every type and
version and says how Kafka shows them.
"""

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from kafka_versions import Feature, KafkaVersion
from message_oracle import Line, RunOracle, answered, damaged, from_hex, generated, run, to_hex
from record_strategies import column_rows, outcome_of, table_row

from decoders import (
    RECORD_TYPES,
    DecodeError,
    ErrorKind,
    decode_assignment,
    decode_document,
    decode_subscription,
    subscribed_topics,
)
from decoders.rows.documents import document_text

pytestmark = [pytest.mark.broker, pytest.mark.needs(Feature.RECORD_CLASSES)]

MESSAGES_OF_A_VERSION = 60
DAMAGED = 6_000

# What the release of the oracle does not know, and we do.
OLDER_TYPES = {9}  # of early access
OLDER_VERSIONS = {(0, 1), (0, 2), (0, 3), (0, 4)}  # value versions under key type 0, read until 4.0


@pytest.fixture(scope="module")
def run_oracle(broker_jars: Path) -> RunOracle:
    return partial(run, broker_jars)


@pytest.fixture(scope="module")
def corpus(run_oracle: RunOracle) -> list[Line]:
    return generated(run_oracle("generate", "1", str(MESSAGES_OF_A_VERSION)))


@pytest.fixture(scope="module")
def record_lines(corpus: list[Line]) -> list[Line]:
    return [line for line in corpus if line.kind == "record"]


@pytest.fixture(scope="module")
def ask(run_oracle: RunOracle) -> Callable[[list[Line]], list[Line]]:
    return partial(answered, run_oracle)


# --- what Kafka writes -----------------------------------------------------------------------------------


def test_corpus_has_every_type_and_version(record_lines: list[Line]) -> None:
    ours = {(type_id, version) for type_id, kind in RECORD_TYPES.items() for version in kind.values}
    documents = [line.document for line in record_lines]
    seen = {(document["key"]["type"], (document["value"] or {}).get("version")) for document in documents}
    assert seen == (
        {pair for pair in ours if pair[0] not in OLDER_TYPES} - OLDER_VERSIONS
        | {(type_id, None) for type_id in RECORD_TYPES.keys() - OLDER_TYPES}
    )


def test_row_reader_shows_what_kafka_shows(record_lines: list[Line]) -> None:
    for line in record_lines:
        assert decode_document(line.key, line.value) == line.document, to_hex(line.value)


def test_document_is_kafkas_character_for_character(record_lines: list[Line]) -> None:
    for line in record_lines:
        assert document_text(line.key, line.value) == line.answer, to_hex(line.value)


def test_column_reader_shows_what_kafka_shows(record_lines: list[Line]) -> None:
    rows = column_rows([(line.key, line.value) for line in record_lines])
    for line, row in zip(record_lines, rows, strict=True):
        expected = table_row(line.key, line.value, line.document)
        assert row == expected | ({"document": line.answer} if expected["document"] else {})


def test_consumer_protocol_is_read_as_kafka_reads_it(corpus: list[Line]) -> None:
    decode = {"subscription": decode_subscription, "assignment": decode_assignment}
    lines = [line for line in corpus if line.kind in decode]
    assert len(lines) == 8 * MESSAGES_OF_A_VERSION
    for line in lines:
        assert decode[line.kind](line.value or b"") == line.document


# --- what Kafka refuses, and what it puts up with --------------------------------------------------------


MINUS_ONE = b"\xff\xff\xff\xff\x0f"
"""As a varint; where it is the number of tagged fields, we read on as Kafka 4.3 does."""


def is_comparable(line: Line, version: KafkaVersion) -> bool:
    """Whether the oracle's release knows the record's type and version, if we do, and reads as we do."""
    if MINUS_ONE in (line.value or b"") + (line.key or b"") and not version.has(Feature.LENIENT_TAG_COUNTS):
        return False
    type_id = int.from_bytes((line.key or b"")[:2])
    version = int.from_bytes((line.value or b"")[:2])
    return type_id not in OLDER_TYPES and (type_id, version) not in OLDER_VERSIONS


@pytest.fixture(scope="module")
def damaged_lines(
    record_lines: list[Line], ask: Callable[[list[Line]], list[Line]], kafka_version: KafkaVersion
) -> list[Line]:
    rng = random.Random(1)
    small = [line for line in record_lines if len(line.value or b"") < 400]
    lines = [
        Line("record", damaged(line.key, rng) if rng.random() < 0.2 else line.key, damaged(line.value, rng))
        for line in rng.choices(small, k=DAMAGED)
    ]
    return ask([line for line in lines if is_comparable(line, kafka_version)])


def test_damage_is_refused_exactly_where_kafka_refuses_it(damaged_lines: list[Line]) -> None:
    refused = [line for line in damaged_lines if line.is_refused]
    assert DAMAGED / 5 < len(refused) < DAMAGED * 4 / 5, "the damage is one-sided"
    for line in damaged_lines:
        outcome = outcome_of(line.key, line.value)
        assert isinstance(outcome, DecodeError) == line.is_refused, (line, outcome)
        if not isinstance(outcome, DecodeError):
            assert outcome == line.document, line


def test_columns_of_damaged_records_are_kafkas(damaged_lines: list[Line]) -> None:
    rows = column_rows([(line.key, line.value) for line in damaged_lines])
    for line, row in zip(damaged_lines, rows, strict=True):
        assert (row["error_kind"] is not None) == line.is_refused
        if row["document"]:
            assert row["document"] == line.answer


def test_unknown_types_are_those_that_kafka_does_not_know(damaged_lines: list[Line]) -> None:
    for line in damaged_lines:
        outcome = outcome_of(line.key, line.value)
        is_unknown = isinstance(outcome, DecodeError) and outcome.kind == ErrorKind.UNKNOWN_TYPE
        assert is_unknown == (line.answer == "!UnknownRecordTypeException"), line


def test_subscribed_topics_are_those_that_the_coordinator_sees(
    corpus: list[Line], ask: Callable[[list[Line]], list[Line]]
) -> None:
    rng = random.Random(2)
    subscriptions = [
        line.value for line in corpus if line.kind == "subscription" and len(line.value or b"") < 400
    ]
    lines = [Line("topics", None, damaged(value, rng)) for value in rng.choices(subscriptions, k=1_000)]
    for line in ask(lines):
        assert subscribed_topics(line.value or b"") == (None if line.is_refused else line.document), line


def test_vectors_are_kafkas(ask: Callable[[list[Line]], list[Line]]) -> None:
    vectors = json.loads((Path(__file__).parents[1] / "vectors" / "records.json").read_text())
    lines = [
        Line("record", bytes.fromhex(vector["key"]), from_hex(vector["value"] or "-")) for vector in vectors
    ]
    assert [line.document for line in ask(lines)] == [vector["document"] for vector in vectors]
