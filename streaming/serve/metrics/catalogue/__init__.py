"""Every metric of `offsetlake serve`, declared once: its name, meaning and an example query.

`schemes` has the names of other exporters, `document` the tables of docs/metrics.md.
"""

from typing import Final

from streaming.serve.metrics.catalogue.metric import Metric
from streaming.serve.metrics.catalogue.of_job import OF_JOB
from streaming.serve.metrics.catalogue.of_listener import OF_LISTENER
from streaming.serve.metrics.catalogue.per_group import PER_GROUP, PER_PARTITION, PER_TOPIC

CATALOGUE: Final[tuple[Metric, ...]] = (*OF_JOB, *OF_LISTENER, *PER_GROUP, *PER_TOPIC, *PER_PARTITION)
"""Every metric, in the order of the exposition."""

BY_NAME: Final = {metric.name: metric for metric in CATALOGUE}

OWN_LABELS: Final = frozenset(label for metric in CATALOGUE for label in metric.labels)
"""The label names that the settings may not use."""
