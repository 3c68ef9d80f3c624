"""The column reader: reads one message from every row at once, derived by walking its declaration.

It takes a cursor over n rows and returns the fields as numpy arrays, without Python code per row. Malformed
rows become invalid in the cursor, which holds their faults.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from construct import Renamed, Struct
from numpy.typing import NDArray

from decoders.columns.cursor import Bools, Cursor, Ints
from decoders.columns.field_kinds import Shape, shape_of
from decoders.formats.faults import WireError, missing_bytes, unexpected_null
from decoders.formats.wire import FlexibleStruct
from decoders.rows.documents import tags_text

# Tagged fields are read in passes over all rows, one field of each row per pass. A row with more fields than
# this is read alone: Kafka defines one tag for offset commits, and a single hostile record could demand
# thousands of passes.
MAX_TAG_PASSES: Final = 8


@dataclass(frozen=True)
class FieldColumn:
    """One field of n rows: values in the form of its shape, and whether each is there (see `field_kinds`)."""

    values: NDArray[Any]
    is_there: Bools


Fields = dict[str, FieldColumn]


def shapes_of(declaration: Struct) -> dict[str, Shape]:
    """The shape of every field by name, tagged fields last."""
    fields = [*declaration.subcons, *_tags_of(declaration).values()]
    return {field.name: shape_of(field) for field in fields}


def read_message(declaration: Struct, cursor: Cursor) -> Fields:
    """Read the fields of a message at the position of every row of the cursor."""
    fields = {field.name: _read_field(field, cursor) for field in declaration.subcons}
    if isinstance(declaration, FlexibleStruct):
        fields |= _read_tags(declaration, cursor)
    return fields


def _tags_of(declaration: Struct) -> dict[int, Renamed]:
    return dict(declaration.tags) if isinstance(declaration, FlexibleStruct) else {}


def _read_field(field: Renamed, cursor: Cursor) -> FieldColumn:
    shape = shape_of(field)
    cursor.field = field.name
    values = shape.read(cursor)
    return FieldColumn(values, shape.is_there(values))


def _read_tags(declaration: FlexibleStruct, cursor: Cursor) -> Fields:
    """Read the section of tagged fields; an absent field is not there, like one that holds its default."""
    found = {field.name: _absent(field, cursor) for field in declaration.tags.values()}
    cursor.field = "tags"
    sections = cursor.at
    left = cursor.varints()
    room = cursor.stops - cursor.at
    cursor.refuse(left > room, missing_bytes, left, room)
    is_long = left > MAX_TAG_PASSES
    for row in np.flatnonzero(is_long & cursor.is_valid):
        _read_tags_alone(declaration, cursor, row, sections[row], found)
    left[is_long] = 0
    while len(rows := np.flatnonzero((left > 0) & cursor.is_valid)):
        _read_one_tag(declaration, cursor, rows, found)
        left[rows] -= 1
    return found


def _absent(field: Renamed, cursor: Cursor) -> FieldColumn:
    count = len(cursor.at)
    return FieldColumn(shape_of(field).blank(count), np.zeros(count, np.bool_))


def _read_one_tag(declaration: FlexibleStruct, cursor: Cursor, rows: Ints, found: Fields) -> None:
    """Read one tagged field from each of the given rows, into `found` if the declaration has it."""
    part = cursor.part(rows)
    tags, sizes = part.varints(), part.varints()
    is_known = np.isin(tags, list(declaration.tags))
    part.refuse(~is_known & (sizes < 0), unexpected_null, sizes)
    part.step(np.where(is_known, 0, np.maximum(sizes, 0)))
    for tag, field in declaration.tags.items():
        having = np.flatnonzero((tags == tag) & part.is_valid)
        having_part = part.part(having)
        column = _read_field(field, having_part)
        found[field.name].values[rows[having]] = column.values
        found[field.name].is_there[rows[having]] = column.is_there
        part.put_back(having, having_part)
    cursor.put_back(rows, part)


def _read_tags_alone(
    declaration: FlexibleStruct, cursor: Cursor, row: np.intp, section: np.int64, found: Fields
) -> None:
    """Read the whole section of one row, from its start, with the reader of single records."""
    origin = cursor.origins[row]
    record = cursor.data[origin : cursor.stops[row]].tobytes()
    try:
        text, stop = tags_text(declaration, record, int(section - origin))
    except WireError as error:
        cursor.is_valid[row] = False
        cursor.faults.add(row, error.fault)
        return
    cursor.at[row] = origin + stop
    shown = json.loads(text)
    for field in declaration.tags.values():
        if field.name in shown:
            found[field.name].values[row] = shape_of(field).stored(shown[field.name])
            found[field.name].is_there[row] = True
