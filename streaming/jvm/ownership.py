"""Refuses files that run as the job if others own or may write them: they could run code as the job.

This user and root are trusted. For the folders above, two things matter: whether others own them, and whether
everybody may rename files in them.
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
    """A file that would run as this process belongs to another user, or others may write it."""

    @classmethod
    def owned(cls, path: Path, what: str, found: os.stat_result, instead: str) -> "ForeignFileError":
        return cls(
            f"{what}: expected that {path} belongs to {_name_of(os.geteuid())} or root, found that it "
            f"belongs to {_name_of(found.st_uid)}, who could run code as this process. {instead}, or remove "
            "it; if you trust its content, change its owner (chown)."
        )

    @classmethod
    def writable(cls, path: Path, what: str, found: os.stat_result, instead: str) -> "ForeignFileError":
        return cls(
            f"{what}: expected that only its owner may write {path}, found mode "
            f"{stat.S_IMODE(found.st_mode):04o} (owner {_name_of(found.st_uid)}): others could run code as "
            f"this process. {instead}; if you trust its content, remove write access of others (chmod go-w)."
        )


_ANOTHER: Final = "Name a folder of your own in OFFSETLAKE_JARS"


def refuse_foreign(paths: Iterable[Path], what: str) -> None:
    """Raise `ForeignFileError` for the first path that a user other than this one or root owns, or others may
    write. Missing paths are skipped; links are followed. The error begins with `what`.
    """
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
    """Raise `ForeignFileError` if a user other than this one or root owns a folder above this one, or
    everybody may write it, and so replace its content. The error begins with `what`; `instead` is the advice.

    Exempt are folders where only owners may rename (such as /tmp), and mount points: a volume in a container
    belongs to root, and everybody may write it.
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
