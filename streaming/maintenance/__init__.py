"""Keeps the tables small and quick: compaction, deletion of old history, of unused files and of log entries.

`maintain` is one round, under a lease; it may run beside the job.
"""

from streaming.maintenance.maintenance import maintain

__all__ = ["maintain"]
