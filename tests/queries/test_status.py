"""What `offsetlake status` shows of a progress."""

from dataclasses import replace

import pyarrow as pa

from streaming.model.completeness import COMPLETE_WITHIN_MS
from streaming.model.progress import PartitionEnds, Progress
from streaming.model.totals import Position, Totals, UnknownRecords
from streaming.queries.as_of import AsOf
from streaming.queries.status import STATUS, TOTALS, partitions, totals

NOW = 1_700_000_000_000


def test_status_has_a_row_per_partition_in_order() -> None:
    progress = Progress().with_positions({2: 4, 10: 7, 1: 9})
    progress = progress.with_ends({10: PartitionEnds(7, 8), 1: PartitionEnds(9, 9)}, NOW)
    now = NOW + COMPLETE_WITHIN_MS + 1
    progress = replace(progress.with_ends({1: PartitionEnds(9, 9)}, now), heartbeat=now)
    rows = partitions(AsOf.of(None, progress, now=now))
    assert rows.schema == STATUS
    known = {1: ("current", 0, True), 10: ("stalled", 0, True)}
    names = ["state", "behind", "loaded"]
    assert rows.select(["partition", *names]).to_pylist() == [
        {"partition": number, **dict(zip(names, known.get(number, ("loading", None, False)), strict=True))}
        for number in range(11)
    ]
    assert rows["open_transaction_since"].cast(pa.int64()).to_pylist() == [*[None] * 10, NOW * 1_000]


def test_status_of_nothing_is_empty() -> None:
    assert partitions(AsOf.of(None, Progress(), now=NOW)).to_pylist() == []


def test_totals_have_a_row_per_counter_and_unknown_kind() -> None:
    unknown = UnknownRecords(
        record_type=99, value_version=None, count=5, first=Position(1, 2), last=Position(3, 4)
    )
    counted = Totals(
        decoded=4,
        tombstones=3,
        malformed=2,
        wrong_partition=6,
        clamped=1,
        unknown_others=7,
        unknown=(unknown,),
    )
    rows = totals(Progress(totals=counted))
    assert rows.schema == TOTALS
    assert dict(zip(*rows.select(["counter", "count"]).to_pydict().values(), strict=True)) == {
        "decoded": 4,
        "tombstones": 3,
        "malformed": 2,
        "wrong_partition": 6,
        "clamped": 1,
        "unknown_others": 7,
        "unknown": 5,
    }
    assert list(rows.to_pylist()[-1].values()) == ["unknown", 5, 99, None, 1, 2, 3, 4]
