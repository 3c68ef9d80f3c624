"""Keeps the tables small and quick: compaction, retention of history, files that are no longer needed.

`maintain` is one round, under a lease; it may run beside the job.
"""

from streaming.maintenance.maintenance import maintain

__all__ = ["maintain"]
