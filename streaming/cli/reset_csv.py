"""Positions in the format of `kafka-consumer-groups --reset-offsets --from-file` (Kafka 2.4 or newer)."""

from collections.abc import Iterator

import pyarrow as pa

from streaming.cli.render import csv_line


def reset_lines(positions: pa.Table, offset: str) -> Iterator[str]:
    """Write lines `group,topic,partition,offset` for rows with these, whose offset is in the column `offset`.

    A row without an offset is left out. The tool (`ConsumerGroupCommand.parseResetPlan`) splits at line ends:
    so is a group with one in its name.
    """
    for row in positions.select(["group", "topic", "partition", offset]).to_pylist():
        if row[offset] is not None and not _has_line_end(row["group"]):
            yield csv_line(row.values()) + "\n"


def groups_left_out(positions: pa.Table) -> list[str]:
    """Say of each group that the file cannot hold that it is left out."""
    names = sorted(filter(_has_line_end, positions["group"].unique().to_pylist()))
    return [f"group {name!r} is left out: the file cannot hold a line end in a name" for name in names]


def _has_line_end(name: str) -> bool:
    return "\r" in name or "\n" in name
