"""Alerts are evaluated and delivered whatever numbers clients have committed: from -2^63 to 2^63 - 1."""

import json
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from alert_tables import DAY, HOUR, Lake, alert_settings
from test_lag_alerts import ALL_ON, WITH_MEMBERS

from streaming.alerts.receivers import receivers
from streaming.alerts.rules import GROUP_REWOUND, OFFSET_BELOW_LOG_START, OFFSET_EXPIRED, OFFSET_EXPIRING
from streaming.alerts.table import AlertTable
from streaming.common.times import MINUTE_MS
from streaming.expiry.causes import EXPIRED
from streaming.lag.log_ranges import Partition, lag
from streaming.model.progress import Retention

LEAST, MOST = -(2**63), 2**63 - 1
NUMBERS = (LEAST, LEAST + 1, -1, 0, 2**62, MOST - 1, MOST)
PLACE = ("orders", 0)
START = 150
"""Of the log."""


def group_of(place: int, moment: int, expires: int | None) -> str:
    return f"{place} {moment} {expires}"


def commit_all(lake: Lake, numbers: tuple[int, ...]) -> None:
    """Commit each number, with extreme moments, in a group of its place, and a plain one beside them."""
    rows = []
    for (place, committed), moment, expires in product(
        enumerate(numbers), (LEAST, 0, MOST), (None, LEAST, MOST)
    ):
        group = group_of(place, moment, expires)
        after = {"committed_offset": committed, "metadata": ""}
        after |= {"commit_timestamp": moment, "expire_timestamp": expires}
        rows.append(lake._change("offset", group, PLACE, after, lake.now))
        rows.append(lake._change("group", group, (None, None), dict(WITH_MEMBERS), lake.now))
    lake._append(rows, 0)
    lake.commit(
        "plain", PLACE, offset=100, commit_timestamp=lake.now - 6 * DAY, expire_timestamp=lake.now + HOUR
    )


@pytest.mark.parametrize("retention_ms", [1, pytest.param(MOST, marks=pytest.mark.more)])
def test_extreme_numbers_are_judged_and_reported_and_hide_nothing_beside_them(
    tmp_path: Path, retention_ms: int
) -> None:
    def ask(_: object) -> dict[Partition, SimpleNamespace]:
        return {PLACE: SimpleNamespace(earliest=START)}

    lake = Lake(tmp_path)
    known = {"check_interval_ms": 1, "source": "broker", "read_at": lake.now, "known_since": lake.now}
    lake.retention = Retention(retention_ms=retention_ms, **known)
    evaluator = lake.evaluator(ALL_ON, ask_log_ranges=ask)
    for numbers in (NUMBERS, NUMBERS[::-1]):
        commit_all(lake, numbers)
        for end in (0, MOST):
            lake.pass_time(MINUTE_MS)
            lake.sample({PLACE: end})
            evaluator.evaluate()
    lake.drop("dropped", PLACE, cause=EXPIRED, before={"committed_offset": LEAST, "commit_timestamp": MOST})
    evaluator.evaluate()

    told = AlertTable(lake.tables).read().open_episodes()
    found = {(one.episode.rule, one.episode.finding.group): one.episode.finding for one in told}
    assert (OFFSET_EXPIRED.id, "dropped") in found
    below = {group: finding for (rule, group), finding in found.items() if rule == OFFSET_BELOW_LOG_START.id}
    by_number = {number: below.get(group_of(place, 0, None)) for place, number in enumerate(NUMBERS[::-1])}
    assert {
        number: finding and (finding.severity, finding.facts["offsets_gone"])
        for number, finding in by_number.items()
    } == {
        LEAST: ("warning", MOST),
        LEAST + 1: ("warning", MOST),
        -1: ("warning", START + 1),
        0: ("warning", START),
        **dict.fromkeys((2**62, MOST - 1, MOST)),
    }
    assert below["plain"].facts["offsets_gone"] == START - 100
    back = {str(group) for rule, group in found if rule == GROUP_REWOUND.id}
    assert {group for group in back if group.endswith(" 0 None")} == {
        group_of(place, 0, None) for place in (4, 5, 6)
    }
    lines: list[str] = []
    [log] = receivers(alert_settings(), write=lines.append, source={})
    log.send(told, lake.now)
    assert len([json.loads(line) for line in lines]) == len(told)
    assert (OFFSET_EXPIRING.id, "plain") in found


def test_steps_back_between_any_numbers_are_counted_or_the_largest() -> None:
    pairs = [(before, after) for before, after in product(NUMBERS, NUMBERS) if after < before]
    before, after = (pa.array(numbers, pa.int64()) for numbers in zip(*pairs, strict=True))
    expected = [min(one - other, MOST) for one, other in pairs]
    assert lag(before, pa.chunked_array([after])).to_pylist() == expected
