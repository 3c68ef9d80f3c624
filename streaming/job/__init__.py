"""The process that follows the topic: reads, writes batches, rebuilds where reading on is not enough.

`run` starts and ends it, `follow` is the loop, `reading` one turn of it, `writer` what becomes of a batch.
One process writes at a time.
"""

from typing import TYPE_CHECKING

from streaming.common.lazily import lazily

if TYPE_CHECKING:
    from streaming.job.run import rebuild_tables, run_job

__all__ = ["rebuild_tables", "run_job"]

__getattr__ = lazily({"rebuild_tables": "streaming.job.run", "run_job": "streaming.job.run"})
