"""One job at a time on tables without locks, such as those of an object store: the writer is named in the
tables.

`streaming.tables.fences` keeps out a job that another one has replaced. This module refuses a job that would
replace another one at work, which is seen by its heartbeats.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final
from uuid import uuid4

from deltalake.exceptions import DeltaError

from streaming.common.times import MINUTE_MS, iso, now_ms
from streaming.job.sole_job import OWN_PLACES, is_local
from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.model.progress import Progress
from streaming.settings.model import Settings
from streaming.tables.fences import WRITER, name_in
from streaming.tables.tables import Tables

_log = logging.getLogger(__name__)

_BEATS: Final = 3
"""A job at work commits within this many heartbeats."""

_LONG_SILENT_MS: Final = 10 * MINUTE_MS
"""A job without a heartbeat for this long is not waited for; longer than clocks usually differ."""

_ASK_EVERY_S: Final = 1.0


@contextmanager
def sole_writer(
    settings: Settings, stop: threading.Event, *, waiting: Callable[[str], AbstractContextManager[object]]
) -> Iterator[str]:
    """Be the only writer of the tables until the end of the block; yields its name in them.

    Raises `MisuseError` if another job is at work. To find that out takes up to three heartbeats where
    folders cannot be locked and the job before did not end by itself; `waiting` says so.
    """
    tables = Tables(settings.tables.root, settings.tables.storage_options)
    changes = tables.delta_if_any("changes")
    before = "" if changes is None else name_in(changes, WRITER)
    if before and not is_local(tables.root):
        found = tables.progress()
        if now_ms() - _last_sign(found) <= _LONG_SILENT_MS:
            limit_s = _BEATS * settings.job.heartbeat_every_ms / 1_000
            with waiting(f"finding out whether another job writes to {tables.root} ({limit_s:g} s)"):
                _refuse_if_at_work(tables, found, limit_s, stop)
    name = uuid4().hex
    if stop.is_set():  # perhaps another job is at work
        yield name
        return
    own = tables.with_name(WRITER, name)
    own.become_writer(after=before)
    try:
        yield name
    finally:
        try:
            own.end_writing()
        except (OffsetlakeError, DeltaError, OSError) as error:  # the next job waits a little, that is all
            _log.debug("the end of writing was not noted: %s", error)


def _refuse_if_at_work(tables: Tables, found: Progress, limit_s: float, stop: threading.Event) -> None:
    for _ in range(max(1, round(limit_s / _ASK_EVERY_S))):
        if stop.wait(_ASK_EVERY_S):
            return
        if (newest := tables.progress()) != found:
            raise MisuseError(
                f"starting the job: another job is writing to the tables under {tables.root}, last at "
                f"{iso(_last_sign(newest), 'seconds')}. Stop it first, or {OWN_PLACES}."
            )


def _last_sign(progress: Progress) -> int:
    return max(progress.heartbeat, progress.batch_time or 0)
