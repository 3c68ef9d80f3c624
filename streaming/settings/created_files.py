"""Who may read the files that our processes create: the user, and by a setting the user's group."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def created_files(readable_by_group: str) -> Iterator[None]:
    """Until the end of the block, make files and folders that this process creates readable only for its
    user, and for the group if `readable_by_group` is "on". Processes started meanwhile keep that for their
    whole life.
    """
    before = os.umask(umask_of(readable_by_group))
    try:
        yield
    finally:
        os.umask(before)


def umask_of(readable_by_group: str) -> int:
    """Return the umask: the bits that no new file or folder has.

    >>> oct(umask_of("on")), oct(umask_of("off"))
    ('0o27', '0o77')
    """
    return 0o027 if readable_by_group == "on" else 0o077
