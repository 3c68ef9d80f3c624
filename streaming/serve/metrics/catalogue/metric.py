"""What one metric is.

Names follow Prometheus' conventions (`promtool check metrics`): base units, moments instead of ages, `_total`
for counters alone. A series that would be wrong is not there: see `Metric.absent`.
"""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["gauge", "counter"]
Level = Literal["job", "group", "topic", "partition"]

LEVELS: Final[tuple[Level, ...]] = ("job", "group", "topic", "partition")
"""What series are about, the coarsest first: each level has a `granularity` of its name."""

PREFIX: Final = "offsetlake_"

SECONDS: Final = "seconds"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric. `name` is without the prefix, `unit` that of its end (empty: a number of things).

    `help` is what scrapers show, in a line; `absent` says when there is no series of it (empty: there always
    is one). `example` is a query. `counts`: it is the number of offsets of which this boolean of
    `assessment.POSITIONS` holds, and there is no series where that is 0.
    """

    name: str
    help: str
    level: Level
    labels: tuple[str, ...] = ()
    kind: Kind = "gauge"
    unit: str = ""
    absent: str = ""
    counts: str = ""
    example: str

    @property
    def full_name(self) -> str:
        """The name with the prefix."""
        return PREFIX + self.name
