"""Maintenance of the tables: compaction, and deletion of old history, unused files and log entries.

`maintain` runs one round under a lease; it may run beside the job.
"""

from streaming.maintenance.maintenance import maintain

__all__ = ["maintain"]
