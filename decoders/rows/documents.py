"""Fast reader of one record at a time: bytes to the JSON text that Kafka prints.

The functions that read keys and values are derived from their declarations (`compiler`). Bytes that these
refuse go to `construct`, whose error names field and byte, or says that the search for it was given up.
"""

import json
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from construct import Struct

from decoders.formats.record_type import RecordType, RecordTypes
from decoders.formats.record_types import RECORD_TYPES
from decoders.formats.wire import INT16, FlexibleStruct
from decoders.rows.compiler import reader_of
from decoders.rows.key_cache import KeyCache
from decoders.rows.reference import PREFIX_BYTES, FaultSearch, parse_message, read_key, read_value
from decoders.rows.runtime import with_kafkas_escapes
from decoders.rows.source import UNREADABLE

# The result for a key is the text of the record before its value, and a function that appends the value (None
# for a tombstone) to that text, with a `FaultSearch` for its errors.
ReadValue = Callable[[str, bytes | None, FaultSearch], str]
KeyReader = KeyCache[bytes | None, tuple[str, ReadValue]]

_DECODER: Final = json.JSONDecoder()


def document_text(key: bytes | None, value: bytes | None, *, record_types: RecordTypes = RECORD_TYPES) -> str:
    """One record as the compact JSON that Kafka's message formatter prints; raises `DecodeError`.

    >>> document_text(bytes.fromhex("0002000167"), None)
    '{"key":{"type":2,"data":{"group":"g"}},"value":null}'
    """
    before_value, read_value = key_reader(record_types)[key]
    return read_value(before_value, value, FaultSearch())


def document_parts(document: str) -> tuple[dict[str, Any], str | None]:
    """Split a document (`document_text`): the fields of the key, and the JSON text of the value's fields
    (None for a tombstone).

    >>> document_parts('{"key":{"type":2,"data":{"group":"g"}},"value":{"version":3,"data":{"leader":null}}}')
    ({'group': 'g'}, '{"leader":null}')
    """
    key, end = _DECODER.raw_decode(document, len('{"key":'))
    _, _, fields = document[end:].partition(',"data":')
    return key["data"], fields[: -len("}}")] or None


def key_reader(record_types: RecordTypes) -> KeyReader:
    """A reader of the records of a table, with a cache of keys: the same groups and members recur.

    After `before_value, read_value = reader[key]`, the text of the record is
    `read_value(before_value, value, search)`. Both steps raise `DecodeError`.
    """
    value_reader = cache(lambda type_id: _value_reader(record_types[type_id]))

    def read(key: bytes | None) -> tuple[str, ReadValue]:
        type_id, _, text = read_key(key, record_types, message_text)
        return f'{{"key":{{"type":{type_id},"data":{text}}},"value":', value_reader(type_id)

    return KeyCache(read, most_keys=16_384, longest=200)


def _value_reader(record_type: RecordType) -> ReadValue:
    readers = {
        INT16.build(version): reader_of(declaration, f'{{"version":{version},"data":', "}}")
        for version, declaration in record_type.values.items()
    }

    def read(before_value: str, value: bytes | None, search: FaultSearch) -> str:
        if value is None:
            return f"{before_value}null}}"
        try:
            text, _ = readers[value[:PREFIX_BYTES]](value, PREFIX_BYTES, before_value)
        except (KeyError, *UNREADABLE):
            version, message = read_value(value, record_type, search.parse)  # raises the error
            return f'{before_value}{{"version":{version},"data":{_compact_json(message)}}}}}'
        return text

    return read


def message_text(declaration: Struct, data: bytes, at: int) -> str:
    """The message that starts at byte `at`, as compact JSON; raises `WireError`."""
    try:
        text, _ = reader_of(declaration)(data, at)
    except UNREADABLE:
        return _compact_json(parse_message(declaration, data, at))  # raises the error
    return text


def _compact_json(message: Any) -> str:
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    return with_kafkas_escapes(text)


def tags_text(declaration: FlexibleStruct, data: bytes, at: int) -> tuple[str, int]:
    """Read a section of tagged fields, whose count is at byte `at`. Returns a JSON object of the fields that
    do not have their default, and the position after the section; raises `WireError`.
    """
    section = _section_of(declaration)
    try:
        return reader_of(section)(data, at)
    except UNREADABLE:
        FaultSearch().parse(section, data, at)  # raises the error
        raise


@cache
def _section_of(declaration: FlexibleStruct) -> FlexibleStruct:
    return FlexibleStruct(tags=declaration.tags)
