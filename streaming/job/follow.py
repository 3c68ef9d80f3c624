"""Follows the topic into the tables: one reading after the other, and a rebuild when reading on is not
enough."""

from collections.abc import Callable

from streaming.brokers.facts import BrokerError
from streaming.job.failures import JobFailedError
from streaming.job.maintenance_thread import Maintainer
from streaming.job.reading import Beside, TopicReader
from streaming.job.rebuild import announce, delete_leftovers, rebuild
from streaming.job.start_checks import check_checkpoint, check_source, reason_if_older
from streaming.job.topic.reasons import RebuildNeededError, TopicNow, reason_to_rebuild
from streaming.model.progress import Progress

_LastWork = Callable[[], object]
"""The work after the last reading, without Spark."""


def follow(reader: TopicReader, *, once: bool) -> None:
    """Follow the topic until stopped (with `once`: until its current end), rebuilding as needed.

    Spark ends before the last work on the tables, which needs memory of its own.
    """
    _check_at_start(reader)
    last_work: _LastWork | None = None
    while last_work is None:
        try:
            last_work = _read_or_rebuild(reader, once=once)
        except RebuildNeededError as needed:  # at once: a stop, or silent brokers, must not lose the reason
            announce(reader, str(needed))
    reader.end_spark()
    last_work()


def _read_or_rebuild(reader: TopicReader, *, once: bool) -> _LastWork | None:
    """Do one reading, or a rebuild if that is needed first; return the work after it (None: read again)."""
    topic = reader.topic_now(once=once)
    if topic is None:
        return _nothing
    progress = reader.tables.progress_if_any()
    check_source(progress, reader.settings, topic)
    if reason := reason_to_rebuild(progress, topic):
        return None if rebuild(reader, reason) else _nothing
    try:
        return _read_on(reader, progress, topic, once=once)
    except (JobFailedError, BrokerError) as failure:
        reader.interruptions.raise_unless_explained(failure, reader.tables)
        return None


def _nothing() -> None:
    pass


def _check_at_start(reader: TopicReader) -> None:
    progress = reader.tables.progress_if_any()
    check_source(progress, reader.settings, reader.facts)
    if progress.rebuild is None:
        check_checkpoint(progress, reader.checkpoint(progress.generation), reader.settings)
        delete_leftovers(reader, progress)


def _read_on(reader: TopicReader, progress: Progress, topic: TopicNow, *, once: bool) -> _LastWork:
    """Read from the position of the tables, until stopped or (`once`) to the end; return the work after
    that."""
    tables = reader.tables
    checkpoint = reader.checkpoint(progress.generation)
    check_checkpoint(progress, checkpoint, reader.settings)
    if reason := reason_if_older(progress, checkpoint):
        raise RebuildNeededError(reason)
    watch = reader.alert_watch(tables)
    samplers = reader.log_end_samplers(tables)
    beside: Beside = [Maintainer(tables, reader.settings), watch, *samplers]
    writer = reader.read(
        tables,
        progress,
        topic,
        once=once,
        beside=beside,
        alerts_evaluated_at=watch.evaluated_at,
    )
    if not reader.settings.spark.is_local:
        writer.fold()  # executors fold many changes

    def last_work() -> None:
        writer.fold()
        if once:  # the last records are not evaluated yet
            for sampler in samplers:
                sampler.sample()
            watch.evaluate_and_deliver()

    return last_work
