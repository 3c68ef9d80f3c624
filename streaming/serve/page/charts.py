"""Charts as coordinates, which templates draw as SVG; scripts may draw the same numbers again.

The area is `WIDTH` by `HEIGHT` units and is stretched to the page, so labels are no part of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from streaming.common.escapes import json_text
from streaming.common.times import DAY_MS, in_words, iso

WIDTH: Final = 1000
HEIGHT: Final = 200

_LABELS: Final = 5


@dataclass(frozen=True, kw_only=True)
class Line:
    """Values at the times of a chart; None: unknown, and the line has a gap. `kind` is its CSS class."""

    label: str
    kind: str
    values: Sequence[float | None]


@dataclass(frozen=True, kw_only=True)
class Band:
    """A span of time (ms) with a meaning, as a shade; `end` None: until the end of the chart."""

    label: str
    kind: str
    start: int
    end: int | None


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A moment (ms) with a meaning, as a vertical line."""

    label: str
    kind: str
    at: int


@dataclass(frozen=True)
class Shape:
    """A rectangle, with the text that a pointer shows."""

    kind: str
    x: float
    width: float
    title: str
    y: float = 0
    height: float = HEIGHT


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart: `summary` says in words what it shows, `data` has its numbers as JSON for scripts (empty: a
    script draws nothing)."""

    summary: str
    paths: Sequence[tuple[str, str]] = ()
    shapes: Sequence[Shape] = ()
    marks: Sequence[tuple[str, float, str]] = ()
    y_labels: Sequence[str] = ()
    x_labels: Sequence[str] = ()
    legend: Sequence[tuple[str, str]] = field(default_factory=list)
    data: str = ""


def lines(
    times: Sequence[int],
    own: Sequence[Line],
    *,
    unit: str,
    bands: Sequence[Band] = (),
    marks: Sequence[Mark] = (),
    from_zero: bool = False,
    until: int | None = None,
) -> Chart | None:
    """Return lines over `times` (ms, rising), up to `until` if that is later; None without any value, or if
    no time passes."""
    known = [value for line in own for value in line.values if value is not None]
    if not known or len(times) < 2:
        return None
    start, end = times[0], max(times[-1], until or 0)
    if start == end:
        return None
    low, high = (min(0.0, *known) if from_zero else min(known)), max(known)
    if high <= low:
        low, high = (0.0, 1.0) if from_zero else (low - 1, high + 1)

    def x(at: int) -> float:
        return _x(at, start, end)

    def y(value: float) -> float:
        return round(HEIGHT - (value - low) / (high - low) * HEIGHT, 1)

    newest = [(line.label, line.values[-1]) for line in own]
    said = ", ".join(f"{label} {'unknown' if at is None else f'{round(at):,}'}" for label, at in newest)
    kinds = {(band.kind, band.label) for band in bands} | {(mark.kind, mark.label) for mark in marks}
    return Chart(
        summary=f"{unit} from {iso(start, 'seconds')} to {iso(end, 'seconds')}; at the end: {said}",
        paths=[(line.kind, _path(times, line.values, x, y)) for line in own],
        shapes=[_shape(band, start, end, band.label) for band in _between(bands, start, end)],
        marks=[(mark.kind, x(mark.at), mark.label) for mark in marks if start <= mark.at <= end],
        y_labels=[f"{round(value):,}" for value in (high, low + (high - low) / 2, low)],
        x_labels=_x_labels(start, end),
        legend=[*((line.kind, line.label) for line in own), *sorted(kinds)],
        data=json_text(
            {
                "times": [at / 1_000 for at in times],
                "until": end / 1_000,
                "lines": [{"label": line.label, "kind": line.kind, "values": line.values} for line in own],
            }
        ),
    )


def bars(starts: Sequence[int], counts: Sequence[int], *, step: int, unit: str) -> Chart:
    """Return bars of counts for n spans of `step` ms that begin at `starts` (ms)."""
    high, width = max([1, *counts]), WIDTH / max(1, len(starts))
    shapes = []
    for number, (at, count) in enumerate(zip(starts, counts, strict=True)):
        if count:
            height = max(3.0, count / high * HEIGHT)
            title = f"{iso(at, 'seconds')}, {in_words(step)}: {count:,} {unit}"
            shapes.append(
                Shape(
                    "bar", round(number * width + 0.5, 1), round(width - 1, 1), title, HEIGHT - height, height
                )
            )
    total = sum(counts)
    said = f"{total:,} {unit}" if starts else f"no {unit}"
    return Chart(
        summary=f"{said} from {iso(starts[0], 'seconds')} to {iso(starts[-1] + step, 'seconds')}",
        shapes=shapes,
        y_labels=[f"{high:,}", "", "0"],
        x_labels=_x_labels(starts[0], starts[-1] + step),
    )


def states(start: int, end: int, bands: Sequence[Band]) -> Chart | None:
    """Return spans of time one after another on one line; None without any."""
    shapes = [
        _shape(band, start, end, f"{band.label} from {iso(max(band.start, start), 'seconds')}")
        for band in _between(bands, start, end)
    ]
    if not shapes:
        return None
    said = "; ".join(shape.title for shape in shapes[-_LABELS:])
    return Chart(
        summary=said,
        shapes=shapes,
        x_labels=_x_labels(start, end),
        legend=sorted({(band.kind, band.label) for band in bands}),
    )


def _between(bands: Sequence[Band], start: int, end: int) -> list[Band]:
    return [band for band in bands if (band.end or end) > start and band.start < end]


def _shape(band: Band, start: int, end: int, title: str) -> Shape:
    """Return a band of a chart from `start` to `end` (ms), at least one unit wide."""
    left, right = _x(band.start, start, end), _x(band.end or end, start, end)
    return Shape(band.kind, left, max(1.0, round(right - left, 1)), title)


def _x(at: int, start: int, end: int) -> float:
    """Return the place of a moment in a chart from `start` to `end` (ms)."""
    return round((min(max(at, start), end) - start) / (end - start) * WIDTH, 1)


def _path(
    times: Sequence[int],
    values: Sequence[float | None],
    x: Callable[[int], float],
    y: Callable[[float], float],
) -> str:
    found, is_open = [], False
    for at, value in zip(times, values, strict=True):
        if value is not None:
            found.append(f"{'L' if is_open else 'M'}{x(at)} {y(value)}")
        is_open = value is not None
    return "".join(found)


def _x_labels(start: int, end: int) -> list[str]:
    moments = [start + (end - start) * number // (_LABELS - 1) for number in range(_LABELS)]
    is_long = end - start > DAY_MS
    return [
        iso(at, "seconds")[5:16].replace("T", " ") if is_long else iso(at, "seconds")[11:16] for at in moments
    ]
