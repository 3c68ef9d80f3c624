"""Functions called by the code that `compiler` writes: for ids, bytes, and everything that is not short.

For unreadable bytes they raise `IndexError` or `struct.error`, as that code does.
"""

import struct
from binascii import b2a_base64
from collections.abc import Callable
from functools import cache
from json.encoder import encode_basestring
from re import Match
from re import compile as regex
from typing import Final

from decoders.formats.java_values import MAX_TEXT_BYTES, MAX_VARINT_BYTES, as_int32, decode_text, decode_uuid
from decoders.rows.key_cache import KeyCache

# The fast path handles texts of up to so many bytes and lists of up to so many elements: counts that fit into
# a varint of one byte.
SHORT: Final = 100


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The varint at byte `at`, and the position after it."""
    value = 0
    for index in range(MAX_VARINT_BYTES):
        byte = data[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return as_int32(value), at + index + 1
    raise IndexError


def compact_length(data: bytes, at: int) -> tuple[int, int]:
    """The compact length at byte `at`, and the position after it."""
    length, at = varint(data, at)
    return as_int32(length - 1), at


def long_text(data: bytes) -> str:
    """Text of any length up to Kafka's limit."""
    if len(data) > MAX_TEXT_BYTES:
        raise IndexError
    return decode_text(data)


def _quoted_long_text(data: bytes) -> str:
    return encode_basestring(long_text(data))


_ESCAPE: Final = regex(r"\\(?:u[0-9a-f]{4}|.)")


def with_kafkas_escapes(text: str) -> str:
    """Convert Python's JSON to Kafka's: upper-case hexadecimal digits in escapes."""
    return _ESCAPE.sub(_in_upper_case, text)


def _in_upper_case(escape: Match[str]) -> str:
    text = escape[0]
    return rf"\u{text[2:].upper()}" if text.startswith(r"\u") else text


def _base64(data: bytes) -> str:
    return f'"{b2a_base64(data, newline=False).decode()}"'


@cache
def formats(letter: str) -> list[tuple[Callable[[bytes, int], tuple[int, ...]], str]]:
    """For each short count of integers, the function that unpacks them and the template that prints them."""
    return [
        (struct.Struct(f">{count}{letter}").unpack_from, f"[{','.join(['%d'] * count)}]")
        for count in range(SHORT + 1)
    ]


def _integers(count: int, letter: str, data: bytes, at: int) -> str:
    return str(list(struct.unpack_from(f">{count}{letter}", data, at))).replace(" ", "")


NAMES: Final = {
    "varint": varint,
    "compact_length": compact_length,
    "uuids": KeyCache[bytes, str](decode_uuid, most_keys=4_096, longest=16),
    "quoted": encode_basestring,
    "long_text": _quoted_long_text,
    "with_kafkas_escapes": with_kafkas_escapes,
    "base64": _base64,
    "integers": _integers,
}
