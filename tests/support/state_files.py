"""Reads which files of the state stand in a checkpoint."""

from pathlib import Path


def versions_behind(checkpoint: Path) -> int:
    """Return how many versions a start would replay, in the state partition that has the most: from the
    newest snapshot, or from nothing, to the newest changelog."""
    partitions = [folder for folder in (checkpoint / "state" / "0").iterdir() if folder.name.isdecimal()]
    assert partitions
    return max(_newest(folder, "changelog") - _newest(folder, "zip") for folder in partitions)


def _newest(partition: Path, ending: str) -> int:
    """Return the newest version that a file of the ending is of; its name begins with it."""
    return max((int(file.name.partition(".")[0]) for file in partition.glob(f"*.{ending}")), default=0)
