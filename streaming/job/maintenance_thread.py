"""Runs maintenance on a schedule inside the job, in a thread that delays neither batches nor heartbeats."""

import logging
import threading
from collections.abc import Callable
from typing import Final, Self

from streaming.common.rate_limits import OngoingProblems
from streaming.common.retries import raise_if_ending
from streaming.common.times import now_ms
from streaming.maintenance.maintenance import maintain
from streaming.maintenance.trimming import KeepTimes
from streaming.maintenance.unused_files import note_kept_files
from streaming.settings.model import Settings
from streaming.tables.select import in_one_line
from streaming.tables.tables import Tables

_log = logging.getLogger(__name__)

_FIRST_ROUND_AFTER: Final = 0.1  # of the interval: for jobs that are restarted often
_STOP_LIMIT_S: Final = 30.0  # for the current step; an interrupted step leaves files for the next vacuum


class Maintainer(threading.Thread):
    """Runs rounds of maintenance until the context ends; a failed round is reported and retried."""

    def __init__(
        self,
        tables: Tables,
        settings: Settings,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        super().__init__(name="offsetlake-maintenance", daemon=True)
        self._tables = tables
        self._keep = KeepTimes.of(settings)
        self._every_s = settings.tables.maintain_every_ms / 1_000
        self._problems = OngoingProblems(_log)
        self._clock = clock
        self._done = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join(_STOP_LIMIT_S)

    def run(self) -> None:
        self._try(self._note_kept_files)
        wait_s = self._every_s * _FIRST_ROUND_AFTER
        while not self._done.wait(wait_s):
            self._try(self._round)
            wait_s = self._every_s

    def _note_kept_files(self) -> None:
        for name in self._tables.existing():
            note_kept_files(self._tables, name, self._keep)

    def _round(self) -> None:
        maintain(self._tables, self._keep, clock=self._clock, should_stop=self._done.is_set)

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # the job continues after any error: tables grow, but nothing is lost
            raise_if_ending(error)
            self._problems.make("", in_one_line(error))
        else:
            self._problems.settle("", "maintenance of the tables works again")
