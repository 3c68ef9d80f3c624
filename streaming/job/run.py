"""Runs the job: checks prerequisites, starts Spark, follows the topic, and stops cleanly."""

import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from streaming.brokers.broker import Broker
from streaming.brokers.client_settings import java_needs
from streaming.brokers.facts import TopicFacts
from streaming.common.container_limits import limit_cores_of_arrow, memory_limit
from streaming.common.freed_memory import return_freed_memory_at_once
from streaming.job.failures import JobFailedError, as_failure
from streaming.job.follow import follow
from streaming.job.reading import TopicReader
from streaming.job.rebuild import rebuild_as_asked
from streaming.job.reporter import BatchReport, Reporter
from streaming.job.sole_job import sole_job, temporary_folders
from streaming.job.sole_writer import sole_writer
from streaming.jvm.class_archive import archive_options, archiving_options
from streaming.jvm.jars import JarSet, RetrievalStoppedError, ensure_jars
from streaming.jvm.java import find_java, require_account
from streaming.model.progress import Progress
from streaming.settings.contradictions import refuse_contradictions_of_job
from streaming.settings.created_files import created_files
from streaming.settings.kinds import shown_size
from streaming.settings.memory import USUAL_BYTES, fitted
from streaming.settings.model import Settings
from streaming.settings.storage import export_secrets
from streaming.spark.java_errors import end_of_jvm
from streaming.spark.s3_checkpoint import is_on_s3, refuse_unusable
from streaming.spark.session import (
    GENERATED,
    end_jvm,
    python_of_workers,
    start_session,
    wait_for_end_of_jvm,
)
from streaming.spark.warm_up import start_warm_up
from streaming.tables.tables import Tables

_log = logging.getLogger(__name__)

_BATCHES_OF_ARCHIVE: Final = 2
_JVM_LIMIT_S: Final = 30.0  # for its end; usually less than 1
_ARCHIVE_LIMIT_S: Final = 120.0  # for the batches, and again for the archive; usually 15 and 10


def run_job(settings: Settings, listener: Reporter, stop: threading.Event, *, once: bool) -> None:
    """Run until `stop` is set (with `once`: until the current end is reached), then stop after the current
    batch.

    With `once` the topic must exist within `connect_timeout`, else the job waits for it. A process runs one
    job: Spark's JVM ends with it. Raises `OffsetlakeError` for everything that a user can act on.
    """
    _with_reader(settings, listener, stop, partial(follow, once=once), ends=once)


def rebuild_tables(settings: Settings, listener: Reporter, stop: threading.Event) -> None:
    """Re-read the topic from the beginning, reconcile the tables, and return.

    Raises `OffsetlakeError` as `run_job` does with `once`.
    """
    _with_reader(settings, listener, stop, rebuild_as_asked, ends=True)


def archive_classes(settings: Settings, archive: Path) -> None:
    """Run a few batches, and make the JVM write the classes that it has loaded.

    Raises `OffsetlakeError` if no archive was written.
    """
    stop, seen = threading.Event(), itertools.count(1)
    limit = threading.Timer(_ARCHIVE_LIMIT_S, stop.set)
    limit.daemon = True
    limit.start()
    options = {"spark.driver.extraJavaOptions": " ".join(archiving_options(archive))}
    conf = {**settings.spark.conf, **GENERATED, **options}  # so that classes for code generation are loaded
    settings = replace(settings, spark=replace(settings.spark, conf=conf))

    def count(_: BatchReport) -> None:
        if next(seen) >= _BATCHES_OF_ARCHIVE:
            stop.set()

    reporter, act = Reporter(count, lambda _: None), partial(follow, once=False)
    _with_reader(settings, reporter, stop, act, ends=False, jvm_limit_s=_ARCHIVE_LIMIT_S)
    limit.cancel()
    if not archive.is_file():
        raise JobFailedError(f"archiving classes: expected the JVM to write {archive}, found no such file")


def _with_reader(
    settings: Settings,
    listener: Reporter,
    stop: threading.Event,
    act: Callable[[TopicReader], object],
    *,
    ends: bool,
    jvm_limit_s: float = _JVM_LIMIT_S,
) -> None:
    refuse_contradictions_of_job(settings)
    limit_cores_of_arrow()
    settings = _fitted_here(settings)
    return_freed_memory_at_once()
    find_java()  # the jars may exist without it
    require_account()
    tables = Tables(settings.tables.root, settings.tables.storage_options)
    progress = tables.at_first().progress_if_any()  # before any waiting
    needs = java_needs(settings.source)
    of_checkpoint: tuple[JarSet, ...] = ("s3a",) if is_on_s3(settings.job.checkpoint) else ()
    with listener.waiting("retrieving the jars of Spark's Kafka connector"):
        try:
            jars, *more_jars = (
                ensure_jars(one, stop=stop) for one in ("connector", *of_checkpoint, *needs.jar_sets)
            )
        except RetrievalStoppedError:
            return
    broker = Broker(settings.source)
    limit_ms = settings.source.connect_timeout_ms if ends else None
    known = None if ends else _facts_in(progress)  # then reading waits, with heartbeats and alerts
    facts = broker.wait_for_topic(stop.is_set, waiting=listener.waiting, limit_ms=limit_ms, known=known)
    if facts is None or stop.is_set():
        return
    with (
        _explained(settings),
        created_files(settings.job.readable_by_group),
        sole_job(settings) as is_locked,
        temporary_folders(settings, os.environ) as options,
        sole_writer(settings, stop, waiting=listener.waiting, is_locked=is_locked) as name,
    ):
        if stop.is_set():  # while it was found out whether another job is at work
            return
        export_secrets(settings.tables.storage_options, os.environ)
        with listener.waiting("starting Spark"):
            options += archive_options(jars)
            spark = start_session(
                settings.spark,
                settings.job,
                jars,
                more_jars=more_jars,
                properties=needs.properties,
                java_options=options,
            )
        # errors are explained while there is a JVM to ask about them
        with _ended_jvm(listener, jvm_limit_s), _explained(settings):
            if is_on_s3(settings.job.checkpoint):
                with listener.waiting(f"looking at the checkpoint {settings.job.checkpoint}"):
                    refuse_unusable(spark, settings.job.checkpoint)
            if not stop.is_set():
                if settings.spark.is_local:  # elsewhere executors may still be starting
                    start_warm_up(spark)
                act(TopicReader(spark, settings, broker, facts, listener, stop, name, end_jvm))


@contextmanager
def _ended_jvm(listener: Reporter, limit_s: float) -> Iterator[None]:
    """After the block, the JVM has ended."""
    try:
        yield
    finally:
        with listener.waiting("stopping Spark"):
            end_jvm()
            wait_for_end_of_jvm(limit_s)


def _facts_in(progress: Progress) -> TopicFacts | None:
    """Return the facts of the topic that the tables were filled from; None: they are empty."""
    if not progress.partitions:
        return None
    return TopicFacts(progress.cluster_id, len(progress.partitions), progress.topic_id)


def _fitted_here(settings: Settings) -> Settings:
    """Return the settings with the memory of the job, which a limit of this container may lower."""
    fitting = fitted(settings, memory_limit())
    if settings.job.memory_bytes is None and fitting.job.memory_bytes != USUAL_BYTES:
        size = shown_size(fitting.job.memory_bytes or USUAL_BYTES)
        _log.info("memory of the job: %s, because of the limit of this container (job.memory)", size)
    return fitting


class _ExplainedError(JobFailedError):
    """A failure whose sentence is complete."""


@contextmanager
def _explained(settings: Settings) -> Iterator[None]:
    """Convert exceptions of Spark, the tables and the file system to one sentence, with a pointer to the
    log."""
    log = hint = f"Spark's own log is {Path(settings.spark.log_file).absolute()}."
    if not settings.spark.is_local:
        hint += (
            f" Executors need offsetlake installed where {python_of_workers(settings.spark, os.environ)} "
            "finds it, and must reach the checkpoint (docs/scaling.md)."
        )
    try:
        yield
    except _ExplainedError:
        raise
    except (JobFailedError, Py4JError, PySparkException, DeltaError, OSError) as error:
        if ended := end_of_jvm(error):
            raise _ExplainedError(f"running the job failed: {ended} {log}") from error
        raise _ExplainedError(f"{as_failure('running the job', error)} {hint}") from error
