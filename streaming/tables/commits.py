"""Commits to the tables beside those of maintenance and of other programs, and the progress in their
metadata.

The metadata of every commit of the job to `changes` contains the job's progress. An application transaction
identifies the batch, so that a batch that Spark runs again is recognized.
"""

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.fs import DeltaStorageHandler

from streaming.common.retries import ATTEMPTS, retried
from streaming.model.errors import OffsetlakeError
from streaming.model.progress import Progress
from streaming.tables.files import commit_files

PROGRESS_KEY: Final = "offsetlake.progress"
"""The metadata key of a commit to `changes` that holds the progress."""

WORK_TRANSACTION: Final = "offsetlake.work"
"""The application id under which `changes` keeps when a job has last signed that it is at work (ms)."""

T = TypeVar("T")


class ProgressMissingError(OffsetlakeError):
    """Other programs committed to `changes` so often that the log no longer holds a commit of the job."""


def committed(commit: Callable[[], T], attempts: int = ATTEMPTS) -> T:
    """Commit; retry when maintenance has committed first and removed files that this commit builds on.

    Delta accepts only one of the two. `commit` opens its table at each call and does not repeat finished
    work.
    """
    return retried(CommitFailedError, commit, attempts)


def has_transaction(table: DeltaTable, application: str, version: int) -> bool:
    """Whether a table has an application's transaction of this version or a later one.

    delta-rs records application transactions but does not enforce them, so a writer checks first.
    """
    newest = table.transaction_version(application)
    return newest is not None and newest >= version


def has_all(table: DeltaTable, commit: CommitProperties) -> bool:
    """Whether a table has all transactions of a commit; false for a commit without transactions."""
    transactions = commit.app_transactions or []
    is_done = [has_transaction(table, done.app_id, done.version) for done in transactions]
    return bool(transactions) and all(is_done)


# --- progress --------------------------------------------------------------------------------------------


def progress_of(changes: DeltaTable, storage: DeltaStorageHandler) -> Progress:
    """Return the progress in the newest commit up to the opened version; a fresh `Progress` if no commit has
    one.

    Commits of other programs, such as ALTER TABLE, are skipped. (`DeltaTable.history` would include versions
    after the opened one.) Raises `ProgressMissingError`.
    """
    for version in range(changes.version(), -1, -1):
        document = _commit_info(storage, version).get(PROGRESS_KEY)
        if document is not None:
            return Progress.from_json(document)
    return Progress()


def restate_progress(changes: DeltaTable, storage: DeltaStorageHandler) -> None:
    """Commit the progress again unless the newest commit contains it, so that older commits can be deleted.

    Commits directly on top of the opened version, or raises `CommitFailedError`.
    """
    progress = progress_of(changes, storage)
    if progress == Progress() or PROGRESS_KEY in _commit_info(storage, changes.version()):
        return
    _restate(changes, progress)


def sign_work(changes: DeltaTable, storage: DeltaStorageHandler, now: int) -> None:
    """Commit that a job was at work at `now` (ms), and the progress again, as `restate_progress` does."""
    _restate(changes, progress_of(changes, storage), Transaction(WORK_TRANSACTION, now))


def _restate(changes: DeltaTable, progress: Progress, *transactions: Transaction) -> None:
    commit = CommitProperties(
        custom_metadata={PROGRESS_KEY: progress.to_json()},
        app_transactions=list(transactions),
        max_commit_retries=0,
    )
    commit_files(changes, [], [], commit)


def _commit_info(storage: DeltaStorageHandler, version: int) -> dict[str, Any]:
    try:
        with storage.open_input_file(f"_delta_log/{version:020}.json") as commit:
            actions = [json.loads(line) for line in commit.read().splitlines()]
    except FileNotFoundError as error:
        raise ProgressMissingError(
            f"reading the job's progress: expected it in one of the newest commits to `changes`, found none "
            f"back to version {version}, where the log has been cleaned up. "
            "Restore the table to a version that a job wrote."
        ) from error
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
