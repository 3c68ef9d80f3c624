"""Where the job reports to, and what it says of each batch."""

from collections.abc import Callable
from dataclasses import dataclass

from streaming.model.progress import Progress
from streaming.model.totals import Totals


@dataclass(frozen=True, kw_only=True)
class BatchReport:
    """What one micro-batch did; `moved` counts source offsets, markers and gaps included."""

    batch_id: int
    moved: int
    totals: Totals
    changed_offsets: int
    changed_groups: int
    quarantined: int
    seconds: float
    progress: Progress


@dataclass(frozen=True)
class Listener:
    """Where the job reports to: sentences for people, what each batch did, and alerts as lines of JSON.

    `write` raises what writing raises, so that an alert that could not be written is written later.
    """

    say: Callable[[str], None]
    batch: Callable[[BatchReport], None]
    write: Callable[[str], None]
