"""One declaration for all versions of a message, and the layout of each version, derived from it.

A message is a `Struct` of the types in `formats.wire`, as in versions that are not flexible. Fields that not
all versions have are wrapped:

    Struct(
        "throttleTimeMs" / versions("3+", INT32, default=0),
        "topics" / versions("0+", array(Struct("name" / STRING)), nullable="1+"),
        "supportedFeatures" / tagged(0, array(...), default=[], since=3),
    )

`layout_of` drops the fields that a version lacks. For a flexible version it adds compact lengths, and tagged
fields after every struct.
"""

# mypy: allow-subclassing-any
# construct carries no type hints: its classes are `Any` to mypy.

from functools import cache, singledispatch
from typing import Any, Final

from construct import Construct, Default, Renamed, Struct, Subconstruct

from decoders.formats.wire import (
    COMPACT_LENGTH,
    Blob,
    Counted,
    FlexibleStruct,
    NullableStruct,
    Sequence,
    Text,
)

REQUIRED: Final = object()  # the default of a field without a default


class Versioned(Subconstruct):
    """A field of some versions (`span`), nullable in some of these, with its tag, if any."""

    def __init__(self, kind: Construct, span: range, nullable: range, default: Any, tag: int | None) -> None:
        super().__init__(kind)
        self.span = span
        self.nullable = nullable
        self.default = default
        self.tag = tag


def span_of(text: str) -> range:
    """Parse versions as Kafka writes them: `3+`, `0-7`, `0`."""
    first, dash, last = text.removesuffix("+").partition("-")
    newest = 0x7FFF if text.endswith("+") else int(last if dash else first)
    return range(int(first), newest + 1)


def versions(
    span: str, kind: Construct, *, default: Any = REQUIRED, nullable: str | None = None
) -> Versioned:
    """A field of the versions `span`; a text or an array may be null in the versions `nullable`."""
    return Versioned(kind, span_of(span), span_of(nullable) if nullable else range(0), default, None)


def tagged(tag: int, kind: Construct, *, default: Any, since: int) -> Versioned:
    """A tagged field, which is not written if it has its default."""
    return Versioned(kind, span_of(f"{since}+"), range(0), default, tag)


@cache
def layout_of(message: Struct, version: int, is_flexible: bool) -> Struct:
    """The layout of one version of a message: a `Struct` or `FlexibleStruct` without any `Versioned`."""
    return _layout(message, version, is_flexible)


@singledispatch
def _layout(kind: Construct, version: int, is_flexible: bool) -> Construct:
    """A declaration as one version has it."""
    return kind


@_layout.register
def _(kind: Renamed, version: int, is_flexible: bool) -> Construct:
    return kind.name / _layout(kind.subcon, version, is_flexible)


@_layout.register
def _(kind: Default, version: int, is_flexible: bool) -> Construct:
    return Default(_layout(kind.subcon, version, is_flexible), kind.value)


@_layout.register
def _(kind: Versioned, version: int, is_flexible: bool) -> Construct:
    content = _layout(kind.subcon, version, is_flexible)
    if version in kind.nullable:
        content = _counted(content, content.length, nullable=True)
    return content if kind.default is REQUIRED else Default(content, kind.default)


@_layout.register
def _(kind: Counted, version: int, is_flexible: bool) -> Construct:
    return _counted(kind, COMPACT_LENGTH, nullable=kind.nullable) if is_flexible else kind


@_layout.register
def _(kind: Sequence, version: int, is_flexible: bool) -> Construct:
    length = COMPACT_LENGTH if is_flexible else kind.length
    return Sequence(length, _layout(kind.element, version, is_flexible), nullable=kind.nullable)


@_layout.register
def _(kind: NullableStruct, version: int, is_flexible: bool) -> Construct:
    return NullableStruct(_layout(kind.subcon, version, is_flexible), kind.marker, null=kind.null)


@_layout.register
def _(kind: Struct, version: int, is_flexible: bool) -> Construct:
    here = [field for field in kind.subcons if version in _span(field)]
    fields = [_layout(field, version, is_flexible) for field in here if _tag(field) is None]
    if not is_flexible:
        return Struct(*fields)
    tags = {tag: _layout(field, version, True) for field in here if (tag := _tag(field)) is not None}
    return FlexibleStruct(*fields, tags=tags)


def _span(field: Renamed) -> range:
    return field.subcon.span if isinstance(field.subcon, Versioned) else span_of("0+")


def _tag(field: Renamed) -> int | None:
    return field.subcon.tag if isinstance(field.subcon, Versioned) else None


def _counted(kind: Counted, length: Construct, *, nullable: bool) -> Counted:
    """The same text, bytes or array with another type of length."""
    match kind:
        case Text() | Blob():
            return type(kind)(length, nullable=nullable)
        case Sequence():
            return Sequence(length, kind.element, nullable=nullable)
    raise TypeError(f"{kind!r} has no length in front")
