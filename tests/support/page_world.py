"""Tables for tests of the pages of `serve`: those of metrics, and names as bad as a broker lets them be.

One group has 5,000 partitions and one 3,000 members; more groups can be asked for.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hostile_names import NAMES
from log_end_rows import Sample, rows_of
from metrics_world import MINUTES, MetricsWorld
from table_batches import Batch, Row, group, offset

from streaming.common.times import DAY_MS, HOUR_MS, MINUTE_MS

PARTITIONS: Final = 5_000
"""Partitions of the group `wide`."""

MEMBERS: Final = 3_000
"""Members of the group `populous`."""

HOSTILE: Final = list(
    dict.fromkeys(
        [
            *NAMES,
            "<script>alert(1)</script>",
            "</title><script>alert(1)</script>",
            '"><img src=x onerror=alert(1)>',
            "' onmouseover='alert(1)",
            "</script><svg onload=alert(1)>",
            "<!--",
            "]]>",
            "{{ 7 * 7 }}",
            "javascript:alert(1)",
            "&lt;b&gt;&amp;",
            "=1+1",
            "+1",
            "-1",
            "@SUM(A1)",
            "\ttab",
            "return\rhere",
            "zero\u200bwidth",
            "zerowidth",
            "paypal",
            "p\u0430ypal",
            "\u0440aypal",
            "a&group=b",
            "a#b",
            "a%00b",
            "a+b",
            "a  b",
            "a b",
            "a/b?c=d;e",
            '"" #e3b0c4',  # as the empty name is shown
            "x" * 300,
            "x" * 150 + "y" + "x" * 149,
            "\U0001f422" * 500,
            "\u00e9" * 16_383 + "z",  # 32,767 bytes
            "\u00e9" * 16_383 + "y",
            "&" * 400,
        ]
    )
)
"""Names of groups; each is also a client id, a host, and the metadata of a commit."""

TOPICS: Final = ['<script>alert("t")</script>', "t\u202ereversed", "=topic", "a&b", "nul\0topic", ""]
"""Names of topics: a copy of the offsets topic can hold any."""


class PageWorld(MetricsWorld):
    """`crowd` more groups are named `console-consumer-00000` and so on. All that is hostile was committed
    three minutes before `now`, went back since, and one offset of each group was removed."""

    def __init__(self, root: Path, now: int, *, crowd: int = 0) -> None:
        super().__init__(root, now)
        self._now = now
        then = now - 3 * MINUTE_MS
        self._write(then, {**self._hostile(then), **_wide(then), **_populous(then), **_crowd(then, crowd)})
        again: Batch = {}
        for name in HOSTILE:
            again[name, _topic_of(name), 0] = _commit(50, now - 1_000, name)
            again[name, "orders", 1] = None
        self._write(now - 1_000, again)
        self.write(now, {("gone", "payments", number): None for number in range(100, 120)})
        self.tables.append_log_ends(
            rows_of(
                [Sample(now - minute * MINUTE_MS, topic, 0, 5_000) for topic in TOPICS for minute in (0, 4)]
            )
        )
        self.evaluate(now)

    def write(self, at: int, batch: Batch) -> None:
        """Write a batch, and the log ends at its moment."""
        self._write(at, batch)
        self._sample([at])

    def _hostile(self, at: int) -> Batch:
        since = at - 7 * DAY_MS + HOUR_MS
        batch: Batch = {}
        for number, name in enumerate(HOSTILE):
            is_empty = number % 4 == 0
            state = {"state": "Empty", "state_timestamp": since} if is_empty else {"members": [_member(name)]}
            batch[name] = group(source_partition=0, subscribed_topics=[_topic_of(name)], **state)
            batch[name, _topic_of(name), 0] = _commit(4_000, since if is_empty else at, name)
            batch[name, "orders", 1] = _commit(7, at, name)
        return batch


def named_offset(name: str) -> Mapping[str, object]:
    """The offset that each hostile group has."""
    return {"group": name, "topic": _topic_of(name), "partition": 0}


def _topic_of(name: str) -> str:
    return TOPICS[len(name) % len(TOPICS)]


def _commit(committed: int, at: int, metadata: str = "") -> Row:
    return offset(
        committed_offset=committed,
        commit_timestamp=at,
        source_timestamp=at,
        source_partition=0,
        metadata=metadata,
    )


def _member(name: str) -> Row:
    return {
        "member_id": f"{name}-1",
        "group_instance_id": name,
        "client_id": name,
        "client_host": f"/{name}",
        "subscribed_topics": [_topic_of(name)],
        "assignment": [{"topic": _topic_of(name), "topic_id": None, "partitions": [0]}],
    }


def _wide(at: int) -> Batch:
    keys = [("wide", "wide", number) for number in range(PARTITIONS)]
    return {**{key: _commit(7, at, "m" * 200) for key in keys}, "wide": group(source_partition=0)}


def _populous(at: int) -> Batch:
    members = [
        {
            "member_id": f"populous-{number}-{'x' * 60}",
            "client_id": f"client-{number}",
            "client_host": "/10.0.0.1",
            "assignment": [{"topic": "orders", "topic_id": None, "partitions": [number]}],
        }
        for number in range(MEMBERS)
    ]
    return {"populous": group(source_partition=0, members=members, subscribed_topics=["orders"])}


def _crowd(at: int, count: int) -> Batch:
    names = [f"console-consumer-{number:05}" for number in range(count)]
    own: Batch = {(name, "payments", 0): _commit(7, at) for name in names}
    return {**own, **{name: group(source_partition=0, state="Empty", state_timestamp=at) for name in names}}


AGE_MS: Final = MINUTES * MINUTE_MS
"""The history of these tables."""
