"""The faults that bytes can have, and the message of each.

The readers of rows and of columns find the same faults and use the same messages.
"""

# mypy: allow-subclassing-any
# construct carries no type hints: its classes are `Any` to mypy.

from collections.abc import Callable
from typing import NamedTuple

from construct import ConstructError

from decoders.formats.java_values import MAX_TEXT_BYTES, MAX_VARINT_BYTES


class Fault(NamedTuple):
    """A fault of some bytes and its position: smaller than the error."""

    message: str
    field: str
    at_byte: int


class WireError(ConstructError):
    """Bytes that break the format; `why` builds the message from the facts, the field and the byte."""

    def __init__(self, why: "Why", *facts: object, field: str, at_byte: int) -> None:
        self.fault = Fault(why(*facts, field, at_byte), field, at_byte)
        super().__init__(self.fault.message)


def unexpected(expected: str, found: object, field: str, at_byte: int) -> str:
    return f"expected {expected} for {field} at byte {at_byte}, found {found}"


def missing_bytes(wanted: int, found: int, field: str, at_byte: int) -> str:
    """Data that ends too early: `wanted` bytes should follow at `at_byte`, `found` do."""
    return unexpected("1 byte" if wanted == 1 else f"{wanted} bytes", found, field, at_byte)


def unended_varint(is_cut: bool, field: str, at_byte: int) -> str:
    """A varint without a last byte: the data ends inside it (`is_cut`), or it has over five bytes."""
    found = "the end of the data" if is_cut else "more"
    return unexpected(f"a varint of at most {MAX_VARINT_BYTES} bytes", found, field, at_byte)


def unexpected_null(length: int, field: str, at_byte: int) -> str:
    """A length that means null where the format has no null."""
    return unexpected("a length of 0 or more", length, field, at_byte)


def overlong_text(length: int, field: str, at_byte: int) -> str:
    """A text over Kafka's limit; only a varint length can exceed it."""
    return unexpected(f"at most {MAX_TEXT_BYTES} bytes of text", length, field, at_byte)


def given_up(size: int, field: str, at_byte: int) -> str:
    """Data that was examined only up to `at_byte`."""
    return f"cannot be read; why was looked for up to {field} at byte {at_byte} of {size}, not further"


Why = Callable[..., str]  # builds such a message from facts, the field and the byte
