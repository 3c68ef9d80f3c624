"""The declaration of one metric.

Names follow Prometheus' conventions (`promtool check metrics`): base units, timestamps instead of ages,
`_total` for counters only. A series that would be wrong is absent: see `Metric.absent`.
"""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["gauge", "counter"]
Level = Literal["job", "group", "topic", "partition"]

LEVELS: Final[tuple[Level, ...]] = ("job", "group", "topic", "partition")
"""The subjects of series, from coarse to fine; each is also a `granularity`."""

PREFIX: Final = "offsetlake_"

SECONDS: Final = "seconds"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric. `name` has no prefix; `unit` is the unit at its end (empty: a count).

    `help` is the one-line description for scrapers; `absent` is when there is no series (empty: never).
    `example` is a query. `counts`: the value is the number of offsets for which this boolean column of
    `assessment.POSITIONS` is true, without a series where that is 0.
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
