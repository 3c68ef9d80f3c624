"""The tables of docs/metrics.md, from the catalogue and the names of other exporters."""

from collections.abc import Iterator, Sequence

from streaming.serve.metrics.catalogue import CATALOGUE
from streaming.serve.metrics.catalogue.metric import LEVELS, Level, Metric
from streaming.serve.metrics.catalogue.schemes import NOT_HAD, NOT_KNOWN, SCHEMES, Foreign

_TITLES: dict[Level, str] = {
    "job": "The job, the tables, and `serve` itself",
    "group": "Groups",
    "topic": "Groups and topics",
    "partition": "Partitions",
}


def tables_of_metrics() -> str:
    """Return the metrics as Markdown tables, one per level."""
    return "\n".join(line for level in LEVELS for line in _level(level))


def tables_of_names() -> str:
    """Return the names of other exporters as Markdown tables, and their metrics that we lack."""
    return "\n".join(line for name in SCHEMES for line in _scheme(name))


def _level(level: Level) -> Iterator[str]:
    yield from (f"### {_TITLES[level]}", "")
    yield from ("| metric | unit | meaning | labels | example |", "| --- | --- | --- | --- | --- |")
    yield from (_row(metric) for metric in CATALOGUE if metric.level == level)
    yield ""


def _row(metric: Metric) -> str:
    unit = metric.unit or "-"
    kind = f"{unit} (counter)" if metric.kind == "counter" else unit
    meaning = metric.help if not metric.absent else f"{metric.help} No series: {metric.absent}."
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "-"
    example = metric.example.replace("|", "\\|")
    return f"| `{metric.full_name}` | {kind} | {meaning} | {labels} | `{example}` |"


def _scheme(name: str) -> Iterator[str]:
    yield from (f'### names = "{name}"', "")
    yield from ("| metric | our name | labels (in parentheses: always empty) |", "| --- | --- | --- |")
    yield from (_foreign(foreign) for foreign in SCHEMES[name])
    yield from ("", f"Not available: {_listed(NOT_HAD[name])}.", "")


def _foreign(foreign: Foreign) -> str:
    known = [f"`{label}`" for label, shows in foreign.labels.items() if shows != NOT_KNOWN]
    empty = [f"`{label}`" for label, shows in foreign.labels.items() if shows == NOT_KNOWN]
    labels = ", ".join(known) + (f" ({', '.join(empty)})" if empty else "")
    return f"| `{foreign.name}` | `offsetlake_{foreign.of}` | {labels} |"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
