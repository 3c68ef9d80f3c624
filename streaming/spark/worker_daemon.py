"""What Spark starts its Python workers from: a process that has imported all that they need.

Workers are forked from it. Each starts at once, and shares with the others the memory that imports have
taken: left out of garbage collection, its pages are never written to, and so never copied.
"""

import gc

from pyspark.daemon import manager

from streaming.spark import processor, shard_replay, udfs

LOADED = (processor, shard_replay, udfs)

if __name__ == "__main__":
    gc.freeze()
    manager()
