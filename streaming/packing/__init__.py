"""Transfers decoded records from the decoding workers to the state of their shard.

Records are counted, those that a later one supersedes are dropped, and the rest is packed: one packed block
per shard and Arrow batch. Start at `by_shard`; `unpacking` reads the blocks.
"""

from streaming.packing.by_shard import pack_by_shard

__all__ = ["pack_by_shard"]
