"""The rows of single groups in memory, and samples of their topics, for repeated questions about them.

A question about a group opens each file of `changes` that may have rows of it, and a page about a group asks
a dozen. So its changes are read once; later requests read only the newer ones. Its rows in `offsets` and
`groups` are read again after a fold.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from threading import Lock
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

from streaming.common.arrays import no_rows
from streaming.common.timestamps import to_milliseconds
from streaming.common.topics import TopicPartitions
from streaming.model.schemas import CHANGES
from streaming.tables.feed import REWINDS, rewinds_between
from streaming.tables.folding import read_folded
from streaming.tables.log_ends import HeldSamples
from streaming.tables.progress_rows import history_start
from streaming.tables.select import HeldRows, is_of_topics, is_one_of, names, rows_of

_MOST_BYTES: Final = 96 * 1024 * 1024
"""The maximum of held bytes, about 250,000 rows of offsets of 310 to 400 bytes. Of a group with more rows,
the rows of single offsets may be held."""

_MOST_GROUPS: Final = 1_000  # including groups that are too large, of which none is held

_FOLDED_BYTES: Final = 16 * 1024 * 1024
"""The maximum bytes of rows of folded tables in memory: enough for 100,000 offsets without metadata."""

_COLUMNS: Final = pa.schema([field for field in CHANGES if field.name not in ("progress", "day")])


_Contents = tuple[str, date]


def _contents_of(changes: DeltaTable) -> _Contents:
    """Return what identifies the rows of a table up to any sequence: its id, and the start of its history,
    before which rows were dropped."""
    return str(changes.metadata().id), history_start(changes)


@dataclass(eq=False)
class _Held:
    rows: HeldRows | None = field(default_factory=lambda: HeldRows("changes"))  # None: they are too large
    sequence: int = -1
    size: int = 0  # bytes
    lock: Lock = field(default_factory=Lock)

    def extend(self, changes: DeltaTable, condition: str, sequence: int, most_bytes: int) -> None:
        """Read the changes that match a condition up to a sequence, unless they are held."""
        with self.lock:
            if self.rows is None or self.sequence >= sequence:
                return
            left = most_bytes - self.size
            newer = _changes_of(changes, condition, above=self.sequence, up_to=sequence, most_bytes=left)
            if newer is None:
                self.rows, self.size = None, 0
                return
            if len(newer) or self.sequence < 0:
                self.rows.append(newer)
            self.sequence, self.size = sequence, self.size + newer.nbytes


class HeldRewinds:
    """The commits of lower offsets of all groups since some moment: repeated requests read only the newer
    ones. Threads may share it."""

    def __init__(self) -> None:
        self._lock: Final = Lock()
        self._table: _Contents | None = None
        self._since, self._sequence, self._rows = 0, -1, no_rows(REWINDS)

    def of(self, changes: DeltaTable, *, up_to: int, since: int) -> pa.Table:
        """Return the rewinds (schema `REWINDS`) up to a sequence, written since a moment (ms), in the order
        of the log; see `feed.rewinds_between`."""
        with self._lock:
            table = _contents_of(changes)
            if table != self._table or since < self._since:
                self._sequence, self._rows = -1, no_rows(REWINDS)
            if self._sequence < up_to:
                newer = rewinds_between(changes, None, after=self._sequence, up_to=up_to, since=since)
                self._rows, self._sequence = pa.concat_tables([self._rows, newer]), up_to
            is_late = pc.greater_equal(to_milliseconds(self._rows["written_at"]), since)
            self._table, self._since, self._rows = table, since, self._rows.filter(is_late)
            return self._rows.filter(pc.less_equal(self._rows["sequence"], up_to))


class HeldFolded:
    """The rows of the groups asked about last in versions of folded tables. Threads may share it."""

    def __init__(self) -> None:
        self._held = OrderedDict[tuple[str, int, str], pa.Table]()
        self._lock: Final = Lock()

    def of(self, name: str, base: DeltaTable, group: str) -> pa.Table:
        """Return the rows of a group in a folded table (columns `ROWS`)."""
        key = str(base.metadata().id), base.version(), group
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                self._held.move_to_end(key)
                return held
        rows = read_folded(name, base, [group])
        with self._lock:
            self._held[key] = rows
            while sum(one.nbytes for one in self._held.values()) > _FOLDED_BYTES:
                self._held.popitem(last=False)
        return rows


class HeldChanges:
    """The changes of the groups asked about last, their rows in `folded` tables, and the `samples` of their
    topics. Threads may share it."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self.folded: Final = HeldFolded()
        self.samples: Final = HeldSamples()
        self._most_bytes: Final = most_bytes
        self._held: OrderedDict[tuple[_Contents, str], _Held] = OrderedDict()
        self._lock: Final = Lock()

    def of(
        self, changes: DeltaTable, group: str, sequence: int, topics: Sequence[TopicPartitions] = ()
    ) -> HeldRows | None:
        """Return the changes of a group with all those up to a sequence, and perhaps newer ones; None: they
        are too large. With `topics`, only the changes of its offsets of these topics and partitions.

        Raises `QueryFailedError`, and `OSError` if there is no place for a temporary file.
        """
        condition = f"{is_one_of('group', [group])} AND {is_of_topics(topics)}"
        key = _contents_of(changes), condition
        with self._lock:
            held = self._held.setdefault(key, _Held())
            self._held.move_to_end(key)
        try:
            held.extend(changes, condition, sequence, self._most_bytes)
        except BaseException:
            with self._lock:
                self._held.pop(key, None)
            raise
        with self._lock:
            while (
                sum(one.size for one in self._held.values()) > self._most_bytes
                or len(self._held) > _MOST_GROUPS
            ):
                self._held.popitem(last=False)
        return held.rows


def _changes_of(
    changes: DeltaTable, condition: str, *, above: int, up_to: int, most_bytes: int
) -> pa.Table | None:
    sql = f"""
        SELECT {names(_COLUMNS.names)} FROM changes
        WHERE {condition} AND "sequence" > {above} AND "sequence" <= {up_to}
        """
    rows = rows_of(QueryBuilder().register("changes", changes), sql, most_bytes=most_bytes)
    return None if rows is None else rows.cast(_COLUMNS)
