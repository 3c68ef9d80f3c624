"""Reads the commits after a known one from the log of a table.

Opening a table reads its last checkpoint and all commits since, mostly for nothing when done every second.
This reader opens one small file and finds that the next one does not exist. Each commit lists the files with
new rows, which separates appends of the job from rewrites by maintenance.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler

from streaming.model.errors import OffsetlakeError
from streaming.model.progress import Progress
from streaming.tables.commits import PROGRESS_KEY
from streaming.tables.fences import MAINTAINER, WRITER
from streaming.tables.tables import Tables

_ABOUT_TABLE: Final = {"metaData", "protocol"}


class LogLostError(OffsetlakeError):
    """The log does not continue from the known commit: it was cleaned up, or belongs to another table."""


@dataclass(frozen=True)
class LogPosition:
    """A commit of a table, with the text of its file in the log, which differs from that of another table."""

    version: int
    text: bytes


@dataclass(frozen=True, kw_only=True)
class Commit:
    """The actions of one commit.

    `added` are its new files, in order; `adds_rows`: their rows are new, not rewritten. `removes_rows`: rows
    were deleted, not rewritten. `alters_table`: the columns, protocol or properties changed, except the names
    in its fences. `progress` is
    the job's; None: not a commit of the job, or not to `changes`.
    """

    version: int
    progress: Progress | None
    operation: str
    added: Sequence[str]
    adds_rows: bool
    removes_rows: bool
    alters_table: bool


@dataclass(frozen=True)
class LogTail:
    """A followed table: its folder, and the last commit read."""

    storage: DeltaStorageHandler
    position: LogPosition

    @classmethod
    def of(cls, tables: Tables, table: DeltaTable) -> Self:
        """Follow a table from its opened version; raises `LogLostError`."""
        storage = tables.storage(table)
        return cls(storage, position_at(storage, table.version()))

    def commits(self) -> Iterator[tuple[Commit, "LogTail"]]:
        """Yield the commits since then, each with the tail after it; see `commits_after`."""
        for commit, position in commits_after(self.storage, self.position):
            yield commit, LogTail(self.storage, position)


def position_at(storage: DeltaStorageHandler, version: int) -> LogPosition:
    """Return the position of a commit; raises `LogLostError` if it is no longer in the log."""
    text = _read(storage, version)
    if text is None:
        raise LogLostError(
            f"following a table: expected commit {version} in its log, found none. It was cleaned up "
            "meanwhile, or the table was recreated."
        )
    return LogPosition(version, text)


def commits_after(storage: DeltaStorageHandler, known: LogPosition) -> Iterator[tuple[Commit, LogPosition]]:
    """Yield the commits after a known one, each with its position.

    Raises `LogLostError` if the known commit is gone or differs: later changes are then unknown.
    """
    if position_at(storage, known.version) != known:
        raise LogLostError(
            f"following a table: expected commit {known.version} as it was, found another one. The table "
            "was recreated or restored."
        )
    version = known.version + 1
    while (text := _read(storage, version)) is not None:
        yield _commit(version, text), LogPosition(version, text)
        version += 1


def _read(storage: DeltaStorageHandler, version: int) -> bytes | None:
    try:
        with storage.open_input_file(f"_delta_log/{version:020}.json") as file:
            return bytes(file.read())
    except FileNotFoundError:
        return None


def _commit(version: int, text: bytes) -> Commit:
    actions: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines() if line]
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    added = [action["add"] for action in actions if "add" in action]
    removed = [action["remove"] for action in actions if "remove" in action]
    document = info.get(PROGRESS_KEY)
    return Commit(
        version=version,
        progress=None if document is None else Progress.from_json(document),
        operation=info.get("operation", ""),
        added=[unquote(file["path"]) for file in added],
        adds_rows=any(file["dataChange"] for file in added),
        removes_rows=any(file["dataChange"] for file in removed),
        alters_table=any(_ABOUT_TABLE & action.keys() for action in actions) and not _only_names(info),
    )


def _only_names(info: dict[str, Any]) -> bool:
    """Whether a commit only names the writer or the maintainer of the table."""
    if info.get("operation") != "SET TBLPROPERTIES":
        return False
    properties: dict[str, Any] = json.loads(info["operationParameters"]["properties"])
    return properties.keys() <= {WRITER, MAINTAINER}
