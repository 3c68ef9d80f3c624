"""The shard of an offsets partition, and the key of the shard in Spark.

A shard holds neighbouring offsets partitions, about equally many in each. Its key is a number that Spark's
hash assigns to a task of its own: keys 0 to 3 would put three of four shards on one task.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Final

import numpy as np

from streaming.common.arrays import Index

_SEED: Final = 42  # of Spark's `HashPartitioning`
_BITS: Final = 0xFFFF_FFFF


@dataclass(frozen=True)
class Shards:
    """`state_partitions` shards, at most one per offsets partition, of a topic with `partition_count`."""

    partition_count: int
    state_partitions: int

    def keys_of(self, partitions: Index) -> Index:
        """Return the key of the shard of each of n offsets partitions.

        >>> Shards(partition_count=8, state_partitions=4).keys_of(np.arange(8)).tolist()
        [12, 12, 6, 6, 2, 2, 0, 0]
        """
        keys = np.array(shard_keys(self.state_partitions), np.int64)
        return keys[partitions * self.state_partitions // self.partition_count]


@lru_cache(maxsize=1)
def shard_keys(state_partitions: int) -> tuple[int, ...]:
    """Return for each of n tasks the lowest key that Spark assigns to it."""
    keys: dict[int, int] = {}
    numbers = count()
    while len(keys) < state_partitions:
        key = next(numbers)
        keys.setdefault(_signed(murmur3(key)) % state_partitions, key)
    return tuple(keys[task] for task in range(state_partitions))


def murmur3(number: int) -> int:
    """Hash a 32-bit number as Spark does (`Murmur3_x86_32.hashInt` with seed 42); the result is unsigned."""
    mixed = _rotated(number * 0xCC9E2D51, 15) * 0x1B873593 & _BITS
    hashed = _rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64 & _BITS
    hashed ^= 4  # bytes
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _BITS
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _BITS
    return hashed ^ hashed >> 16


def _rotated(number: int, by: int) -> int:
    number &= _BITS
    return (number << by | number >> 32 - by) & _BITS


def _signed(number: int) -> int:
    return number - (1 << 32) if number >> 31 else number
