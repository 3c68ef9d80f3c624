"""Kafka's own generated classes as the judge of requests and responses, in every version and both directions.

What they write we read the same, what we write is theirs byte for byte, what they refuse we refuse.
"""

import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from construct import Struct
from kafka_versions import VERSIONS
from message_oracle import Line, RunOracle, answered, damaged, generated, run, to_hex
from message_strategies import NEW_IN_4_4

from decoders.formats.faults import WireError
from decoders.messages import APIS
from decoders.messages.api import REQUEST_HEADERS, RESPONSE_HEADERS
from decoders.messages.reader import reader_of
from decoders.messages.writer import writer_of
from decoders.rows.reference import parse_message
from decoders.rows.source import UNREADABLE
from streaming.jvm.jars import ensure_jars

pytestmark = pytest.mark.broker

MESSAGES_OF_A_VERSION = 15
DAMAGED = 4_000

LAYOUTS: dict[str, Struct] = {
    **{f"{api.name}Request/{v}": api.request_layout(v) for api in APIS.values() for v in api.versions},
    **{f"{api.name}Response/{v}": api.response_layout(v) for api in APIS.values() for v in api.versions},
    **{f"RequestHeader/{version}": layout for version, layout in REQUEST_HEADERS.items()},
    **{f"ResponseHeader/{version}": layout for version, layout in RESPONSE_HEADERS.items()},
}
KEYS = [str(key) for key in APIS]


@pytest.fixture(scope="module")
def run_oracle() -> RunOracle:
    """The classes of the release whose versions the declarations end with."""
    return partial(run, ensure_jars(VERSIONS["4.4.0"].jars))


@pytest.fixture(scope="module")
def lines(run_oracle: RunOracle) -> list[Line]:
    made = generated(run_oracle("protocol", "1", str(MESSAGES_OF_A_VERSION), *KEYS))
    return [line for line in made if line.kind in LAYOUTS]


def fast(line: Line) -> Any:
    """What the fast reader makes of a line."""
    message, _ = reader_of(LAYOUTS[line.kind])(line.value or b"", 0)
    return message


def test_every_message_and_version_is_there(lines: list[Line]) -> None:
    assert Counter(line.kind for line in lines) == dict.fromkeys(LAYOUTS, MESSAGES_OF_A_VERSION)


def test_versions_that_are_not_declared_are_known(run_oracle: RunOracle) -> None:
    header_lines = [[int(part) for part in line.split("\t")] for line in run_oracle("headers", *KEYS)]
    kafkas = {(key, version) for key, version, _, _ in header_lines}
    ours = {(api.key, version) for api in APIS.values() for version in api.versions}
    assert kafkas == ours
    for key, version, request_header, response_header in header_lines:
        assert APIS[key].request_header(version) == request_header
        assert APIS[key].response_header(version) == response_header


def test_reference_shows_what_kafka_shows(lines: list[Line]) -> None:
    for line in lines:
        assert parse_message(LAYOUTS[line.kind], line.value or b"") == line.document, line


def test_fast_reader_reads_what_the_reference_reads(lines: list[Line]) -> None:
    for line in lines:
        assert fast(line) == LAYOUTS[line.kind].parse(line.value), line


def test_writer_writes_what_kafka_writes(lines: list[Line], run_oracle: RunOracle) -> None:
    again = []
    for line in lines:
        written = writer_of(LAYOUTS[line.kind])(fast(line))
        if line.key is None:
            assert written == line.value, line
        again.append(Line(line.kind, line.key, written))
    assert any(line.key == b"" for line in lines), "no message had tags that are unknown"
    for before, after in zip(lines, answered(run_oracle, again), strict=True):
        assert after.answer == before.answer


def test_damage_is_refused_exactly_where_kafka_refuses_it(lines: list[Line], java_jars: Path) -> None:
    """4.3.1 is the judge: 4.4.0 refuses negative numbers of tagged fields, as no earlier release does."""
    rng = random.Random(1)
    unknown = {f"{name}{what}/{version}" for name, version in NEW_IN_4_4 for what in ("Request", "Response")}
    small = [line for line in lines if 0 < len(line.value or b"") < 400 and line.kind not in unknown]
    chosen = [Line(line.kind, None, damaged(line.value, rng)) for line in rng.choices(small, k=DAMAGED)]
    outcomes = answered(partial(run, java_jars), chosen)
    refused = sum(line.is_refused for line in outcomes)
    assert DAMAGED / 5 < refused < DAMAGED * 4 / 5, "the damage is one-sided"
    for line in outcomes:
        if line.is_refused:
            with pytest.raises(UNREADABLE):
                fast(line)
            with pytest.raises(WireError):
                LAYOUTS[line.kind].parse(line.value)
        else:
            assert parse_message(LAYOUTS[line.kind], line.value or b"") == line.document, to_hex(line.value)
            assert fast(line) == LAYOUTS[line.kind].parse(line.value), to_hex(line.value)
