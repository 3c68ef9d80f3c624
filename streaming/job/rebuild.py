"""Rebuild: re-reads the topic into tables beside the live ones, then applies the differences to the live
tables.

Meanwhile the live tables do not change, and queries read them. At the end the differences are one commit to
them, which also switches to the checkpoint of the next generation. A rebuild interrupted before that commit
is resumed; after it, only leftovers remain to be deleted.
"""

import logging
from dataclasses import replace
from typing import Final

from streaming.brokers.facts import BrokerError
from streaming.common.retries import retried
from streaming.common.times import now_ms
from streaming.job.change_over import change_over
from streaming.job.failures import JobFailedError
from streaming.job.reading import Beside, TopicReader
from streaming.job.start_checks import check_source, is_pair
from streaming.job.topic.reasons import RebuildNeededError, TopicNow, reason_to_rebuild
from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.model.progress import Progress
from streaming.model.schemas import CHANGES
from streaming.spark.checkpoint import Checkpoint, DamagedCheckpointError
from streaming.state.stored import STATE_FORMAT
from streaming.tables.tables import Tables, TablesMissingError

_log = logging.getLogger(__name__)

ASKED_FOR: Final = "it was requested"
"""The reason of a rebuild requested by a user."""

_REBUILD_ATTEMPTS: Final = 5
"""Attempts of one rebuild: a topic that takes longer to read than its tombstones are retained can never be
read completely."""


def rebuild_as_asked(reader: TopicReader) -> None:
    progress = reader.tables.progress_if_any()
    check_source(progress, reader.settings, reader.facts)
    if progress.rebuild is None:
        delete_leftovers(reader, progress)
    rebuild(reader, ASKED_FOR if progress.rebuild is None else progress.rebuild.reason)


def rebuild(reader: TopicReader, reason: str) -> bool:
    """Re-read the topic from the beginning and reconcile the tables; False if stopped before the end."""
    live = reader.tables
    generation = live.progress_if_any().generation
    _refuse_foreign(reader, generation, generation + 1)
    progress = announce(reader, reason)
    _log.info(
        f"rebuilding, because {progress.rebuild.reason if progress.rebuild else reason}: re-reading topic "
        f"{reader.settings.source.topic} from the beginning. Until that is done, queries answer from the "
        "tables as they were before"
    )
    again: str | None = None
    for _ in range(_REBUILD_ATTEMPTS):
        again = _read_aside(reader, live, progress)
        if reader.stop.is_set():
            return False
        if again is None:
            delete_leftovers(reader, change_over(live, live.aside(), reader.topic_ids))
            _log.info("the rebuild is complete")
            return True
        _log.info("%s. The rebuild starts over.", again)
    raise JobFailedError(
        f"rebuilding: expected to read all of topic {reader.settings.source.topic} in one of "
        f"{_REBUILD_ATTEMPTS} attempts, found at the end of the last one that {again}. The tables are "
        "unchanged. If reading takes longer than tombstones are retained, increase delete.retention.ms of "
        "the topic; then restart."
    )


def delete_leftovers(reader: TopicReader, progress: Progress) -> None:
    """Delete the files of the last rebuild; at a start, if it was killed after its last commit."""
    if progress.generation > 0:
        _delete_aside(reader, progress.generation - 1)


def _delete_aside(reader: TopicReader, generation: int) -> None:
    """Delete the tables that a rebuild fills, and before them a checkpoint: perhaps only they know its query.

    Raises if the storage fails, if another job has replaced this one (its rebuild is there), or if the
    checkpoint is of other tables.
    """
    live = reader.tables
    live.delta("changes")
    _refuse_foreign(reader, generation)
    reader.checkpoint(generation).delete()
    live.aside().delete()


def _refuse_foreign(reader: TopicReader, *generations: int) -> None:
    """Raise `MisuseError` if one of these checkpoints is of other tables: a rebuild would delete it."""
    for generation in generations:
        checkpoint = reader.checkpoint(generation)
        query_id = _query_of(checkpoint)
        if query_id is None or (not checkpoint.has_batches() and _may_be_begun(reader.tables, generation)):
            continue
        if not (_is_written_by(query_id, reader.tables) or _is_aside_by(query_id, reader.tables)):
            raise MisuseError(
                f"rebuilding table root {reader.settings.tables.root}: expected no checkpoint of other "
                f"tables, found the one of query {query_id} at {checkpoint.path}, and would delete it. Give "
                "these tables another checkpoint (--checkpoint), also for `offsetlake run`; or delete that "
                "folder if its tables no longer exist."
            )


def _query_of(checkpoint: Checkpoint) -> str | None:
    """Return the query that can continue from a checkpoint, if any."""
    try:
        return checkpoint.query_id()
    except DamagedCheckpointError:
        return None


def _may_be_begun(live: Tables, generation: int) -> bool:
    """Whether these tables may have a checkpoint of this generation whose query they do not know, since it
    has completed no batch.

    Tables are created before their query, and have one query at a time. Of the generation before nothing says
    whether it has had a batch.
    """
    progress = live.progress_if_any()
    if generation < progress.generation:
        return True
    tables = live if generation == progress.generation else live.aside()
    try:
        return replace(tables, names={}).progress().query_id is None
    except TablesMissingError:
        return False
    except OffsetlakeError:  # partly deleted
        return True


def _is_written_by(query_id: str, tables: Tables) -> bool:
    """Whether a query has ever written a batch to tables: they remember each one, also after a rebuild."""
    try:
        return replace(tables, names={}).is_appended(query_id, 0)
    except TablesMissingError:
        return False


def _is_aside_by(query_id: str, live: Tables) -> bool:
    """Whether a query has written to the tables that a rebuild fills; true if these cannot be read twice,
    since they may be partly deleted."""
    try:
        return retried(OffsetlakeError, lambda: _is_written_by(query_id, live.aside()), attempts=2)
    except OffsetlakeError:
        return True


def announce(reader: TopicReader, reason: str) -> Progress:
    """Commit to the live tables that they are being rebuilt, unless they already contain that, and return
    their progress; a stop or kill from now on does not lose the reason."""
    reader.tables.create()
    progress = reader.tables.progress()
    if progress.rebuild is not None:
        return progress
    now = now_ms()
    announced = replace(_with_unknown_ends(progress).with_reason_to_rebuild(reason, now), heartbeat=now)
    reader.tables.append_changes(CHANGES.empty_table(), announced, is_batch=False, after=[progress])
    return announced


def _with_unknown_ends(progress: Progress) -> Progress:
    """Return the progress of tables that do not change: the ends of the topic are not requested for them."""
    unknown = {
        number: replace(
            partition,
            last_stable_offset=None,
            high_watermark=None,
            open_transaction_since=None,
            unanswered_since=None,
        )
        for number, partition in progress.partitions.items()
    }
    return replace(progress, partitions=unknown)


def _read_aside(reader: TopicReader, live: Tables, progress: Progress) -> str | None:
    """Read the topic into tables beside the live ones, continuing an interrupted rebuild.

    Returns why the result cannot be used; None if it can, or if stopped.
    """
    aside = live.aside()
    again: str | None = None
    try:
        while (topic := reader.topic_now()) is not None:
            check_source(progress, reader.settings, topic)
            try:
                _fill(reader, live, progress.generation, topic)
                again = _reason_not_to_change_over(reader, aside)
                break
            except (JobFailedError, BrokerError) as failure:
                reader.interruptions.raise_unless_explained(failure, aside)
    except RebuildNeededError as needed:
        again = str(needed)
    if again is not None:
        _delete_aside(reader, progress.generation + 1)
    return again


def _fill(reader: TopicReader, live: Tables, generation: int, topic: TopicNow) -> None:
    """Read the topic to its end into the tables aside, while the live ones, of this generation, only get
    heartbeats."""
    read_before = _taken_up(reader, live, generation + 1, topic)
    said = live.progress()
    frozen = reader.writer(live, _with_unknown_ends(said), reader.checkpoint(generation), said=said)
    watch = reader.alert_watch(live)  # no predictions meanwhile; `job_behind` and delivery go on
    beside: Beside = [watch, *reader.log_end_samplers(live)]
    writer = reader.read(
        live.aside(),
        read_before,
        topic,
        once=True,
        frozen=frozen,
        beside=beside,
        alerts_evaluated_at=watch.evaluated_at,
    )
    writer.fold()


def _taken_up(reader: TopicReader, live: Tables, generation: int, topic: TopicNow) -> Progress:
    """Return the progress of an interrupted rebuild.

    If there is none, or it is unusable, delete its remains and return a fresh progress.
    """
    checkpoint, found = reader.checkpoint(generation), _progress_if_readable(live.aside())
    is_ours = found.generation == generation and found.state_format == STATE_FORMAT
    if is_ours and _may_continue(found, checkpoint):
        reason = reason_to_rebuild(found, topic)
        if reason is None:
            return found
        _log.info("%s. The interrupted rebuild starts over.", reason)
    _delete_aside(reader, generation)
    return Progress(generation=generation)


def _may_continue(found: Progress, checkpoint: Checkpoint) -> bool:
    try:
        return is_pair(found, checkpoint)
    except DamagedCheckpointError:
        return False


def _progress_if_readable(tables: Tables) -> Progress:
    """Return the progress of tables that may be partly deleted; a fresh one if they contain none.

    The progress may be of another writer: a job that continues its rebuild becomes the writer later. Partly
    deleted tables raise the same errors as a storage that fails, so a failed reading is repeated once.
    """
    try:
        return retried(OffsetlakeError, replace(tables, names={}).progress_if_any, attempts=2)
    except OffsetlakeError:
        return Progress()


def _reason_not_to_change_over(reader: TopicReader, aside: Tables) -> str | None:
    """Return why tables just filled do not match the topic; None if they do, or if stopped."""
    topic = reader.topic_now()
    if topic is None:
        return None
    progress = aside.progress()
    check_source(progress, reader.settings, topic)
    loading = [number for number, partition in progress.partitions.items() if not partition.loaded]
    if loading:
        return f"partitions {', '.join(map(str, loading))} were not read to their end"
    return reason_to_rebuild(progress, topic)
