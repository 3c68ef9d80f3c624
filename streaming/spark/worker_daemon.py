"""The process from which Spark forks its Python workers; it has imported all that they need.

So workers start at once, and share the memory of the imports. The objects are excluded from garbage
collection: their pages are never written to, and so never copied.
"""

import gc

from pyspark.daemon import manager

from streaming.spark import processor, shard_replay, udfs

LOADED = (processor, shard_replay, udfs)

if __name__ == "__main__":
    gc.freeze()
    manager()
