"""Follows the topic into the tables: one reading after the other, and a rebuild when reading on is not
enough."""

from streaming.brokers.facts import BrokerError
from streaming.job.failures import JobFailedError
from streaming.job.maintenance_thread import Maintainer
from streaming.job.reading import Beside, TopicReader
from streaming.job.rebuild import announce, delete_leftovers, rebuild
from streaming.job.start_checks import check_checkpoint, check_source, reason_if_older
from streaming.job.topic.reasons import RebuildNeededError, TopicNow, reason_to_rebuild
from streaming.model.progress import Progress


def follow(reader: TopicReader, *, once: bool) -> None:
    """Follow the topic until stopped (with `once`: until its current end), rebuilding as needed."""
    _check_at_start(reader)
    goes_on = True
    while goes_on:
        try:
            goes_on = _read_or_rebuild(reader, once=once)
        except RebuildNeededError as needed:  # at once: a stop, or silent brokers, must not lose the reason
            announce(reader, str(needed))


def _read_or_rebuild(reader: TopicReader, *, once: bool) -> bool:
    """Do one reading, or a rebuild if that is needed first; return whether there is more to do."""
    topic = reader.topic_now(once=once)
    if topic is None:
        return False
    progress = reader.tables.progress_if_any()
    check_source(progress, reader.settings, topic)
    if reason := reason_to_rebuild(progress, topic):
        return rebuild(reader, reason)
    try:
        _read_on(reader, progress, topic, once=once)
    except (JobFailedError, BrokerError) as failure:
        reader.interruptions.raise_unless_explained(failure, reader.tables)
        return True
    return False


def _check_at_start(reader: TopicReader) -> None:
    progress = reader.tables.progress_if_any()
    check_source(progress, reader.settings, reader.facts)
    if progress.rebuild is None:
        check_checkpoint(progress, reader.checkpoint(progress.generation), reader.settings)
        delete_leftovers(reader, progress)


def _read_on(reader: TopicReader, progress: Progress, topic: TopicNow, *, once: bool) -> None:
    """Read from the position of the tables, until stopped or (`once`) to the end."""
    tables = reader.tables
    checkpoint = reader.checkpoint(progress.generation)
    check_checkpoint(progress, checkpoint, reader.settings)
    if reason := reason_if_older(progress, checkpoint):
        raise RebuildNeededError(reason)
    watch = reader.alert_watch(tables)
    samplers = reader.log_end_samplers(tables)
    beside: Beside = [Maintainer(tables, reader.settings), watch, *samplers]
    reader.read(
        tables,
        progress,
        topic,
        once=once,
        beside=beside,
        alerts_evaluated_at=watch.evaluated_at,
    )
    if once:  # the last records are not evaluated yet
        for sampler in samplers:
            sampler.sample()
        watch.evaluate_and_deliver()
