"""What samples say: a table of medians by quarters with the trend, a CSV file, and a plot."""

import csv
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from tests.soak.watch import Sample


class Timed(Protocol):
    """A sample, a dataclass of numbers; `seconds` is the time since the begin."""

    @property
    def seconds(self) -> float: ...


T = TypeVar("T", bound=Timed)
Row: TypeAlias = tuple[str, Callable[[T], float], float, str]
"""A name, the value in a sample, its unit, and how it is printed."""
Panel: TypeAlias = tuple[str, Sequence[tuple[str, Callable[[T], float]]]]
"""The title of a part of the plot, and its lines."""

MEGABYTE: Final = 1e6
ROWS: Final[Sequence[Row[Sample]]] = (
    ("short-lived groups so far", lambda at: at.groups_seen, 1, "{:,.0f}"),
    ("live groups, broker", lambda at: at.broker_groups, 1, "{:,.0f}"),
    ("live groups, tables", lambda at: at.live_groups, 1, "{:,.0f}"),
    ("live offsets, tables", lambda at: at.live_offsets, 1, "{:,.0f}"),
    ("seconds per batch", lambda at: at.batch_seconds, 1, "{:.2f}"),
    ("records per batch", lambda at: at.batch_records, 1, "{:,.0f}"),
    ("Java heap in use after a full garbage collection, MB", lambda at: at.heap_bytes, MEGABYTE, "{:,.0f}"),
    ("resident memory: JVM, MB", lambda at: at.jvm_rss_bytes, MEGABYTE, "{:,.0f}"),
    ("resident memory: driver, MB", lambda at: at.driver_rss_bytes, MEGABYTE, "{:,.0f}"),
    ("resident memory: Python workers, MB", lambda at: at.workers_rss_bytes, MEGABYTE, "{:,.0f}"),
    ("state alone (RocksDB's working copies), MB", lambda at: at.local_state_bytes, MEGABYTE, "{:.1f}"),
    ("state, all versions in the checkpoint, MB", lambda at: at.state_bytes, MEGABYTE, "{:.1f}"),
    ("checkpoint without state, MB", lambda at: at.checkpoint_bytes - at.state_bytes, MEGABYTE, "{:.2f}"),
    ("`offsets`, files in use, MB", lambda at: at.offsets_in_use_bytes, MEGABYTE, "{:.2f}"),
    ("`groups`, files in use, MB", lambda at: at.groups_in_use_bytes, MEGABYTE, "{:.2f}"),
    ("`offsets`, whole folder, MB", lambda at: at.offsets_bytes, MEGABYTE, "{:.1f}"),
    ("`groups`, whole folder, MB", lambda at: at.groups_bytes, MEGABYTE, "{:.1f}"),
    ("`changes`, whole folder, MB", lambda at: at.changes_bytes, MEGABYTE, "{:.1f}"),
    ("`changes`, files in its log", lambda at: at.log_files, 1, "{:,.0f}"),
    ("Spark's folder for temporary files, MB", lambda at: at.scratch_bytes, MEGABYTE, "{:.1f}"),
    ("written so far, MB", lambda at: at.written_bytes, MEGABYTE, "{:,.0f}"),
)
"""What is told of a run in which groups come and go."""


def quarters(samples: Sequence[T]) -> tuple[Sequence[T], Sequence[T], Sequence[T]]:
    """Return the samples of the first quarter of the time, of the middle half, and of the last quarter."""
    start, stop = samples[0].seconds, samples[-1].seconds
    first, last = start + (stop - start) / 4, stop - (stop - start) / 4
    return (
        [at for at in samples if at.seconds < first],
        [at for at in samples if first <= at.seconds <= last],
        [at for at in samples if at.seconds > last],
    )


def median(values: Iterable[float]) -> float:
    """Return the median of the values that are known; NaN if none is."""
    known = [value for value in values if not math.isnan(value)]
    return statistics.median(known) if known else math.nan


def table(samples: Sequence[T], rows: Sequence[Row[T]]) -> str:
    """Return the medians of each part of the time, as a table in Markdown."""
    lines = ["| median of the | first quarter | middle half | last quarter | last to first |"]
    lines += ["| --- | ---: | ---: | ---: | ---: |"]
    parts = quarters(samples)
    for name, value, unit, shape in rows:
        medians = [median(map(value, part)) / unit for part in parts]
        shown = [" - " if math.isnan(number) else shape.format(number) for number in medians]
        lines.append(f"| {name} | {' | '.join(shown)} | {_trend(medians[0], medians[-1])} |")
    return "\n".join(lines)


def _trend(first: float, last: float) -> str:
    if math.isnan(first) or math.isnan(last) or not first:
        return "-"
    return f"{100 * (last / first - 1):+.0f} %"


def write_csv(file: Path, samples: Sequence[Any]) -> None:
    """Write all samples, which are dataclasses, one line each."""
    columns = [column.name for column in fields(samples[0])]
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_short(getattr(at, name)) for name in columns] for at in samples)


def _short(value: float) -> float:
    return round(value, 3)


def thinned(samples: Sequence[T], most: int = 100) -> Sequence[T]:
    """Return at most so many of the samples, evenly."""
    return samples[:: math.ceil(len(samples) / most)]


PANELS: Final[Sequence[Panel[Sample]]] = (
    (
        "groups, in thousands",
        (
            ("seen so far", lambda at: at.groups_seen / 1e3),
            ("live, broker", lambda at: at.broker_groups / 1e3),
            ("live, tables", lambda at: at.live_groups / 1e3),
        ),
    ),
    (
        "seconds per batch",
        (("median between two samples", lambda at: at.batch_seconds),),
    ),
    (
        "resident memory, MB",
        (
            ("JVM", lambda at: at.jvm_rss_bytes / 1e6),
            ("its heap after a full collection", lambda at: at.heap_bytes / 1e6),
            ("Python workers", lambda at: at.workers_rss_bytes / 1e6),
            ("driver", lambda at: at.driver_rss_bytes / 1e6),
        ),
    ),
    (
        "state and live tables, MB",
        (
            ("state (RocksDB's working copies)", lambda at: at.local_state_bytes / 1e6),
            ("offsets, files in use", lambda at: at.offsets_in_use_bytes / 1e6),
            ("groups, files in use", lambda at: at.groups_in_use_bytes / 1e6),
        ),
    ),
    (
        "kept on purpose for a while, MB",
        (
            ("state, the last 100 versions", lambda at: at.state_bytes / 1e6),
            ("changes (history, 7 days)", lambda at: at.changes_bytes / 1e6),
            ("offsets, with replaced files (1 h)", lambda at: at.offsets_bytes / 1e6),
            ("groups, with replaced files (1 h)", lambda at: at.groups_bytes / 1e6),
        ),
    ),
)
"""What the plot of such a run shows."""


def plot(file: Path, samples: Sequence[T], panels: Sequence[Panel[T]]) -> None:
    """Draw the samples over time, as a small SVG that is the same for the same samples."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    shown = thinned(samples)
    minutes = [at.seconds / 60 for at in shown]
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "offsetlake", "font.size": 9}):
        figure, axes = pyplot.subplots(len(panels), 1, sharex=True, figsize=(8, 2.1 * len(panels)))
        for axis, (title, lines) in zip(axes, panels, strict=True):
            for label, value in lines:
                _draw(axis, minutes, [value(at) for at in shown], label)
            axis.set_title(title, loc="left", fontsize=9)
            axis.set_ylim(bottom=0)
            axis.grid(alpha=0.3)
            axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        axes[-1].set_xlabel("minutes")
        figure.tight_layout()
        figure.savefig(file, metadata={"Date": None})
        pyplot.close(figure)


def _draw(axis: Any, minutes: list[float], values: list[float], label: str) -> None:
    known = [(at, value) for at, value in zip(minutes, values, strict=True) if not math.isnan(value)]
    axis.plot(*zip(*known, strict=True) if known else ([], []), label=label, linewidth=1)
