"""Decoding of JSON lines: documents for good records, reasons for bad ones, a message for other lines."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.cli.commands.decode import decode_line
from streaming.model.errors import MisuseError

VECTORS = Path(__file__).parents[1] / "vectors"
KEY = "000100016700017400000003"


def vectors(name: str) -> list[Any]:
    cases = json.loads((VECTORS / name).read_text(encoding="utf-8"))
    return [pytest.param(case, id=case["name"]) for case in cases]


@pytest.mark.parametrize("vector", vectors("records.json"))
def test_record_becomes_the_document_of_kafkas_formatter(vector: dict[str, Any]) -> None:
    line = json.dumps({"key": vector["key"], "value": vector["value"]})
    assert decode_line(line, 1) == vector["document"]


@pytest.mark.parametrize("vector", vectors("errors.json"))
def test_bad_record_becomes_its_reason(vector: dict[str, Any]) -> None:
    line = json.dumps({"key": vector["key"], "value": vector["value"]})
    expected = {name: vector["error"][name] for name in ("reason", "field", "at_byte")}
    assert decode_line(line, 1) == {"error": expected}


def test_hex_may_have_capitals_and_blanks_and_further_members_are_ignored() -> None:
    line = json.dumps({"key": "0001 0001 67 0001 74 0000 0003", "value": None, "offset": 5})
    assert decode_line(line, 1) == decode_line(json.dumps({"key": KEY.upper(), "value": None}), 1)


BAD_LINES = [
    "",
    "key value",
    "null",
    "5",
    "[]",
    '"key"',
    "{}",
    '{"key": "00"}',
    '{"key": 5, "value": null}',
    '{"key": "0", "value": null}',
    '{"key": "zz", "value": null}',
    '{"key": "é", "value": null}',
    '{"key": ["00"], "value": null}',
    '{"key": "00", "value": {}}',
    "[" * 100_000,
]


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: repr(line[:20]))
def test_line_of_another_form_is_named(line: str) -> None:
    with pytest.raises(
        MisuseError, match=r'^line 7: expected {"key": hex or null, "value": hex or null}'
    ) as raised:
        decode_line(line, 7)
    assert len(str(raised.value)) < 400


@settings(deadline=None)
@given(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=60))
def test_any_bytes_give_a_document_or_a_reason(key: bytes | None, value: bytes | None) -> None:
    given_hex = {"key": None if key is None else key.hex(), "value": None if value is None else value.hex()}
    document = decode_line(json.dumps(given_hex), 1)
    assert document.keys() in ({"key", "value"}, {"error"})
    json.dumps(document)
