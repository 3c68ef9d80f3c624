"""Who may read what a process of ours creates: its user, and where the settings say so that user's group."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def created_files(readable_by_group: str) -> Iterator[None]:
    """Have files and folders that this process creates until the end of the block, and processes that it
    starts meanwhile create ever after, be nobody else's to read; that group's if the setting is "on"."""
    before = os.umask(umask_of(readable_by_group))
    try:
        yield
    finally:
        os.umask(before)


def umask_of(readable_by_group: str) -> int:
    """Return what is taken from the mode of each file and folder.

    >>> oct(umask_of("on")), oct(umask_of("off"))
    ('0o27', '0o77')
    """
    return 0o027 if readable_by_group == "on" else 0o077
