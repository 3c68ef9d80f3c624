"""One job at a time on tables without locks, such as those of an object store: the writer is named in the
tables.

`streaming.tables.fences` keeps out a job that another one has replaced. This module refuses a job that would
replace another one at work, which is seen by its heartbeats. While it has none (starting Spark or the end of
a rebuild may take long) a job commits signs of its work instead: a heartbeat would say that the tables are
read on.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Final
from uuid import uuid4

from deltalake.exceptions import DeltaError

from streaming.common.retries import raise_if_ending
from streaming.common.times import MINUTE_MS, iso, now_ms
from streaming.job.sole_job import OWN_PLACES, is_local
from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.settings.model import Settings
from streaming.tables.fences import WRITER, name_in
from streaming.tables.handles import TableHandles
from streaming.tables.tables import Tables

_log = logging.getLogger(__name__)

_BEATS: Final = 3
"""A job at work commits within this many heartbeats."""

_LONG_SILENT_MS: Final = 10 * MINUTE_MS
"""A job without a heartbeat for this long is not waited for; longer than clocks usually differ."""

_ASK_EVERY_S: Final = 1.0

_UNLOCKED: Final = "-unlocked-"
"""In the name of a job that could not lock the table root: also jobs that can, as on the machine that an NFS
mount comes from, wait for its signs."""

_END_LIMIT_S: Final = 15.0


@contextmanager
def sole_writer(
    settings: Settings,
    stop: threading.Event,
    *,
    waiting: Callable[[str], AbstractContextManager[object]],
    is_locked: bool = True,
) -> Iterator[str]:
    """Be the only writer of the tables until the end of the block; yields its name in them.

    Raises `MisuseError` if another job is at work, or is starting. To find that out takes up to three
    heartbeats of that job where one of both cannot lock the table root (a URL; a folder for which `sole_job`
    says so with `is_locked`) and that job did not end by itself; `waiting` says so.
    """
    tables = Tables(settings.tables.root, settings.tables.storage_options)
    changes = tables.delta_if_any("changes")
    before = "" if changes is None else name_in(changes, WRITER)
    is_unlocked = not (is_locked and is_local(tables.root))
    if changes is not None and before and (is_unlocked or _UNLOCKED in before):
        found = tables.signs_of_work()
        if now_ms() - (max(found) or changes.metadata().created_time) <= _LONG_SILENT_MS:
            limit_s = _BEATS * _heartbeat_every_ms(before, settings) / 1_000
            with waiting(f"finding out whether another job writes to {tables.root} ({limit_s:g} s)"):
                _refuse_if_at_work(tables, found, limit_s, stop)
    name = f"{uuid4().hex}{_UNLOCKED if is_unlocked else '-'}{settings.job.heartbeat_every_ms}"
    if stop.is_set():  # perhaps another job is at work
        yield name
        return
    own = tables.with_name(WRITER, name)
    if changes is not None and is_unlocked:
        tables.sign_work(now_ms())  # before the name, which is never there without a sign of its job
    own.become_writer(after=before)
    try:
        with _signing(own, settings.job.heartbeat_every_ms / 1_000) if is_unlocked else nullcontext():
            yield name
    finally:
        try:
            own.end_writing()
        except (OffsetlakeError, DeltaError, OSError) as error:  # the next job waits a little, that is all
            _log.debug("the end of writing was not noted: %s", error)


def _heartbeat_every_ms(name: str, settings: Settings) -> int:
    """Return the time between two heartbeats of the job of this name, which ends with it."""
    every = name.rpartition("-")[2]
    return int(every) if every.isdecimal() else settings.job.heartbeat_every_ms


def _refuse_if_at_work(tables: Tables, found: tuple[int, ...], limit_s: float, stop: threading.Event) -> None:
    for _ in range(max(1, round(limit_s / _ASK_EVERY_S))):
        if stop.wait(_ASK_EVERY_S):
            return
        if (newest := tables.signs_of_work()) != found:
            raise MisuseError(
                f"starting the job: another job is writing to the tables under {tables.root}, last at "
                f"{iso(max(newest), 'seconds')}. Stop it first, or {OWN_PLACES}."
            )


@contextmanager
def _signing(own: Tables, every_s: float) -> Iterator[None]:
    """Sign that the job is at work, whenever it has no heartbeat for `every_s`, until the end of the block.

    Only what another job sees counts, so no clock is read: a sign follows if nothing is new since the last
    look. A look brings the open table up to date, with few requests. An object store that does not answer
    holds up the end of the block for `_END_LIMIT_S` at most.
    """
    done, own = threading.Event(), replace(own.at_first(), handles=TableHandles())

    def sign() -> None:
        seen: tuple[int, ...] | None = None
        while not done.is_set():
            try:
                if seen == (seen := own.signs_of_work()):
                    own.sign_work(now_ms())
                    seen = own.signs_of_work()
            except BaseException as error:  # no tables yet, another writer, and all that the library raises
                raise_if_ending(error)
                _log.debug("the work of the job was not signed: %s", error)
            done.wait(every_s)

    thread = threading.Thread(target=sign, name="offsetlake-signs", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(_END_LIMIT_S)
