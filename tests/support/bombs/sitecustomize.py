"""Kills the job that this Python is a part of, all its processes at once, when it comes to a named point.

Python imports this by itself when the folder is on PYTHONPATH. `BOMB_OF_JOB=<point>:<n>` names the point
and the how-manieth time; without it nothing happens. The job itself is the real one.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

When = Callable[..., bool]


def processes_of_session(session: int) -> list[int]:
    """Return the processes of a session: a job's driver, which leads it, its JVM and its Python workers."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == session:
                    found.append(int(entry.name))
            except ProcessLookupError:
                continue
    return found


def kill_session(session: int) -> None:
    """Kill -9 all processes of a session; of the own one the caller last."""
    for pid in sorted(processes_of_session(session), key=lambda pid: pid == os.getpid()):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def explode(*_: object) -> NoReturn:
    while True:
        kill_session(os.getsid(0))
        time.sleep(1)


class Countdown:
    """Explodes at the n-th call."""

    def __init__(self, count: int) -> None:
        self._left = count

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            explode()


def wrap(
    owner: Any,
    name: str,
    *,
    before: Callable[[], None] | None,
    after: Callable[[], None] | None,
    when: When = lambda *_, **__: True,
) -> None:
    """Replace a function by one that also does something before or after each call that counts."""
    original = getattr(owner, name)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        counts = when(*arguments, **named)
        if counts and before:
            before()
        result = original(*arguments, **named)
        if counts and after:
            after()
        return result

    setattr(owner, name, wrapped)


# --- in the driver ---------------------------------------------------------------------------------------


def _is_batch(_tables: Any, rows: Any, _progress: Any, *, is_batch: bool, **_: Any) -> bool:
    return is_batch and len(rows) > 0


def _has_rows(_tables: Any, rows: Any, _progress: Any) -> bool:
    return len(rows) > 0


def before_append(countdown: Countdown) -> None:
    from streaming.tables.tables import Tables

    wrap(Tables, "append_changes", before=countdown, after=None, when=_is_batch)


def after_append(countdown: Countdown) -> None:
    from streaming.tables.tables import Tables

    wrap(Tables, "append_changes", before=None, after=countdown, when=_is_batch)


def after_quarantine(countdown: Countdown) -> None:
    from streaming.tables.tables import Tables

    wrap(Tables, "append_quarantine", before=None, after=countdown, when=_has_rows)


def between_folds(countdown: Countdown) -> None:
    from streaming.tables import tables

    wrap(tables, "fold_table", before=None, after=countdown, when=lambda name, *_: name == "offsets")


def before_change_over(countdown: Countdown) -> None:
    _at_change_over(before=countdown, after=None)


def after_change_over(countdown: Countdown) -> None:
    _at_change_over(before=None, after=countdown)


def _at_change_over(**what: Any) -> None:
    from streaming.tables.tables import Tables

    def is_change_over(tables: Any, *_: Any, is_batch: bool, **__: Any) -> bool:
        return is_batch and not tables.root.endswith("/rebuild")

    wrap(Tables, "append_changes", when=is_change_over, **what)


def in_state_commit(countdown: Countdown) -> None:
    """As soon as a state partition has begun to write a version (anew, if it was written before)."""
    checkpoint = Path(sys.orig_argv[sys.orig_argv.index("--checkpoint") + 1])

    def changelogs() -> set[tuple[str, int]]:
        found = set()
        for folder in checkpoint.glob("*/state/0/[01]"):
            for entry in os.scandir(folder):
                if "changelog" in entry.name:
                    with suppress(FileNotFoundError):
                        found.add((entry.path, entry.stat().st_mtime_ns))
        return found

    def watch() -> None:
        seen = changelogs()
        while True:
            now = changelogs()
            if now - seen:
                countdown()
            seen = now
            time.sleep(0.005)

    threading.Thread(target=watch, daemon=True).start()


DRIVER = {
    "before the append": before_append,
    "after the append": after_append,
    "after the append to quarantine": after_quarantine,
    "between two folds": between_folds,
    "before the change-over": before_change_over,
    "after the change-over": after_change_over,
    "in the state commit": in_state_commit,
}

# --- in the Python workers -------------------------------------------------------------------------------


def in_decode(countdown: Countdown) -> None:
    import decoders

    module = sys.modules[decoders.decode_columns.__module__]
    wrap(module, "decode_columns", before=countdown, after=None)


def in_state_update(countdown: Countdown) -> None:
    from streaming.spark.layered_state import LayeredState

    wrap(LayeredState, "write", before=None, after=countdown)


WORKER = {"in decode": in_decode, "in a state update": in_state_update}

# ---------------------------------------------------------------------------------------------------------


def _arm(bomb: str) -> None:
    point, count = bomb.rsplit(":", 1)
    points = (
        WORKER if "pyspark.worker" in sys.orig_argv else DRIVER if "streaming.cli" in sys.orig_argv else {}
    )
    if point in points:
        points[point](Countdown(int(count)))


if "BOMB_OF_JOB" in os.environ:
    _arm(os.environ["BOMB_OF_JOB"])
