"""Refuses what runs as the job when others own it, or may write it: they would run code as the job.

Trusted are this user and root. Of a folder that lies above, only this matters: whether others own it, or
everybody may rename what is in it.
"""

import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from streaming.model.errors import OffsetlakeError

_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


class ForeignFileError(OffsetlakeError):
    """What would run as this process belongs to another user, or others may write it."""

    @classmethod
    def owned(cls, path: Path, what: str, found: os.stat_result, instead: str) -> "ForeignFileError":
        """Say whose it is, and what to do."""
        return cls(
            f"{what}: expected that {path} belongs to {_name_of(os.geteuid())} or root, found that it "
            f"belongs to {_name_of(found.st_uid)}, who could run code as this process. {instead}, or remove "
            "it; if you trust its content, change its owner (chown)."
        )

    @classmethod
    def writable(cls, path: Path, what: str, found: os.stat_result, instead: str) -> "ForeignFileError":
        """Say who may write it, and what to do."""
        return cls(
            f"{what}: expected that only its owner may write {path}, found mode "
            f"{stat.S_IMODE(found.st_mode):04o} (owner {_name_of(found.st_uid)}): others could run code as "
            f"this process. {instead}; if you trust its content, remove write access of others (chmod go-w)."
        )


_ANOTHER: Final = "Name a folder of your own in OFFSETLAKE_JARS"


def refuse_foreign(paths: Iterable[Path], what: str) -> None:
    """Raise `ForeignFileError` for the first of these that another user than this one or root owns, or others
    may write; what is not there is passed over. Links are followed. `what` begins the error."""
    for path in paths:
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        if found.st_uid not in (os.geteuid(), 0):
            raise ForeignFileError.owned(path, what, found, _ANOTHER)
        if found.st_mode & _BY_OTHERS:
            raise ForeignFileError.writable(path, what, found, _ANOTHER)


def refuse_replaceable(folder: Path, what: str, *, instead: str = _ANOTHER) -> None:
    """Raise `ForeignFileError` if another user than this one or root owns a folder above this one, or
    everybody may write it, and so replace what is in it. `what` begins the error, `instead` says what to do.

    Not where only owners may rename (as in /tmp), nor where a volume is mounted: that of a container belongs
    to root, and everybody may write it.
    """
    for above in folder.parents:
        found = above.stat()
        if above.is_mount():
            continue
        if found.st_uid not in (os.geteuid(), 0):
            raise ForeignFileError.owned(above, what, found, instead)
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            raise ForeignFileError.writable(above, what, found, instead)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
