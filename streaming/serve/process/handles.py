"""File handles: raises the limit for connections, or limits connections, and keeps some handles for the
tables."""

import resource
from typing import Final

KEPT: Final = 512
"""Handles kept free of connections: for tables and logs, and for connections that are accepted only to be
closed, of which each listener may briefly have a few hundred."""


def ensure(wanted: int) -> int:
    """Return how many of the wanted connections are possible, after raising the limit of open files as far as
    the process may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    needed = wanted + KEPT
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else max(soft, min(needed, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections_within(soft, wanted)


def connections_within(handles: int, wanted: int) -> int:
    """Return how many of the wanted connections fit into `handles`: at least a quarter of these."""
    return min(wanted, max(handles - KEPT, handles // 4))
