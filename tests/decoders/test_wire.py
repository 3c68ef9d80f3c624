"""Every wire type keeps the contract of its kind, in each of the readers that know it.

A contract class holds the tests; a concrete class names the type and its bytes. The readers are construct's
parse, the derived reader of single records, and for types that can be columns the derived reader of columns.
"""

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from construct import Construct, Default, Struct

from decoders.columns.cursor import BinaryColumn
from decoders.columns.field_kinds import shape_of
from decoders.columns.messages import read_message
from decoders.formats.faults import WireError
from decoders.formats.java_values import ZERO_UUID
from decoders.formats.wire import (
    BYTES,
    COMPACT_BYTES,
    COMPACT_NULLABLE_STRING,
    COMPACT_STRING,
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_BYTES,
    NULLABLE_STRING,
    STRING,
    UINT16,
    UUID,
    VARINT,
    FlexibleStruct,
    array,
    compact_array,
    nullable_struct,
    nullable_tagged_struct,
)
from decoders.rows.documents import message_text
from decoders.rows.reference import parse_message

Reader = Callable[[Construct, bytes], Any]


class RefusedError(Exception):
    """What a reader says about bytes that break the format."""


def with_construct(declaration: Construct, data: bytes) -> Any:
    try:
        return parse_message(Struct("field" / declaration), data)["field"]
    except WireError as error:
        raise RefusedError(error) from error


def with_derived_reader(declaration: Construct, data: bytes) -> Any:
    try:
        return json.loads(message_text(Struct("field" / declaration), data, 0))["field"]
    except WireError as error:
        raise RefusedError(error) from error


def with_column_reader(declaration: Construct, data: bytes) -> Any:
    """One row between two others, so that neither its start nor its stop is that of the buffer."""
    shape = shape_of(declaration)
    column = BinaryColumn.from_arrow(pa.array([b"\xff" * 9, data, b"\xff" * 9]))
    cursor = column.cursor(np.array([1]))
    field = read_message(Struct("field" / declaration), cursor)["field"]
    for message in cursor.faults.messages:
        raise RefusedError(message)
    arrays = shape.to_arrow(np.repeat(field.values, 3), np.array([False, field.is_there[0], False]), column)
    return arrays[1].as_py()


SINGLE_READERS: tuple[Reader, ...] = (with_construct, with_derived_reader)
ALL_READERS: tuple[Reader, ...] = (*SINGLE_READERS, with_column_reader)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that asks for `read` with each reader that knows the type of its class."""
    if "read" in metafunc.fixturenames:
        metafunc.parametrize("read", metafunc.cls.readers)


class Contract:
    """What holds for every type. `cases` are bytes and their meaning, `bad` are bytes that break it."""

    declaration: Construct
    cases: tuple[tuple[str, Any], ...]
    bad: tuple[str, ...] = ()
    readers = SINGLE_READERS

    def test_bytes_mean_what_they_should(self, read: Reader) -> None:
        for data, meaning in self.cases:
            assert read(self.declaration, bytes.fromhex(data)) == meaning, data

    def test_bytes_after_it_are_left_alone(self, read: Reader) -> None:
        for data, meaning in self.cases:
            assert read(self.declaration, bytes.fromhex(data) + b"\x80rest") == meaning, data

    def test_any_byte_too_few_is_an_error(self, read: Reader) -> None:
        for data, _ in self.cases:
            whole = bytes.fromhex(data)
            for size in range(len(whole)):
                with pytest.raises(RefusedError):
                    read(self.declaration, whole[:size])

    def test_bytes_that_break_the_format_are_an_error(self, read: Reader) -> None:
        for data in self.bad:
            with pytest.raises(RefusedError):
                read(self.declaration, bytes.fromhex(data))

    def test_readers_explain_errors_alike(self) -> None:
        cut = [bytes.fromhex(data)[:size] for data, _ in self.cases for size in range(len(data) // 2)]
        for data in [*cut, *map(bytes.fromhex, self.bad)]:
            errors = []
            for one_reader in self.readers:
                with pytest.raises(RefusedError) as caught:
                    one_reader(self.declaration, data)
                errors.append(str(caught.value))
            assert len(set(errors)) == 1
            assert errors[0].startswith("expected ")


class RoundTripContract(Contract):
    """Types whose bytes construct also builds."""

    def test_build_is_the_opposite_of_parse(self) -> None:
        for _, meaning in self.cases:
            built = self.declaration.build(self.to_build(meaning))
            assert with_construct(self.declaration, built) == meaning

    def to_build(self, meaning: Any) -> Any:
        return meaning


class TestInt8(RoundTripContract):
    declaration = INT8
    readers = ALL_READERS
    cases = (
        ("00", 0),
        ("7f", 127),
        ("80", -128),
        ("ff", -1),
    )


class TestInt16(RoundTripContract):
    declaration = INT16
    readers = ALL_READERS
    cases = (
        ("0000", 0),
        ("7fff", 32767),
        ("8000", -32768),
        ("0102", 258),
    )


class TestUint16(RoundTripContract):
    declaration = UINT16
    readers = ALL_READERS
    cases = (
        ("0000", 0),
        ("ffff", 65535),
        ("8000", 32768),
    )


class TestInt32(RoundTripContract):
    declaration = INT32
    readers = ALL_READERS
    cases = (
        ("00000000", 0),
        ("7fffffff", 2**31 - 1),
        ("80000000", -(2**31)),
        ("01020304", 0x01020304),
    )


class TestInt64(RoundTripContract):
    declaration = INT64
    readers = ALL_READERS
    cases = (
        ("00" * 8, 0),
        ("7f" + "ff" * 7, 2**63 - 1),
        ("80" + "00" * 7, -(2**63)),
        ("ff" * 8, -1),
    )


class TestUuid(RoundTripContract):
    declaration = UUID
    readers = ALL_READERS
    cases = (
        ("00" * 16, ZERO_UUID),
        ("ff" * 16, "_____________________w"),
        ("000102030405060708090a0b0c0d0e0f", "AAECAwQFBgcICQoLDA0ODw"),
    )


class TestString(RoundTripContract):
    declaration = STRING
    readers = ALL_READERS
    cases = (
        ("0000", ""),
        ("000161", "a"),
        ("0002c3a9", "é"),
        ("0003e282ac", "€"),
        ("7fff" + "61" * 32767, "a" * 32767),
    )
    bad = (
        "ffff",
        "8000",
    )

    def test_any_byte_too_few_is_an_error(self, read: Reader) -> None:
        for size in (0, 1, 2, 3, 32768):
            with pytest.raises(RefusedError):
                read(self.declaration, bytes.fromhex("7fff" + "61" * 32767)[:size])

    def test_readers_explain_errors_alike(self) -> None:
        pass  # the compact types have it, with fewer bytes to cut


class TestNullableString(RoundTripContract):
    declaration = NULLABLE_STRING
    readers = ALL_READERS
    cases = (
        ("0000", ""),
        ("000161", "a"),
        ("ffff", None),
    )

    def test_any_negative_length_is_null(self, read: Reader) -> None:
        assert read(self.declaration, bytes.fromhex("8000")) is None


class TestCompactString(RoundTripContract):
    declaration = COMPACT_STRING
    readers = ALL_READERS
    cases = (
        ("01", ""),
        ("0261", "a"),
        ("7f" + "61" * 126, "a" * 126),
        ("8001" + "61" * 127, "a" * 127),
    )
    bad = (
        "00",
        "818002" + "61" * 32768,
        "ffffffff0f",
        "8080808001",
    )

    def test_overlong_varint_is_accepted(self, read: Reader) -> None:
        assert read(self.declaration, bytes.fromhex("828080800061")) == "a"

    def test_bits_over_32_are_dropped(self, read: Reader) -> None:
        assert read(self.declaration, bytes.fromhex("828080807061")) == "a"


class TestCompactNullableString(RoundTripContract):
    declaration = COMPACT_NULLABLE_STRING
    readers = ALL_READERS
    cases = (
        ("01", ""),
        ("0261", "a"),
        ("00", None),
    )
    bad = ("818002" + "61" * 32768,)

    def test_any_negative_length_is_null(self, read: Reader) -> None:
        assert read(self.declaration, bytes.fromhex("ffffffff0f")) is None


class TestBytes(RoundTripContract):
    declaration = BYTES
    cases = (
        ("00000000", ""),
        ("00000003fffefd", "//79"),
    )
    bad = (
        "ffffffff",
        "7fffffff",
    )

    def to_build(self, meaning: str) -> bytes:
        return base64.b64decode(meaning)


class TestNullableBytes(Contract):
    declaration = NULLABLE_BYTES
    cases = (
        ("00000000", ""),
        ("00000001ff", "/w=="),
        ("ffffffff", None),
    )


class TestCompactBytes(TestBytes):
    declaration = COMPACT_BYTES
    cases = (
        ("01", ""),
        ("04fffefd", "//79"),
    )
    bad = (
        "00",
        "ffffffff07",
    )


class TestArray(RoundTripContract):
    declaration = array(INT16)
    cases = (
        ("00000000", []),
        ("0000000200010002", [1, 2]),
    )
    bad = (
        "ffffffff",
        "7fffffff00010002",
    )


class TestCompactArray(RoundTripContract):
    declaration = compact_array(COMPACT_STRING)
    cases = (("01", []), ("0302610262", ["a", "b"]))
    bad = (
        "00",
        "ffffffff07",
    )


class TestCompactNullableArray(RoundTripContract):
    declaration = compact_array(INT32, nullable=True)
    cases = (
        ("01", []),
        ("0200000007", [7]),
        ("00", None),
    )


class TestNullableStruct(RoundTripContract):
    declaration = nullable_struct(Struct("a" / INT8))
    cases = (
        ("ff", None),
        ("0105", {"a": 5}),
    )

    def test_any_other_marker_means_present(self, read: Reader) -> None:
        assert read(self.declaration, bytes.fromhex("0005")) == {"a": 5}
        assert read(self.declaration, bytes.fromhex("7f05")) == {"a": 5}
        assert read(self.declaration, bytes.fromhex("80")) is None


class TestNullableTaggedStruct(RoundTripContract):
    declaration = nullable_tagged_struct(Struct("a" / INT8))
    cases = (
        ("00", None),
        ("0105", {"a": 5}),
    )

    def test_marker_over_31_bits_is_null_as_in_java(self, read: Reader) -> None:
        assert read(self.declaration, bytes.fromhex("ffffffff0f")) is None


class TestFlexibleStruct(RoundTripContract):
    declaration = FlexibleStruct("a" / INT8, tags={0: "b" / Default(INT8, 7), 3: "c" / Default(INT8, -1)})
    cases = (
        ("0500", {"a": 5}),
        ("0501000109", {"a": 5, "b": 9}),
        ("0502000109030102", {"a": 5, "b": 9, "c": 2}),
    )
    bad = (
        "0501",  # a tag is missing
        "05016403aabb",  # an unknown tag is cut short
        "050164ffffffff0f",  # a negative size
        "05ffffffff07",  # more tags than bytes
        "0580808080808000",  # a varint of six bytes
    )

    @pytest.mark.parametrize(
        ("data", "meaning"),
        [
            ("0501000107", {"a": 5}),  # the default, written out
            ("050164020102", {"a": 5}),  # unknown
            ("05020301020001090a", {"a": 5, "b": 9, "c": 2}),  # in descending order
            ("0502000109000108", {"a": 5, "b": 8}),  # twice: the last wins
            ("0502000109000107", {"a": 5}),  # the last is the default
            ("0501006309", {"a": 5, "b": 9}),  # the size of a known tag is not looked at
            ("05ffffffff0f", {"a": 5}),  # a count over 31 bits is negative in Java: none
        ],
    )
    def test_tags_are_read_as_kafka_reads_them(
        self, read: Reader, data: str, meaning: dict[str, int]
    ) -> None:
        assert read(self.declaration, bytes.fromhex(data)) == meaning


@pytest.mark.parametrize(
    ("number", "data"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2**31 - 1, "ffffffff07"),
        (-1, "ffffffff0f"),
    ],
)
def test_varint(number: int, data: str) -> None:
    assert VARINT.build(number) == bytes.fromhex(data)
    assert VARINT.parse(bytes.fromhex(data)) == number


def test_error_reads_as_a_sentence() -> None:
    with pytest.raises(RefusedError) as caught:
        with_construct(array(Struct("name" / STRING)), bytes.fromhex("00000001000561"))
    assert str(caught.value) == "expected 5 bytes for field[0].name at byte 6, found 1"
