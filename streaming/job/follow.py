"""Follows the topic into the tables: one reading after the other, and a rebuild when reading on is not
enough."""

from streaming.brokers.facts import BrokerError
from streaming.job.failures import JobFailedError
from streaming.job.maintenance_thread import Maintainer
from streaming.job.reading import Beside, TopicReader
from streaming.job.rebuild import delete_leftovers, rebuild
from streaming.job.start_checks import check_checkpoint, check_source
from streaming.job.topic.reasons import RebuildNeededError, TopicNow, reason_to_rebuild
from streaming.model.progress import Progress


def follow(reader: TopicReader, *, once: bool) -> None:
    """Follow the topic until stopped (with `once`: until its current end), rebuilding as needed."""
    _check_at_start(reader)
    reason: str | None = None
    while (topic := reader.topic_now(once=once)) is not None:
        progress = reader.tables.progress_if_any()
        check_source(progress, reader.settings, topic)
        noted = None if progress.rebuild is None else progress.rebuild.reason
        reason = noted or reason or reason_to_rebuild(progress, topic)
        if reason is not None:
            if not rebuild(reader, reason):
                return
            reason = None
            continue
        try:
            reason = _read_on(reader, progress, topic, once=once)
        except RebuildNeededError as needed:
            reason = str(needed)
        except (JobFailedError, BrokerError) as failure:
            reader.interruptions.raise_unless_explained(failure, reader.tables)
            continue
        if reason is None:
            return


def _check_at_start(reader: TopicReader) -> None:
    progress = reader.tables.progress_if_any()
    check_source(progress, reader.settings, reader.facts)
    if progress.rebuild is None:
        check_checkpoint(progress, reader.checkpoint(progress.generation), reader.settings)
        delete_leftovers(reader, progress)


def _read_on(reader: TopicReader, progress: Progress, topic: TopicNow, *, once: bool) -> str | None:
    """Read from the position of the tables; return why that is not enough, or None at the end."""
    tables = reader.tables
    check_checkpoint(progress, reader.checkpoint(progress.generation), reader.settings)
    watch = reader.alert_watch(tables)
    samplers = reader.log_end_samplers(tables)
    beside: Beside = [Maintainer(tables, reader.settings), watch, *samplers]
    housekeeping = reader.read(
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
    return housekeeping.reason_to_rebuild
