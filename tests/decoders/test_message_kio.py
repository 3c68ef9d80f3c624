"""kio as a second judge of requests and responses: what we write it reads, and writes the same again.

It knows error codes, ids and times as types of its own, so that numbers are small here.
It knows the versions of Kafka 4.3.
"""

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from message_strategies import NEW_IN_4_4, REQUESTS, body_of

from decoders.messages import Api
from decoders.messages.writer import writer_of

kio = pytest.importorskip("kio", reason="kio is not installed: run `make setup`")


def small(value: Any) -> Any:
    """The same value with all numbers from 0 to 99."""
    match value:
        case bool() | str() | bytes() | None:
            return value
        case int():
            return abs(value) % 100
        case list():
            return [small(element) for element in value]
    return {name: small(element) for name, element in value.items()}


@settings(max_examples=10)
@given(st.data())
@pytest.mark.parametrize("direction", ["request", "response"])
@pytest.mark.parametrize("api", dict.fromkeys(api for api, _ in REQUESTS), ids=lambda api: api.name)
def test_kio_reads_and_writes_the_same(api: Api, direction: str, data: st.DataObject) -> None:
    from kio.index import load_request_schema, load_response_schema
    from kio.serial import entity_reader, entity_writer

    known = [version for version in api.versions if (api.name, version) not in NEW_IN_4_4]
    version = data.draw(st.sampled_from(known))
    layout = api.request_layout(version) if direction == "request" else api.response_layout(version)
    schema = (load_request_schema if direction == "request" else load_response_schema)(api.key, version)
    written = writer_of(layout)(small(data.draw(body_of(layout))))
    entity, size = entity_reader(schema)(written, 0)
    again = io.BytesIO()
    entity_writer(schema)(again, entity)
    assert (again.getvalue(), size) == (written, len(written))
