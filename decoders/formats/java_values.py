"""Numbers, texts and ids as Kafka's Java code reads them, and its limits on them."""

import base64
import codecs
import re
from typing import Final

MAX_TEXT_BYTES: Final = 0x7FFF  # Kafka refuses longer text, also where the length is a varint
MAX_VARINT_BYTES: Final = 5


def as_int32(number: int) -> int:
    """The low 32 bits of `number` as a Java `int`."""
    return ((number + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


# Java reads an encoded surrogate, whole or cut short, as one malformed sequence; Python reads two or three.
_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def _replacement(error: UnicodeError) -> tuple[str, int]:
    """Return the replacement for bytes that are not UTF-8, and the position at which to go on."""
    assert isinstance(error, UnicodeDecodeError)
    surrogate = _ENCODED_SURROGATE.match(error.object, error.start)
    return "\N{REPLACEMENT CHARACTER}", surrogate.end() if surrogate else error.end


AS_JAVA: Final = "as-java"  # name of the error handler: `data.decode("utf-8", AS_JAVA)`
codecs.register_error(AS_JAVA, _replacement)


def decode_text(data: bytes) -> str:
    """Decode UTF-8 as Java's `new String(data, UTF_8)`: U+FFFD for invalid bytes, never an error."""
    return data.decode("utf-8", AS_JAVA)


def decode_uuid(data: bytes) -> str:
    """Sixteen bytes as Kafka prints an id: unpadded base64url, 22 characters."""
    return base64.urlsafe_b64encode(data)[:-2].decode("ascii")


ZERO_UUID: Final = decode_uuid(bytes(16))
