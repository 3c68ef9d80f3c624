"""Commits to the tables, beside those of maintenance and of other programs; and the progress that they say.

Every commit of the job to `changes` says in its metadata how far the job has come. An application transaction
says which batch it was, so that a batch that Spark runs again is recognized.
"""

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.fs import DeltaStorageHandler

from streaming.common.retries import ATTEMPTS, retried
from streaming.model.errors import OffsetlakeError
from streaming.model.progress import Progress
from streaming.tables.files import commit_files

PROGRESS_KEY: Final = "offsetlake.progress"
"""The metadata of a commit to `changes` under which it says the progress."""

T = TypeVar("T")


class ProgressMissingError(OffsetlakeError):
    """Other programs have committed to `changes` so often that the job's last word is gone."""


def committed(commit: Callable[[], T], attempts: int = ATTEMPTS) -> T:
    """Commit; again when a commit of maintenance came first and removed what this one builds on.

    Delta lets only one of the two stand. `commit` opens its table each time it is called, and repeats nothing
    that is done.
    """
    return retried(CommitFailedError, commit, attempts)


def has_transaction(table: DeltaTable, application: str, version: int) -> bool:
    """Tell whether a table has an application's transaction of this version or a later one.

    delta-rs records application transactions but does not enforce them, so a writer asks first.
    """
    newest = table.transaction_version(application)
    return newest is not None and newest >= version


def has_all(table: DeltaTable, commit: CommitProperties) -> bool:
    """Tell whether a table has all transactions of a commit, if that has any."""
    transactions = commit.app_transactions or []
    is_done = [has_transaction(table, done.app_id, done.version) for done in transactions]
    return bool(transactions) and all(is_done)


# --- progress --------------------------------------------------------------------------------------------


def progress_of(changes: DeltaTable, storage: DeltaStorageHandler) -> Progress:
    """Return what the newest commit up to the version that was opened says; without any a fresh `Progress`.

    Every commit of the job says it; commits of other programs, an ALTER for instance, are passed over.
    (`DeltaTable.history` would tell of later versions too.) Raises `ProgressMissingError`.
    """
    for version in range(changes.version(), -1, -1):
        document = _commit_info(storage, version).get(PROGRESS_KEY)
        if document is not None:
            return Progress.from_json(document)
    return Progress()


def restate_progress(changes: DeltaTable, storage: DeltaStorageHandler) -> None:
    """Commit the progress again if the newest commit does not say it, so that older ones may go.

    The commit goes directly on top of the version that was opened, else `CommitFailedError` is raised.
    """
    progress = progress_of(changes, storage)
    if progress == Progress() or PROGRESS_KEY in _commit_info(storage, changes.version()):
        return
    commit = CommitProperties(custom_metadata={PROGRESS_KEY: progress.to_json()}, max_commit_retries=0)
    commit_files(changes, [], [], commit)


def _commit_info(storage: DeltaStorageHandler, version: int) -> dict[str, Any]:
    """Read what a commit says about itself."""
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
