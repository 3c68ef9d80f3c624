"""Series and their lines in the exposition formats, built from columns without a step per series."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Index, Mask, from_numbers, from_texts
from streaming.serve.metrics.catalogue.metric import Metric
from streaming.serve.metrics.labels import TEXTS

Values = npt.NDArray[Any]
"""n int64 or float64 values."""

_NO_SEPARATOR: Final = ""


@dataclass(frozen=True, eq=False)
class Label:
    """The values of one label of n series: indices (n) into escaped texts."""

    texts: pa.Array
    places: Index

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Label":
        """Use n texts that need no escaping."""
        return cls(from_texts(texts).cast(TEXTS), np.arange(len(texts)))

    def where(self, rows: Index) -> "Label":
        """Select rows by index."""
        return Label(self.texts, self.places[rows])

    def column(self) -> pa.Array:
        """Return the n texts."""
        return self.texts.take(from_numbers(self.places))


@dataclass(frozen=True, eq=False)
class Series:
    """n series of a metric: their labels by name, and their values. `groups` are the places of their groups
    (None: they belong to no group)."""

    metric: Metric
    labels: Mapping[str, Label]
    values: Values
    groups: Index | None = None

    def __len__(self) -> int:
        return len(self.values)

    def where(self, chosen: Mask) -> "Series":
        """Select the series of a mask."""
        if chosen.all():
            return self
        rows = np.flatnonzero(chosen)
        labels = {name: label.where(rows) for name, label in self.labels.items()}
        groups = None if self.groups is None else self.groups[rows]
        return Series(self.metric, labels, self.values[rows], groups)


@dataclass(frozen=True, kw_only=True)
class Head:
    """The metadata of a metric; `labels` maps each label to the label of the series that it shows, or to a
    constant."""

    name: str
    kind: str
    help: str
    unit: str
    labels: Mapping[str, "str | Constant"]


@dataclass(frozen=True)
class Constant:
    """A label value that all series share, escaped."""

    value: str


@dataclass(frozen=True, eq=False)
class Family:
    """A metric in an exposition: its head, and its lines."""

    head: Head
    lines: memoryview


def lines_of(head: Head, several: Iterable[Series]) -> memoryview:
    """Return the lines of `several` series of one metric."""
    parts = [_lines(head, series) for series in several if len(series)]
    if len(parts) == 1:
        return parts[0]
    return memoryview(b"".join(parts))


def seconds(milliseconds: Index) -> Values:
    """Convert n times from ms to seconds since 1970."""
    times: Values = milliseconds / 1_000
    return times


def _lines(head: Head, series: Series) -> memoryview:
    pieces: list[pa.Array | pa.Scalar] = []
    text = head.name
    for number, (name, shows) in enumerate(head.labels.items()):
        text += f'{"," if number else "{"}{name}="'
        if isinstance(shows, Constant):
            text += shows.value
        else:
            pieces += [_scalar(text), series.labels[shows].column()]
            text = ""
        text += '"'
    text += "} " if head.labels else " "
    pieces += [_scalar(text), from_numbers(series.values).cast(TEXTS), _scalar("\n")]
    joined = pc.binary_join_element_wise(*pieces, _scalar(_NO_SEPARATOR))
    return _bytes_of(joined)


def _scalar(text: str) -> pa.Scalar:
    return from_texts([text]).cast(TEXTS)[0]  # `pa.scalar` would import pandas


def _bytes_of(texts: pa.Array) -> memoryview:
    """Return the concatenation of n texts, on the same memory."""
    _, bounds, data = texts.buffers()
    offsets = np.frombuffer(bounds, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return memoryview(data)[int(offsets[0]) : int(offsets[-1])] if data is not None else memoryview(b"")
