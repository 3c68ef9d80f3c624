"""Records as the decoders give them: what packing takes, and the documents of groups."""

import json
from typing import Any, Final

import pyarrow as pa

from streaming.model.schemas import PACKED_RECORDS

_ADDED: Final = ("key_length", "value_length", "stands_for")

DECODED: Final = pa.schema([field for field in PACKED_RECORDS if field.name not in _ADDED])
"""The columns of records before they are packed, which adds the others."""

CLASSIC_VALUE: Final = {
    "protocolType": "consumer",
    "generation": 1,
    "protocol": None,
    "leader": None,
    "currentStateTimestamp": 1000,
    "members": [],
}
EPOCH_VALUE: Final = {"epoch": 3}


def group_document(record_type: int, group: str, part: str, value: dict[str, Any] | None) -> str:
    """The JSON of a record of a group or of its member `part` (empty: none); no value is a tombstone."""
    name = "group" if record_type == 2 else "groupId"
    key = {name: group} | ({"memberId": part} if part else {})
    data = None if value is None else {"version": 0, "data": value}
    return json.dumps({"key": {"type": record_type, "data": key}, "value": data}, separators=(",", ":"))
