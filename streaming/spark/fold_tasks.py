"""On a cluster, tasks fold large numbers of changes: they write the files, and the driver commits them."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException

from streaming.settings.storage import by_reference, resolved_options
from streaming.spark.java_errors import error_line
from streaming.spark.worker_memory import prepare_worker, return_after
from streaming.tables.folding import BucketsToFold, FoldedBuckets, FoldElsewhere

_log = logging.getLogger(__name__)

MANY_ROWS: Final = 50_000
"""Fewer rows are folded by the driver."""

_ROWS_OF_A_TASK: Final = 1_000_000
_MOST_TASKS: Final = 4
"""Each task reads all changes, and folds those of its buckets."""

_LIMIT_S: Final = 120.0
"""The executors may be gone, or busy with a batch for long: then the driver folds."""

TAG: Final = "offsetlake-fold-"
"""The tag of the Spark job of a fold, before the name of the table."""

FoldsFor = Callable[[int], FoldElsewhere | None]
"""Returns how to fold so many rows (None: in the driver)."""


def folds_by_tasks(context: SparkContext, storage_options: Mapping[str, str]) -> FoldsFor:
    """Return a function for folds by tasks of the cluster, of many rows.

    If tasks fail for good, or do not end in time, the driver folds.
    """

    def fold(tasks: int, wanted: BucketsToFold) -> Sequence[FoldedBuckets]:
        parts = context.parallelize(wanted.divided(tasks), tasks)
        try:
            with _tagged(context, f"{TAG}{wanted.name}"):
                return parts.map(partial(_folded, by_reference(storage_options))).collect()
        except (Py4JError, PySparkException) as error:
            _log.warning("folding %s in tasks: %s The driver folds instead.", wanted.name, error_line(error))
            return [wanted.folded(storage_options)]

    def folds_for(rows: int) -> FoldElsewhere | None:
        tasks = min(_MOST_TASKS, 1 + rows // _ROWS_OF_A_TASK)
        return partial(fold, tasks) if rows >= MANY_ROWS else None

    return folds_for


@contextmanager
def _tagged(context: SparkContext, tag: str) -> Iterator[None]:
    """Tag the Spark jobs of this thread, and cancel them after `_LIMIT_S`."""
    limit = threading.Timer(_LIMIT_S, context.cancelJobsWithTag, (tag,))
    limit.daemon = True
    context.addJobTag(tag)
    limit.start()
    try:
        yield
    finally:
        limit.cancel()
        context.removeJobTag(tag)


def _folded(options: Mapping[str, str], wanted: BucketsToFold) -> FoldedBuckets:
    prepare_worker()
    folded = wanted.folded(resolved_options(options))
    return_after(folded.keys)
    return folded
