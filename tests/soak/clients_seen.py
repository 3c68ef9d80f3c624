"""What was seen of `serve` and of its clients: samples, tables, and whether something has grown (pure)."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from tests.soak import report


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What was seen of `serve` since the sample before; shares of a core, bytes, seconds."""

    seconds: float
    memory_bytes: int  # PSS
    resident_bytes: int
    threads: int
    files: int
    processor: float
    others_processor: float  # of the clients, the writer and this process
    connections: float
    answers_a_second: float
    errors: int
    differences: int
    median_s: float
    longest_s: float
    oldest_s: float  # for how long there had been a newer batch than that of an answer


COLUMNS: Final = tuple(column.name for column in fields(Sample))


@dataclass
class Counts:
    """What the clients of a library got."""

    answers: Counter[str] = field(default_factory=Counter)  # by question
    errors: Counter[str] = field(default_factory=Counter)  # by text
    differences: list[str] = field(default_factory=list)
    by_quarter: Counter[int] = field(default_factory=Counter)  # answers
    took: "array[float]" = field(default_factory=lambda: array("d"))


MEBIBYTE: Final = 2**20
ROWS: Final[Sequence[report.Row[Sample]]] = (
    ("responses per second", lambda at: at.answers_a_second, 1, "{:,.0f}"),
    ("errors of clients in 5 s", lambda at: at.errors, 1, "{:,.0f}"),
    ("open connections", lambda at: at.connections, 1, "{:,.0f}"),
    ("median time of a response, ms", lambda at: at.median_s, 1e-3, "{:,.1f}"),
    ("longest time of a response in 5 s, ms", lambda at: at.longest_s, 1e-3, "{:,.0f}"),
    ("oldest response in 5 s, s", lambda at: at.oldest_s, 1, "{:,.1f}"),
    ("memory of `serve` (PSS), MiB", lambda at: at.memory_bytes, MEBIBYTE, "{:,.0f}"),
    ("memory of `serve` (RSS), MiB", lambda at: at.resident_bytes, MEBIBYTE, "{:,.0f}"),
    ("threads of `serve`", lambda at: at.threads, 1, "{:,.0f}"),
    ("open files of `serve`", lambda at: at.files, 1, "{:,.0f}"),
    ("CPU time of `serve`, % of a core", lambda at: at.processor, 1e-2, "{:,.0f}"),
    (
        "CPU time of clients, writer and soak test, % of a core",
        lambda at: at.others_processor,
        1e-2,
        "{:,.0f}",
    ),
)
PANELS: Final[Sequence[report.Panel[Sample]]] = (
    ("answers a second, connections", [("answers", ROWS[0][1]), ("open connections", ROWS[2][1])]),
    ("ms", [("median time of an answer", lambda at: 1e3 * at.median_s)]),
    (
        "memory of serve, MiB",
        [
            ("PSS", lambda at: at.memory_bytes / MEBIBYTE),
            ("RSS", lambda at: at.resident_bytes / MEBIBYTE),
        ],
    ),
    ("threads and open files of serve", [("threads", lambda at: at.threads), ("files", lambda at: at.files)]),
    (
        "% of a core",
        [
            ("serve", lambda at: 100 * at.processor),
            ("clients, writer, soak", lambda at: 100 * at.others_processor),
        ],
    ),
)

GROWTH: Final[Mapping[str, tuple[Callable[[Sample], float], float, float]]] = {
    "memory of serve (PSS, MiB)": (lambda at: at.memory_bytes / MEBIBYTE, 1.05, 8),
    "threads of serve": (lambda at: at.threads, 1, 4),
    "open files of serve": (lambda at: at.files, 1, 16),
}
"""What may not grow: the median of the last quarter is at most that of the second one times a factor, and
some more. The first quarter does not count: caches fill, threads start."""


def growth(samples: Sequence[Sample]) -> Iterator[tuple[str, bool]]:
    """Yield a sentence for what may not grow, and whether it has not."""
    second, last = quarter(samples, 1), quarter(samples, 3)
    for name, (value, factor, more) in GROWTH.items():
        before, after = report.median(map(value, second)), report.median(map(value, last))
        most = before * factor + more
        yield (
            f"{name}: {before:,.0f} in the second quarter, {after:,.0f} in the last; at most {most:,.0f}",
            (after <= most),
        )


def quarter(samples: Sequence[Sample], number: int) -> Sequence[Sample]:
    """Return the samples of a quarter of the time (0 to 3)."""
    first, long = samples[0].seconds, (samples[-1].seconds - samples[0].seconds) / 4
    return [at for at in samples if first + number * long <= at.seconds <= first + (number + 1) * long]


def by_library(counts: Mapping[str, Counts]) -> str:
    """Return the answers of each library in Markdown."""
    kinds = ("offsets", "members", "ends", "groups")
    lines = [
        "| client | offsets | descriptions | log ends | lists | by quarter | errors | different "
        "| median, ms | 99 %, ms | at most, ms |",
        "| --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, one in counts.items():
        took = sorted(one.took) or [float("nan")]
        times = [took[len(took) // 2], took[int(len(took) * 0.99)], took[-1]]
        quarters = ", ".join(f"{one.by_quarter[number]:,}" for number in range(4))
        cells = [*(f"{one.answers[kind]:,}" for kind in kinds), quarters]
        cells += [f"{one.errors.total():,}", f"{len(one.differences):,}"]
        cells += [f"{1e3 * time:,.0f}" for time in times]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)
