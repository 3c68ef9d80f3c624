"""File handles: as many as connections may need, or fewer connections; some are kept for the tables."""

import resource
from typing import Final

KEPT: Final = 512
"""Handles that connections leave: for tables and logs, and for connections that are taken only to be closed,
of which each listener may have a few hundred for a moment."""


def ensure(wanted: int) -> int:
    """Return how many connections there may be, of so many that are wanted: the limit of open files is raised
    for them, if this process may do that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    needed = wanted + KEPT
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else max(soft, min(needed, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections_within(soft, wanted)


def connections_within(handles: int, wanted: int) -> int:
    """Return how many connections there may be of those wanted, with so many handles: a quarter at least."""
    return min(wanted, max(handles - KEPT, handles // 4))
