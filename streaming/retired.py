"""Which committed offsets are gone, why, and how to put them back."""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.causes import TOPIC_DELETED
from streaming.drops import REMOVALS
from streaming.expiring import Listing, listing
from streaming.moments import parse_moment, to_ms
from streaming.render import csv_line
from streaming.schemas import KEY
from streaming.settings import parse_duration_ms
from streaming.table_rows import FIRST_MS
from streaming.tables import Tables

RETIRED: Final = REMOVALS.append(
    pa.field("current_offset", pa.int64())  # what has been committed since; null = nothing
)

_KEY: Final = [field.name for field in KEY]


def list_retired(
    tables: Tables, groups: Sequence[str] = (), *, now: int, since: int | None = None
) -> Listing:
    """Return the offsets that were removed (schema `RETIRED`), the newest removal first.

    Of the named groups or of all, and since a time (ms). An offset that was removed twice is there twice.
    Left out are tombstones of offsets that the job did not hold: what they removed is not known.
    """
    gone, offsets, progress = tables.ask(
        lambda at: (at.removals(groups or None, since=since), at.offsets(groups or None), at.progress)
    )
    live = offsets.select([*_KEY, "committed_offset"]).rename_columns([*_KEY, "current_offset"])
    rows = gone.join(live, keys=_KEY, join_type="left outer").cast(RETIRED)
    by = [("removed_at", "descending"), *((name, "ascending") for name in _KEY)]
    return listing(rows.sort_by(by), progress, groups, now)


def reset_lines(rows: pa.Table) -> Iterator[str]:
    """Write lines `group,topic,partition,offset` for the offsets that can be put back.

    That is what `kafka-consumer-groups --reset-offsets --from-file` takes (Kafka 2.4 or newer;
    `ConsumerGroupCommand.parseResetPlan`): for each offset its newest removal, unless something has been
    committed since or its topic is gone.
    """
    for row in rows.filter(_can_be_put_back(rows)).select([*_KEY, "committed_offset"]).to_pylist():
        yield csv_line(row.values())


def _can_be_put_back(rows: pa.Table) -> pa.Array:
    """Tell which of the rows, newest removal first, are worth a line."""
    keys = list(zip(*(rows[name].to_pylist() for name in _KEY), strict=True))
    seen: set[tuple[str, str, int]] = set()
    is_newest = pa.array([not (key in seen or seen.add(key)) for key in keys], pa.bool_())  # type: ignore[func-returns-value]
    is_plain = pc.invert(pc.match_substring_regex(rows["group"], "[\r\n]"))  # the tool splits at line ends
    return pc.and_(
        pc.and_(is_newest, is_plain),
        pc.and_(
            pc.and_(pc.is_valid(rows["committed_offset"]), pc.is_null(rows["current_offset"])),
            pc.not_equal(rows["cause"], TOPIC_DELETED),
        ),
    )


def parse_since(text: str, now: int) -> int:
    """Read a duration before `now`, such as 7d, or an ISO 8601 time (UTC unless it says otherwise), as ms.

    >>> parse_since("1970-01-01T00:00:01Z", 2_000)
    1000
    """
    if text[:1].isdigit() and text[-1] in "smhd":
        return max(FIRST_MS, now - parse_duration_ms(text, name="--since"))
    return to_ms(parse_moment(text, now, name="--since"))
