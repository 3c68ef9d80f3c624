"""Checks that tables, checkpoint and topic belong together before anything is written."""

from dataclasses import replace

from streaming.brokers.facts import TopicFacts
from streaming.model.errors import MisuseError, OtherFormatError
from streaming.model.progress import PartitionProgress, Progress
from streaming.settings.model import Settings
from streaming.spark.checkpoint import Checkpoint
from streaming.state.stored import REBUILD, STATE_FORMAT


def check_source(progress: Progress, settings: Settings, facts: TopicFacts) -> None:
    """Raise `MisuseError` if tables with this progress were filled from another topic or cluster."""
    where = f"table root {settings.tables.root}"
    if progress.topic not in ("", settings.source.topic):
        raise MisuseError(
            f"{where}: expected topic {progress.topic}, which it was filled from, "
            f"found {settings.source.topic}. Each topic needs its own table root and checkpoint."
        )
    if None not in (progress.cluster_id, facts.cluster_id) and progress.cluster_id != facts.cluster_id:
        raise MisuseError(
            f"{where}: expected Kafka cluster {progress.cluster_id}, which it was filled from, "
            f"found cluster {facts.cluster_id} at {settings.source.bootstrap_servers}. "
            "Each cluster needs its own table root and checkpoint."
        )


def check_checkpoint(progress: Progress, checkpoint: Checkpoint, settings: Settings) -> None:
    """Raise `MisuseError` if the tables were not written from this checkpoint, `OtherFormatError` if this
    release cannot read its state."""
    if is_pair(progress, checkpoint):
        _check_state_format(progress, checkpoint)
        return
    advice = (
        "These tables are new: give them a checkpoint of their own (--checkpoint)."
        if progress.query_id is None
        else "Use the pair that belongs together; if the checkpoint is lost, `offsetlake rebuild` creates a "
        "new one and keeps the tables."
    )
    raise MisuseError(
        f"table root {settings.tables.root} and checkpoint {checkpoint.path} do not belong together: "
        f"expected the checkpoint of query {progress.query_id or '(none)'}, found the one of query "
        f"{checkpoint.query_id() or '(none)'}. {advice}"
    )


def _check_state_format(progress: Progress, checkpoint: Checkpoint) -> None:
    if progress.query_id is None or progress.state_format == STATE_FORMAT:
        return
    raise OtherFormatError(
        f"state in checkpoint {checkpoint.path}",
        expected=STATE_FORMAT,
        found=progress.state_format,
        if_older=REBUILD,
    )


def is_pair(progress: Progress, checkpoint: Checkpoint) -> bool:
    """Whether tables with this progress were written from this checkpoint, or both are new."""
    query_id = checkpoint.query_id()
    return progress.query_id == query_id or (progress.query_id is None and not checkpoint.has_batches())


def reason_if_older(progress: Progress, checkpoint: Checkpoint) -> str | None:
    """Return why tables with this progress lack batches of their checkpoint; None if they do not.

    Every batch is in the tables before Spark completes it in the checkpoint, so they are never behind it,
    however the job ended: they are of a backup.
    """
    for number, end in sorted(checkpoint.end(progress.topic).items()):
        position = progress.partitions.get(number, PartitionProgress()).position
        if position < end:
            return (
                f"the tables are older than the checkpoint: they have partition {number} of topic "
                f"{progress.topic} up to offset {position}, and the checkpoint was written at offset {end}"
            )
    return None


def bound(progress: Progress, settings: Settings, facts: TopicFacts) -> Progress:
    """Return the progress with the identity of its source, and an entry for each partition."""
    return replace(
        progress,
        topic=settings.source.topic,
        topic_id=facts.topic_id or progress.topic_id,
        cluster_id=facts.cluster_id or progress.cluster_id,
        state_format=STATE_FORMAT,
        partitions={
            partition: progress.partitions.get(partition, PartitionProgress())
            for partition in range(facts.partition_count)
        },
    )
