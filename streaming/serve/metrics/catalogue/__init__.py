"""Every metric of `offsetlake serve`, declared once: its name, meaning and an example query.

`schemes` has the names of other exporters, `document` the tables of docs/metrics.md.
"""

from typing import Final

from streaming.serve.metrics.catalogue.metric import Metric
from streaming.serve.metrics.catalogue.of_groups import OF_GROUPS, OF_PARTITIONS, OF_TOPICS
from streaming.serve.metrics.catalogue.of_job import OF_JOB
from streaming.serve.metrics.catalogue.of_listener import OF_LISTENER

CATALOGUE: Final[tuple[Metric, ...]] = (*OF_JOB, *OF_LISTENER, *OF_GROUPS, *OF_TOPICS, *OF_PARTITIONS)
"""Every metric, in the order of the exposition."""

BY_NAME: Final = {metric.name: metric for metric in CATALOGUE}

OWN_LABELS: Final = frozenset(label for metric in CATALOGUE for label in metric.labels)
"""The label names that the settings may not use."""
