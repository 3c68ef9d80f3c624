"""What the tests of requests and responses share: strategies derived from the declarations, and messages."""

from functools import singledispatch
from typing import Any

from construct import Construct, Default, Renamed, Struct
from hypothesis import strategies as st
from record_strategies import values_of

from decoders.formats.wire import FlexibleStruct, NullableStruct, Sequence
from decoders.messages import APIS, Api, request_bytes

SIZE_BYTES = 4

REQUESTS = [(api, version) for api in APIS.values() for version in api.versions]
"""Every API in every version."""

NEW_IN_4_4 = {("ApiVersions", 5), ("DeleteGroups", 3)}
"""Versions that came with Kafka 4.4."""


@singledispatch
def with_defaults(declaration: Construct, value: Any) -> Any:
    """A value as it is read: all that was left out has its default."""
    return value


@with_defaults.register(Renamed)
@with_defaults.register(Default)
def _(declaration: Renamed | Default, value: Any) -> Any:
    return with_defaults(declaration.subcon, value)


@with_defaults.register
def _(declaration: Sequence, value: list[Any] | None) -> list[Any] | None:
    return None if value is None else [with_defaults(declaration.element, element) for element in value]


@with_defaults.register
def _(declaration: NullableStruct, value: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if value is None else with_defaults(declaration.subcon, value)


@with_defaults.register
def _(declaration: Struct, value: dict[str, Any]) -> dict[str, Any]:
    return {field.name: _field(field, value) for field in declaration.subcons}


@with_defaults.register
def _(declaration: FlexibleStruct, value: dict[str, Any]) -> dict[str, Any]:
    return {field.name: _field(field, value) for field in [*declaration.subcons, *declaration.tags.values()]}


def _field(field: Renamed, message: dict[str, Any]) -> Any:
    default = field.subcon.value if isinstance(field.subcon, Default) else None
    return with_defaults(field, message.get(field.name, default))


def body_of(layout: Struct) -> st.SearchStrategy[dict[str, Any]]:
    """A message; now and then fields that have a default are left out."""
    optional = [field.name for field in layout.subcons if isinstance(field.subcon, Default)]
    left_out = st.sets(st.sampled_from(optional)) if optional else st.just(set())
    return st.builds(
        lambda body, names: {name: value for name, value in body.items() if name not in names},
        values_of(layout),
        left_out,
    )


def request_frames() -> st.SearchStrategy[bytes]:
    """The frame of a valid request, of any API and version."""
    return st.sampled_from(REQUESTS).flatmap(lambda request: _frames_of(*request))


def _frames_of(api: Api, version: int) -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda body, number, client: request_bytes(api.key, version, number, client, body)[SIZE_BYTES:],
        body_of(api.request_layout(version)),
        st.integers(-(2**31), 2**31 - 1),
        st.text(max_size=5),
    )
