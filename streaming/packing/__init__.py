"""Decoded records on their way from the decoding workers to the state of their shard.

Counted, stripped of what a later record supersedes, and packed: one block per shard and batch.
"""

from streaming.packing.by_shard import pack_by_shard

__all__ = ["pack_by_shard"]
