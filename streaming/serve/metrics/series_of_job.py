"""The series of the metrics in `catalogue.of_job`, with the totals of all groups, and in
`catalogue.of_listener`."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from streaming.expiry.cause_names import CAUSES
from streaming.model.completeness import all_partitions
from streaming.model.progress import PartitionProgress
from streaming.serve.assessment.assessment import retention_ms_of
from streaming.serve.assessment.counters import RECORDS
from streaming.serve.memory.names import NONE
from streaming.serve.metrics.admission import Withheld
from streaming.serve.metrics.catalogue import BY_NAME
from streaming.serve.metrics.catalogue.of_job import MAX_SERIES, WITHHELD
from streaming.serve.metrics.labels import label_value
from streaming.serve.metrics.series import Label, Series
from streaming.serve.metrics.source import STEPS, MetricsSource

SEVERITIES: Final = ("critical", "warning", "info")

_OF_PARTITION: Final[Mapping[str, Callable[[PartitionProgress], float | None]]] = {
    "source_loaded": lambda one: int(one.loaded),
    "source_lag": lambda one: one.as_shown.behind,
    "source_complete_timestamp_seconds": lambda one: _in_seconds(one.stable.as_of),
    "source_open_transaction_timestamp_seconds": lambda one: _in_seconds(one.open_transaction_since),
    "source_unanswered_timestamp_seconds": lambda one: _in_seconds(one.unanswered_since),
}
"""The metrics of each offsets partition; None: no series."""


def series_of_job(source: MetricsSource) -> Iterator[Series]:
    """Yield the series of the job, without those of `withheld_series`, which depend on the others."""
    yield from _facts(source)
    yield from _partitions(source)
    if source.was_read:
        yield _alerts(source)
        counts = source.snapshot.undelivered
        labels = {"receiver": [name for name, _ in counts], "reason": [reason for _, reason in counts]}
        yield _labelled("alerts_undelivered", labels, counts.values())
    yield from _counters(source)
    if source.kafka is not None:
        yield _by_two("kafka_requests_total", source.kafka.requests)
        yield _by_two("kafka_client_requests_total", source.kafka.software)
        yield _by_two("kafka_errors_total", source.kafka.errors)
        yield _single("kafka_connections", source.kafka.connections)
        closed = source.kafka.closed
        yield _labelled("kafka_connections_closed_total", {"reason": list(closed)}, closed.values())
        if source.kafka.past is not None:
            yield _single("kafka_past_snapshots", source.kafka.past.held)
            yield _single("kafka_past_snapshots_built_total", source.kafka.past.built)


def withheld_series(unwanted: Mapping[str, int], withheld: Withheld) -> Iterator[Series]:
    """Yield the numbers of series and groups that are withheld."""
    counts = {**unwanted, MAX_SERIES: withheld.series}
    yield _labelled(
        "series_withheld", {"reason": list(WITHHELD)}, [counts.get(reason, 0) for reason in WITHHELD]
    )
    yield _single("groups_withheld", withheld.groups)


def _facts(source: MetricsSource) -> Iterator[Series]:
    snapshot, progress = source.snapshot, source.snapshot.progress
    cluster, topic = (label_value(text or "") for text in (progress.cluster_id, progress.topic))
    about = {"version": [source.version], "cluster_id": [cluster], "source_topic": [topic]}
    yield _labelled("info", about, [1])
    newest_at = snapshot.topics.ends.newest_at
    retention_ms = retention_ms_of(progress, source.settings.expiry)
    facts: dict[str, float | None] = {
        "heartbeat_timestamp_seconds": _in_seconds(progress.heartbeat or None),
        "batch_timestamp_seconds": _in_seconds(progress.batch_time),
        "batch_duration_seconds": _in_seconds(progress.batch_ms),
        "alerts_evaluated_timestamp_seconds": _in_seconds(progress.alerts_evaluated_at),
        "tables_readable": int(not source.failures),
        "offset_retention_seconds": _in_seconds(retention_ms),
        "log_ends_timestamp_seconds": _in_seconds(newest_at if newest_at > 0 else None),
        "assessment_timestamp_seconds": _in_seconds(source.assessment.moment or None),
    }
    if source.was_read:
        facts |= {
            "rebuild_in_progress": int(progress.rebuild is not None),
            "groups": len(snapshot.groups),
            "committed_offsets": len(snapshot.offsets),
        }
    for name, value in facts.items():
        if value is not None:
            yield _single(name, value)
    took = dict(zip(STEPS, (source.assessment.took_s, source.took_s), strict=True))
    known = {step: value for step, value in took.items() if value is not None}
    yield _labelled("build_duration_seconds", {"step": list(known)}, known.values())


def _partitions(source: MetricsSource) -> Iterator[Series]:
    partitions = all_partitions(source.snapshot.progress).items()
    for name, of in _OF_PARTITION.items():
        values = {str(number): value for number, one in partitions if (value := of(one)) is not None}
        yield _labelled(name, {"source_partition": list(values)}, values.values())


def _alerts(source: MetricsSource) -> Series:
    rows = source.snapshot.alerts.select(["rule", "severity"]).to_pylist()
    counts = Counter((row["rule"], row["severity"]) for row in rows)
    rules = dict.fromkeys([*source.rules, *(rule for rule, _ in counts)])
    pairs = [(rule, severity) for rule in rules for severity in SEVERITIES]
    labels = {"rule": [rule for rule, _ in pairs], "severity": [severity for _, severity in pairs]}
    return _labelled("alerts_open", labels, [counts[pair] for pair in pairs])


def _counters(source: MetricsSource) -> Iterator[Series]:
    counters = source.counters
    if counters is None:
        return
    yield _single("commits_total", counters.commits_in_all)
    causes = dict.fromkeys([*CAUSES, *counters.removed_in_all])
    counts = [counters.removed_in_all.get(cause, 0) for cause in causes]
    yield _labelled("removed_offsets_total", {"cause": list(map(label_value, causes))}, counts)
    for kind in RECORDS:
        yield _single(f"records_{kind}_total", counters.records[kind])


def _single(name: str, value: float) -> Series:
    return _labelled(name, {}, [value])


def _by_two(name: str, counts: Mapping[tuple[str, str], int]) -> Series:
    """Return the series of a metric with two labels, by their values."""
    labels = BY_NAME[name].labels
    texts = {label: [label_value(pair[place]) for pair in counts] for place, label in enumerate(labels)}
    return _labelled(name, texts, counts.values())


def _labelled(name: str, labels: Mapping[str, list[str]], values: Iterable[float]) -> Series:
    held = list(values)
    is_whole = all(isinstance(value, int) for value in held)
    numbers = np.array(held, np.int64 if is_whole else np.float64)
    return Series(BY_NAME[name], {label: Label.of(texts) for label, texts in labels.items()}, numbers)


def _in_seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None or milliseconds == NONE else milliseconds / 1_000
