"""In-memory snapshots of the tables: immutable columns with an index by group, advanced as the tables change.

`Tailer` holds the newest `MemorySnapshot`; listeners take it from there and read no table.
"""

from typing import TYPE_CHECKING

from streaming.common.lazily import lazily

if TYPE_CHECKING:
    from streaming.serve.memory.snapshot import MemorySnapshot
    from streaming.serve.memory.tailer import Tailer

__all__ = ["MemorySnapshot", "Tailer"]

__getattr__ = lazily(
    {"Tailer": "streaming.serve.memory.tailer", "MemorySnapshot": "streaming.serve.memory.snapshot"}
)
