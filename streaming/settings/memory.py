"""Divides the memory of the job (`[job] memory`) between its processes.

Python (the driver and the workers), and what the JVM needs beside its heap, take at least `_FIXED_BYTES`.
The rest is for records: most of it is the heap, where they wait, and batches are as large as it allows.
"""

from dataclasses import dataclass, replace
from typing import Final

from streaming.model.errors import MisuseError
from streaming.settings.kinds import GIB, MIB, shown_size
from streaming.settings.model import LEAST_MEMORY_BYTES, Settings

USUAL_BYTES: Final = 4 * GIB
"""The memory of the job if it is not set, and no limit of a container is lower."""

OF_OTHERS_BYTES: Final = 256 * MIB
"""What is left of a container's limit: for probes (`offsetlake status` takes 0.2 GiB), and for the kernel."""

_FIXED_BYTES: Final = 1_536 * MIB
_OF_STATE_BYTES: Final = 256 * MIB  # of a million offsets, in the workers, while a batch changes it
_MOST_RECORDS: Final = 3_000_000
_MOST_RECORDS_AT_ONCE: Final = 50_000


@dataclass(frozen=True, kw_only=True)
class Division:
    """The division of the job's memory: sizes in the JVM, the most records of a batch, and of what a worker
    decodes at a time."""

    heap_bytes: int
    off_heap_bytes: int
    records_per_batch: int
    records_at_once: int


def divided(memory_bytes: int) -> Division:
    """Divide the memory of the whole job, at least `LEAST_MEMORY_BYTES`.

    >>> divided(4 * GIB) == Division(
    ...     heap_bytes=2 * GIB,
    ...     off_heap_bytes=512 * MIB,
    ...     records_per_batch=3_000_000,
    ...     records_at_once=50_000,
    ... )
    True
    """
    rest = memory_bytes - _FIXED_BYTES

    def share_of(usual: int) -> int:
        used = _FIXED_BYTES + _OF_STATE_BYTES
        return min(usual * (memory_bytes - used) // (USUAL_BYTES - used), usual)

    return Division(
        heap_bytes=rest * 4 // 5 // MIB * MIB,
        off_heap_bytes=rest // 5 // MIB * MIB,
        records_per_batch=share_of(_MOST_RECORDS),
        records_at_once=min(share_of(2 * _MOST_RECORDS_AT_ONCE), _MOST_RECORDS_AT_ONCE),
    )


def division_of(settings: Settings) -> Division:
    return divided(settings.job.memory_bytes or USUAL_BYTES)


def fitted(settings: Settings, limit_bytes: int | None) -> Settings:
    """Return the settings with the memory of the job set, for a container with this limit (None: none).

    Raises `MisuseError` if the memory is too small, or is more than the limit.
    """
    memory = settings.job.memory_bytes
    if memory is None:
        memory = min(USUAL_BYTES, USUAL_BYTES if limit_bytes is None else limit_bytes - OF_OTHERS_BYTES)
        if memory < LEAST_MEMORY_BYTES:
            raise MisuseError(
                f"job.memory: expected at least {shown_size(LEAST_MEMORY_BYTES)}, found a limit of "
                f"{_mib(limit_bytes or 0)} for all processes of this container (cgroup). Set a limit of at "
                f"least {_mib(LEAST_MEMORY_BYTES + OF_OTHERS_BYTES)}: {_mib(OF_OTHERS_BYTES)} are left for "
                "others, such as probes."
            )
    if limit_bytes is not None and memory > limit_bytes:
        raise MisuseError(
            f"conflicting settings: job.memory is {shown_size(memory)}, but all processes of this container "
            f"(cgroup) are limited to {_mib(limit_bytes)}: the job would be killed. Set a higher limit, or "
            'a lower job.memory, or "auto".'
        )
    return replace(settings, job=replace(settings.job, memory_bytes=memory))


def _mib(size: int) -> str:
    return f"{size // MIB:,} MiB"
