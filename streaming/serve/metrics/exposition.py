"""The exposition formats for scrapers: Prometheus' text format 0.0.4 and OpenMetrics 1.0."""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, Literal

import numpy as np

from streaming.common.arrays import Mask
from streaming.model.errors import MisuseError
from streaming.serve.memory.names import NONE
from streaming.serve.metrics.admission import Admission
from streaming.serve.metrics.catalogue import CATALOGUE, OWN_LABELS
from streaming.serve.metrics.catalogue.metric import LEVELS, Metric
from streaming.serve.metrics.catalogue.schemes import CLUSTER, CLUSTER_NAME, OWN, SCHEMES, Foreign, Shown
from streaming.serve.metrics.labels import is_label_name, label_value
from streaming.serve.metrics.series import Constant, Family, Head, Series, lines_of
from streaming.serve.metrics.series_filter import Granularity, SeriesFilter, idle_groups
from streaming.serve.metrics.series_of_job import series_of_job, withheld_series
from streaming.serve.metrics.series_per_group import log_series, series_per_group
from streaming.serve.metrics.source import MetricsSource
from streaming.settings.clusters import CLUSTER_LABEL
from streaming.settings.model import MetricsSettings

Format = Literal["text", "openmetrics"]

CONTENT_TYPES: Final[Mapping[Format, str]] = {
    "text": "text/plain; version=0.0.4; charset=utf-8",
    "openmetrics": "application/openmetrics-text; version=1.0.0; charset=utf-8",
}

Pieces = Sequence[bytes | memoryview]
"""Consecutive chunks of a body."""

_OF_PROMETHEUS: Final = {"job", "instance", "le", "quantile", "alertname", "severity", "trouble", "groups"}
"""Labels that Prometheus or our alerting rules set: another value would be lost or would change alerts."""

_GZIP: Final = 16 + zlib.MAX_WBITS
_QUICKEST: Final = 1


class Exposition:
    """Builds the metric families of some clusters that the settings select, response after response."""

    def __init__(self, settings: MetricsSettings, clusters: Iterable[str] = ("",)) -> None:
        """`clusters` are their names; the series of one without a name have no label for it.

        Raises `MisuseError` for labels that no series can have.
        """
        self._of_each = {name: ClusterExposition(settings, name) for name in clusters}

    @property
    def lacks(self) -> Mapping[str, str]:
        """By name of the cluster a message about what its last response lacks; empty: nothing."""
        return {name: one.admission.warning for name, one in self._of_each.items()}

    def families(self, *sources: MetricsSource) -> list[Family]:
        """Return all metrics with series, each once, those of one cluster in the order of the catalogue."""
        return _merged([self._of_each[source.cluster].families(source) for source in sources])


def _merged(of_each: Sequence[Sequence[Family]]) -> list[Family]:
    """Join the lines of families with the same name, which may not be apart in an exposition."""
    by_name: dict[str, list[Family]] = {}
    for family in chain.from_iterable(of_each):
        by_name.setdefault(family.head.name, []).append(family)
    return [
        Family(first.head, memoryview(b"".join([first.lines, *(one.lines for one in others)])))
        if others
        else first
        for first, *others in by_name.values()
    ]


class ClusterExposition:
    """The metric families of one cluster; admission depends on earlier responses (`admission`)."""

    def __init__(self, settings: MetricsSettings, name: str) -> None:
        self._settings, self._name = settings, name
        self._granularity = Granularity(settings)
        self._constants = _constants(settings) | ({CLUSTER_LABEL: Constant(name)} if name else {})
        self.admission: Final = Admission(settings.max_series)

    def families(self, source: MetricsSource) -> list[Family]:
        """Return all metrics with series, in the order of the catalogue."""
        series_filter = self._filter(source)
        own = list(series_per_group(source, self._granularity.finest_of_any))
        if self._settings.granularity == LEVELS[-1] and source.is_heard_of:
            own += log_series(source)
        chosen = self.admission.of(source, [series_filter.of(series) for series in self._named(own)])
        of_job = [*series_of_job(source), *withheld_series(series_filter.withheld, self.admission.withheld)]
        by_name: dict[str, list[Series]] = {}
        for series in (*of_job, *chosen):
            by_name.setdefault(series.metric.name, []).append(series)
        named = self._name or source.snapshot.progress.cluster_id or ""
        cluster = Constant(label_value(self._settings.labels.get(CLUSTER_NAME, named)))
        return [
            Family(head, lines)
            for metric in CATALOGUE
            for head, several in self._with_heads(metric, by_name.get(metric.name, ()), cluster)
            if len(lines := lines_of(head, several))
        ]

    def _named(self, several: list[Series]) -> list[Series]:
        """Drop the series that have no name in the chosen scheme of another exporter."""
        if self._settings.names == OWN:
            return several
        held = {foreign.of for foreign in SCHEMES[self._settings.names]}
        return [series for series in several if series.metric.name in held]

    def _with_heads(
        self, metric: Metric, several: Sequence[Series], cluster: Constant
    ) -> Iterator[tuple[Head, Sequence[Series]]]:
        if self._settings.names == OWN or metric.level == "job":
            if several:
                labels = {name: name for name in metric.labels}
                yield self._head(metric, metric.full_name, labels, cluster), several
            return
        for foreign in SCHEMES[self._settings.names]:
            if foreign.of == metric.name and several:
                head = self._head(metric, foreign.name, foreign.labels, cluster)
                yield head, [_valued(foreign, series) for series in several]

    def _head(self, metric: Metric, name: str, labels: Mapping[str, Shown], cluster: Constant) -> Head:
        is_own = metric.level == "job"
        shown = {
            label: cluster if shows == CLUSTER and not is_own else shows for label, shows in labels.items()
        } | self._constants
        unit = metric.unit if name.removesuffix("_total").endswith(metric.unit) else ""
        return Head(name=name, kind=metric.kind, help=metric.help, unit=unit, labels=shown)

    def _filter(self, source: MetricsSource) -> SeriesFilter:
        names, gone = source.assessment.snapshot.groups.names, source.gone
        levels = self._granularity.of(names), self._granularity.of_each(gone)
        is_gone_shown = source.is_heard_of and source.snapshot.progress.rebuild is None
        return SeriesFilter(
            levels=np.concatenate(levels),
            finest=self._granularity.finest,
            is_idle=np.append(self._idle(source), np.zeros(len(gone), np.bool_)),
            is_complete=np.append(source.is_complete, np.full(len(gone), is_gone_shown)),
        )

    def _idle(self, source: MetricsSource) -> Mask:
        snapshot, sums = source.assessment.snapshot, source.by_group
        last_commit = np.full(len(snapshot.groups), NONE, np.int64)
        last_commit[sums.groups] = sums.last_commit
        return idle_groups(snapshot, last_commit, now=source.now, idle_after_ms=self._settings.idle_after_ms)


def _valued(foreign: Foreign, series: Series) -> Series:
    return series if foreign.values is None else replace(series, values=foreign.values(series))


def _constants(settings: MetricsSettings) -> dict[str, Constant]:
    for name in settings.labels:
        if not is_label_name(name):
            raise MisuseError(
                f"metrics.labels: expected names of letters, digits and _, found {name!r}. Rename that label."
            )
        taken = {label for foreign in SCHEMES.get(settings.names, ()) for label in foreign.labels}
        if name in (OWN_LABELS | taken) - {CLUSTER_NAME}:
            raise MisuseError(
                f"metrics.labels: expected names that no metric uses, found {name!r}, which is a label of "
                "offsetlake. Rename that label."
            )
        if name in _OF_PROMETHEUS:
            raise MisuseError(
                "metrics.labels: expected names that neither Prometheus nor the rules in conf/prometheus "
                f"set, found {name!r}. Rename it, or set it in the scrape configuration of Prometheus."
            )
    return {name: Constant(label_value(value)) for name, value in settings.labels.items()}


# --- bytes -----------------------------------------------------------------------------------------------


def written(families: Iterable[Family], style: Format) -> Pieces:
    """Return families in an exposition format."""
    pieces: list[bytes | memoryview] = []
    for family in families:
        pieces += [_head(family.head, style).encode(), family.lines]
    if style == "openmetrics":
        pieces.append(b"# EOF\n")
    return pieces


def zipped(pieces: Pieces) -> Pieces:
    """Compress with gzip at the fastest level."""
    packer = zlib.compressobj(_QUICKEST, zlib.DEFLATED, _GZIP)
    packed = [packer.compress(piece) for piece in pieces]
    return [b"".join([*packed, packer.flush()])]


def _head(head: Head, style: Format) -> str:
    name, text = head.name, head.help.replace("\\", "\\\\").replace("\n", "\\n")
    if style == "text":
        return f"# HELP {name} {text}\n# TYPE {name} {head.kind}\n"
    if head.kind == "counter":
        name = name.removesuffix("_total")
    text = text.replace('"', '\\"')
    unit = f"# UNIT {name} {head.unit}\n" if head.unit and name.endswith(f"_{head.unit}") else ""
    return f"# HELP {name} {text}\n# TYPE {name} {head.kind}\n{unit}"
