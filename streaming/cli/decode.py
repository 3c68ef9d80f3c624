"""Decodes records given as JSON lines, for `offsetlake decode`."""

import json
from typing import Any

from decoders import DecodeError, decode_document
from streaming.model.errors import MisuseError


def decode_line(line: str, number: int) -> dict[str, Any]:
    """Decode one line `{"key": hex or null, "value": hex or null}` (`number` counts from 1).

    Gives the document that Kafka's own formatter prints, or `{"error": {"reason", "field", "at_byte"}}` for
    bytes that cannot be decoded. A line that is not of this form raises `MisuseError`.
    """
    key, value = _read(line, number)
    try:
        return decode_document(key, value)
    except DecodeError as error:
        return {"error": {"reason": error.reason, "field": error.field, "at_byte": error.at_byte}}


def _read(line: str, number: int) -> tuple[bytes | None, bytes | None]:
    try:
        record = json.loads(line)
        return _bytes(record["key"]), _bytes(record["value"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise MisuseError(
            f'line {number}: expected {{"key": hex or null, "value": hex or null}}, '
            f"found {line.strip()[:80]!r} ({error})."
        ) from error


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
