"""Metrics for tests: made of tables as `serve` makes them, and read back by Prometheus' own parser."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from logged import logged
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from streaming.common.times import now_ms
from streaming.lag.health_rules import HealthRules
from streaming.serve.assessment.counters import Counters
from streaming.serve.assessment.refresher import Refresher
from streaming.serve.memory.tailer import Tailer
from streaming.serve.metrics.exposition import Exposition, Format, written
from streaming.serve.metrics.source import KafkaCounts, MetricsSource
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables

Labels = tuple[tuple[str, str], ...]
Read = dict[str, dict[Labels, float]]
"""The values of series by name and labels."""


class Maker:
    """Follows tables, and makes metrics of them whenever asked; `now` stands still."""

    def __init__(
        self, tables: Tables, now: int | None = None, settings: Settings | None = None, **options: Any
    ) -> None:
        self.now = now_ms() if now is None else now
        metrics = settings_with(**options)
        self.settings = metrics if settings is None else replace(settings, metrics=metrics.metrics)
        self.tailer = Tailer(tables, clock=lambda: self.now, counters=Counters())
        self.refresher = Refresher(
            tables,
            lambda: self.tailer.current,
            health=HealthRules.of(self.settings.health),
            expiry=self.settings.expiry,
            clock=lambda: self.now,
        )

    def source(self, *, kafka: KafkaCounts | None = None, failures: Sequence[str] = ()) -> MetricsSource:
        """What metrics are made from, after a look at the tables."""
        assert self.tailer.poll()
        counters = self.tailer.newest.counters
        assert isinstance(counters, Counters)
        with logged("streaming.serve") as said:
            assessment = self.refresher.make()
        assert said == []
        return MetricsSource(
            now=self.now,
            version="1",
            snapshot=self.tailer.current,
            assessment=assessment,
            counters=counters,
            settings=self.settings,
            kafka=kafka,
            failures=failures,
            rules=("offset_expiring",),
        )

    def text(self, style: Format = "text", source: MetricsSource | None = None) -> bytes:
        """The metrics as bytes."""
        families = Exposition(self.settings.metrics).families(source or self.source())
        return b"".join(written(families, style))

    def read(self, style: Format = "text", source: MetricsSource | None = None) -> Read:
        """The metrics as Prometheus' parser reads them."""
        return read(self.text(style, source), style)


def settings_with(**options: Any) -> Settings:
    """The settings, with others in [metrics]."""
    return read_settings(options={f"metrics.{name}": value for name, value in options.items()})


def read(data: bytes, style: Format = "text") -> Read:
    """Read metrics; a series that comes twice fails."""
    families = (text_families if style == "text" else openmetrics_families)(data.decode())
    found: Read = {}
    for family in families:
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in found.setdefault(sample.name, {}), (sample.name, labels)
            found[sample.name][labels] = sample.value
    return found


def by(read_: Mapping[Labels, float], *names: str) -> dict[Any, float]:
    """The values of a metric by the values of some labels; by one, if one is named."""
    keyed = {tuple(dict(labels)[name] for name in names): value for labels, value in read_.items()}
    return {key[0] if len(names) == 1 else key: value for key, value in keyed.items()}


def older(source: MetricsSource, milliseconds: int) -> MetricsSource:
    """The same, so much later."""
    return replace(source, now=source.now + milliseconds)
