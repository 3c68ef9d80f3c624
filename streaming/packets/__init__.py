"""Decoded records on their way from the decoding workers to the state of their offsets partition.

Counted, stripped of what a later record supersedes, and packed: one packet per partition and batch.
"""

from streaming.packets.packing import pack_by_partition

__all__ = ["pack_by_partition"]
