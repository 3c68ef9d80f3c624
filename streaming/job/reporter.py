"""Where the job reports to, and what it says of each batch."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from streaming.model.progress import Progress
from streaming.model.totals import Totals


@dataclass(frozen=True, kw_only=True)
class BatchReport:
    """The results of one micro-batch; `moved` counts source offsets, including markers and gaps.

    The number of the batch is `progress.sequence`, as in answers to queries; a batch without changes has the
    number of the last one with changes.
    """

    moved: int
    totals: Totals
    changed_offsets: int
    changed_groups: int
    quarantined: int
    seconds: float
    progress: Progress

    @property
    def has_changes(self) -> bool:
        return bool(self.changed_offsets or self.changed_groups)


Waiting = Callable[[str], AbstractContextManager[object]]
"""Says what is waited for within the block (`connecting to localhost:9092`)."""


@dataclass(frozen=True)
class Reporter:
    """Where the job reports to, beside its log: what each batch did, and alerts as lines of JSON.

    `write` raises what writing raises, so that an alert that could not be written is written later.
    """

    batch: Callable[[BatchReport], None]
    write: Callable[[str], None]
    waiting: Waiting = nullcontext
