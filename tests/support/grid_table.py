"""Prints what `make test-grid` found: a table of faults and moments (Markdown)."""

import sys
from pathlib import Path

from grid_cells import FAULTS, MOMENTS


def table(folder: Path) -> str:
    """Return the outcomes in a folder as a table; a cell without one has failed, or was not walked."""
    heads = [
        "| fault \\ moment | " + " | ".join(MOMENTS) + " |",
        "| --- |" + " --- |" * len(MOMENTS),
    ]
    rows = [
        f"| {fault.name} | "
        + " | ".join(outcome(folder / f"{row:02}-{column}.txt") for column in range(len(MOMENTS)))
        + " |"
        for row, fault in enumerate(FAULTS)
    ]
    return "\n".join([*heads, *rows])


def outcome(file: Path) -> str:
    """Return what a cell has left."""
    return file.read_text() if file.exists() else "**none**"


if __name__ == "__main__":
    print(table(Path(sys.argv[1])))
