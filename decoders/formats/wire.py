"""Kafka's wire types as `construct` declarations, of which every format is composed.

Each type below is a class whose attributes describe the bytes (`length`, `nullable`, `tags`, ...): the fast
readers and writers are derived by walking them (`rows.compiler`, `columns`, `messages`). Its `_parse` is the
reference against which those readers are tested, and its `_build` the reference of the writers.

All integers are big-endian. The oddities follow Kafka's own reader (`org.apache.kafka.common.protocol`): a
negative length means null, a varint drops the bits above 32, and text is never refused for its bytes.
"""

# mypy: allow-subclassing-any
# construct carries no type hints: its classes are `Any` to mypy.

import base64
import struct
from collections.abc import Mapping
from copy import deepcopy
from io import BytesIO
from types import MappingProxyType
from typing import IO, Any, Final

from construct import (
    Adapter,
    Bytes,
    Construct,
    Container,
    FormatField,
    ListContainer,
    Renamed,
    Struct,
    Subconstruct,
    stream_size,
)

from decoders.formats.faults import (
    WireError,
    given_up,
    missing_bytes,
    overlong_text,
    unended_varint,
    unexpected_null,
)
from decoders.formats.java_values import MAX_TEXT_BYTES, MAX_VARINT_BYTES, as_int32, decode_text, decode_uuid


class ReadsLeft(BytesIO):
    """Bytes that allow a limited number of reads, then raise `WireError`: `construct` takes about 5 µs for
    each read, and a megabyte may hold a million elements."""

    def __init__(self, data: bytes, reads_left: int) -> None:
        super().__init__(data)
        self.reads_left = reads_left

    def count(self, path: str) -> None:
        if not self.reads_left:
            raise WireError(given_up, stream_size(self), field=_field(path), at_byte=self.tell())
        self.reads_left -= 1


def _count(stream: IO[bytes], path: str) -> None:
    if isinstance(stream, ReadsLeft):
        stream.count(path)


def _read(stream: IO[bytes], size: int, path: str) -> bytes:
    _count(stream, path)
    at_byte = stream.tell()
    data = stream.read(size)
    if len(data) < size:
        raise WireError(missing_bytes, size, len(data), field=_field(path), at_byte=at_byte)
    return data


def _field(path: str) -> str:
    """The field at construct's path `(parsing) -> members[0] -> name`: `members[0].name`."""
    return ".".join(path.split(" -> ")[1:])


class Integer(FormatField):
    """An integer of fixed width, named by its letter in Python's `struct`."""

    def __init__(self, letter: str) -> None:
        super().__init__(">", letter)

    def _parse(self, stream: IO[bytes], context: Container, path: str) -> int:
        (value,) = struct.unpack(self.fmtstr, _read(stream, self.length, path))
        return int(value)


class Boolean(FormatField):
    """A byte: 0 is false, any other value is true."""

    def __init__(self) -> None:
        super().__init__(">", "?")

    def _parse(self, stream: IO[bytes], context: Container, path: str) -> bool:
        return _read(stream, self.length, path) != b"\0"


class Varint(Construct):
    """Unsigned LEB128 of at most five bytes, read into Java's `int`: from 2^31 on the value is negative."""

    def _parse(self, stream: IO[bytes], context: Container, path: str) -> int:
        _count(stream, path)
        at_byte = stream.tell()
        value = 0
        for shift in range(0, 7 * MAX_VARINT_BYTES, 7):
            byte = stream.read(1)
            if not byte:
                raise WireError(unended_varint, True, field=_field(path), at_byte=at_byte)
            value |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                return as_int32(value)
        raise WireError(unended_varint, False, field=_field(path), at_byte=at_byte)

    def _build(self, obj: int, stream: IO[bytes], context: Container, path: str) -> int:
        rest = obj & 0xFFFF_FFFF
        while rest > 0x7F:
            stream.write(bytes([rest & 0x7F | 0x80]))
            rest >>= 7
        stream.write(bytes([rest]))
        return obj


class CompactLength(Adapter):
    """The length in front of compact types: a varint that holds length + 1, so that 0 is null (-1)."""

    def __init__(self) -> None:
        super().__init__(Varint())

    def _decode(self, obj: int, context: Container, path: str) -> int:
        return as_int32(obj - 1)

    def _encode(self, obj: int, context: Container, path: str) -> int:
        return obj + 1


class Uuid(Adapter):
    """An id of 16 bytes, in Kafka's text form (`decode_uuid`)."""

    def __init__(self) -> None:
        super().__init__(Bytes(16))

    def _parse(self, stream: IO[bytes], context: Container, path: str) -> str:
        return decode_uuid(_read(stream, 16, path))

    def _encode(self, obj: str, context: Container, path: str) -> bytes:
        return base64.urlsafe_b64decode(obj + "==")


class Counted(Construct):
    """A value with its length (in bytes or elements) in front; a negative length is null, if allowed."""

    def __init__(self, length: Construct, *, nullable: bool = False) -> None:
        super().__init__()
        self.length = length
        self.nullable = nullable

    def _parse(self, stream: IO[bytes], context: Container, path: str) -> Any:
        at_byte = stream.tell()
        length = self.length._parsereport(stream, context, path)
        if length >= 0:
            return self._parse_content(stream, length, at_byte, context, path)
        if self.nullable:
            return None
        raise WireError(unexpected_null, length, field=_field(path), at_byte=at_byte)

    def _build(self, obj: Any, stream: IO[bytes], context: Container, path: str) -> Any:
        if obj is None:
            self.length._build(-1, stream, context, path)
        else:
            self._build_content(obj, stream, context, path)
        return obj

    def _parse_content(
        self, stream: IO[bytes], length: int, at_byte: int, context: Container, path: str
    ) -> Any:
        raise NotImplementedError

    def _build_content(self, obj: Any, stream: IO[bytes], context: Container, path: str) -> None:
        raise NotImplementedError


class Blob(Counted):
    def _parse_content(
        self, stream: IO[bytes], length: int, at_byte: int, context: Container, path: str
    ) -> Any:
        return _read(stream, length, path)

    def _build_content(self, obj: bytes, stream: IO[bytes], context: Container, path: str) -> None:
        self.length._build(len(obj), stream, context, path)
        stream.write(obj)


class Text(Counted):
    """UTF-8 text, read as Java reads it (`decode_text`)."""

    def _parse_content(
        self, stream: IO[bytes], length: int, at_byte: int, context: Container, path: str
    ) -> Any:
        if length > MAX_TEXT_BYTES:
            raise WireError(overlong_text, length, field=_field(path), at_byte=at_byte)
        return decode_text(_read(stream, length, path))

    def _build_content(self, obj: str, stream: IO[bytes], context: Container, path: str) -> None:
        data = obj.encode()
        self.length._build(len(data), stream, context, path)
        stream.write(data)


class Sequence(Counted):
    """Elements of one kind. A count over the number of remaining bytes is refused at once, as in Kafka."""

    def __init__(self, length: Construct, element: Construct, *, nullable: bool = False) -> None:
        super().__init__(length, nullable=nullable)
        self.element = element

    def _parse_content(
        self, stream: IO[bytes], length: int, at_byte: int, context: Container, path: str
    ) -> Any:
        _refuse_impossible_count(stream, length, path)
        return ListContainer(
            self.element._parsereport(stream, context, f"{path}[{index}]") for index in range(length)
        )

    def _build_content(self, obj: list[Any], stream: IO[bytes], context: Container, path: str) -> None:
        self.length._build(len(obj), stream, context, path)
        for index, element in enumerate(obj):
            self.element._build(element, stream, context, f"{path}[{index}]")


def _refuse_impossible_count(stream: IO[bytes], count: int, path: str) -> None:
    """Every element takes at least one byte, so `count` elements need at least `count` bytes."""
    at_byte = stream.tell()
    remaining = stream_size(stream) - at_byte
    if count > remaining:
        raise WireError(missing_bytes, count, remaining, field=_field(path), at_byte=at_byte)


class FlexibleStruct(Struct):
    """A struct of a flexible version: its fields, then a section of tagged fields (KIP-482).

    `tags` maps a tag to its field, which is a `Default`: an absent tagged field has its default. Unknown
    tags are skipped by their size. As in Kafka's reader, a tag may come twice (the last wins) and in any
    order, and the size of a known tag is ignored. To build bytes without a tagged field, leave it out of the
    dict.
    """

    def __init__(self, *fields: Construct, tags: Mapping[int, Renamed] = MappingProxyType({})) -> None:
        super().__init__(*fields)
        self.tags = MappingProxyType(dict(tags))

    def _parse(self, stream: IO[bytes], context: Container, path: str) -> Container:
        message = super()._parse(stream, context, path)
        message.update((field.name, deepcopy(field.subcon.value)) for field in self.tags.values())
        tags_path = f"{path} -> tags"
        count = VARINT._parsereport(stream, context, tags_path)
        _refuse_impossible_count(stream, count, tags_path)
        for _ in range(count):
            tag = VARINT._parsereport(stream, context, tags_path)
            size = VARINT._parsereport(stream, context, tags_path)
            if field := self.tags.get(tag):
                message[field.name] = field._parsereport(stream, context, path)
            elif size < 0:
                raise WireError(unexpected_null, size, field=_field(tags_path), at_byte=stream.tell())
            else:
                _read(stream, size, tags_path)
        return message

    def _build(self, obj: Mapping[str, Any], stream: IO[bytes], context: Container, path: str) -> Any:
        super()._build(obj, stream, context, path)
        present = {tag: field for tag, field in sorted(self.tags.items()) if field.name in obj}
        VARINT._build(len(present), stream, context, path)
        for tag, field in present.items():
            content = field.subcon.subcon.build(obj[field.name])  # `Default` cannot build a null
            VARINT._build(tag, stream, context, path)
            VARINT._build(len(content), stream, context, path)
            stream.write(content)
        return obj


class NullableStruct(Subconstruct):
    """A struct with a marker in front: a marker of `null` or below means that the struct is null."""

    def __init__(self, struct: Struct, marker: Construct, *, null: int) -> None:
        super().__init__(struct)
        self.marker = marker
        self.null = null

    def _parse(self, stream: IO[bytes], context: Container, path: str) -> Any:
        if self.marker._parsereport(stream, context, path) <= self.null:
            return None
        return self.subcon._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: IO[bytes], context: Container, path: str) -> Any:
        self.marker._build(self.null if obj is None else 1, stream, context, path)
        if obj is not None:
            self.subcon._build(obj, stream, context, path)
        return obj


BOOL: Final = Boolean()
INT8: Final = Integer("b")
INT16: Final = Integer("h")
UINT16: Final = Integer("H")
INT32: Final = Integer("l")
INT64: Final = Integer("q")
VARINT: Final = Varint()
COMPACT_LENGTH: Final = CompactLength()
UUID: Final = Uuid()

STRING: Final = Text(INT16)
NULLABLE_STRING: Final = Text(INT16, nullable=True)
COMPACT_STRING: Final = Text(COMPACT_LENGTH)
COMPACT_NULLABLE_STRING: Final = Text(COMPACT_LENGTH, nullable=True)
BYTES: Final = Blob(INT32)
NULLABLE_BYTES: Final = Blob(INT32, nullable=True)
COMPACT_BYTES: Final = Blob(COMPACT_LENGTH)


def array(element: Construct, *, nullable: bool = False) -> Sequence:
    """Elements with an int32 count in front (versions that are not flexible)."""
    return Sequence(INT32, element, nullable=nullable)


def compact_array(element: Construct, *, nullable: bool = False) -> Sequence:
    """Elements with a varint count in front (flexible versions)."""
    return Sequence(COMPACT_LENGTH, element, nullable=nullable)


def nullable_struct(struct: Struct) -> NullableStruct:
    """A nullable struct as an ordinary field: an int8 of -1 or 1 in front."""
    return NullableStruct(struct, INT8, null=-1)


def nullable_tagged_struct(struct: Struct) -> NullableStruct:
    """A nullable struct as the content of a tag: a varint of 0 or 1 in front."""
    return NullableStruct(struct, VARINT, null=0)
