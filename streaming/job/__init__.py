"""The process that follows the topic: reads it, writes batches, and rebuilds the tables when necessary.

`run` starts and ends it, `follow` is the loop, `reading` one iteration, `writer` writes batches. Only one
process writes at a time.
"""

from typing import TYPE_CHECKING

from streaming.common.lazily import lazily

if TYPE_CHECKING:
    from streaming.job.run import rebuild_tables, run_job

__all__ = ["rebuild_tables", "run_job"]

__getattr__ = lazily({"rebuild_tables": "streaming.job.run", "run_job": "streaming.job.run"})
