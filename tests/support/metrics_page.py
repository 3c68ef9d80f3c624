"""The table of all metrics in docs/metrics.md, written from the catalogue: `make board`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from streaming.serve.metrics.catalogue import CATALOGUE
from streaming.serve.metrics.metric import Metric

PAGE: Final = Path(__file__).parents[2] / "docs" / "metrics.md"
BEGIN: Final = "<!-- From here to the next comment written by `make board`. -->\n"
END: Final = "<!-- Written until here. -->\n"

_LEVELS: Final = {
    "job": "Of the job, and of serve",
    "group": "Of groups",
    "topic": "Of groups and topics",
    "partition": "Of partitions",
}
_NOTES: Final = {
    "job": "These are always there, whatever `[metrics]` says of groups.",
    "group": "For each group whose granularity is `group` or finer.",
    "topic": "For each group and topic, which is the default granularity.",
    "partition": 'Only with `granularity = "partition"`: for all groups, or those of a pattern. Logs are '
    "told of for all, or not at all.",
}


def written() -> str:
    """Return the page with the table as the catalogue has it."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{_tables()}\n{END}{after}"


def _tables() -> str:
    return "\n".join(line for level in _LEVELS for line in _table(level))


def _table(level: str) -> Iterator[str]:
    yield f"### {_LEVELS[level]}"
    yield ""
    yield _NOTES[level]
    yield ""
    yield "| metric and labels | unit | meaning | an example |"
    yield "| --- | --- | --- | --- |"
    for metric in CATALOGUE:
        if metric.level == level:
            labels = f"<br>{', '.join(f'`{label}`' for label in metric.labels)}" if metric.labels else ""
            meaning = f"{metric.help} No series: {metric.absent}." if metric.absent else metric.help
            cells = (f"`{metric.full_name}`{labels}", _unit(metric), meaning, f"`{metric.example}`")
            yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
    yield ""


def _unit(metric: Metric) -> str:
    if metric.unit == "seconds":
        return "Unix time, s" if metric.name.endswith("_timestamp_seconds") else "s"
    return "count" if metric.kind == "counter" else "number"


def main() -> None:
    """Write the table into the page."""
    PAGE.write_text(written())
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
