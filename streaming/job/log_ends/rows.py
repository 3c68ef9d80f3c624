"""Converts the brokers' answers about log ends to rows of `log_ends`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from streaming.brokers.facts import TopicState
from streaming.brokers.log_end_reader import Round
from streaming.common.times import DAY_MS, HOUR_MS, day_of
from streaming.common.timestamps import to_timestamps
from streaming.model.schemas import LOG_ENDS

TOPICS_EVERY_MS: Final = HOUR_MS
"""Interval of rows about an unchanged topic: after a restart, the job no longer knows until when it has seen
an id."""

Row = tuple[int, str, str | None, int | None, int | None, int | None, str | None]
"""The columns of `log_ends` without the day; the time in ms."""


@dataclass(frozen=True)
class _Noted:
    """The last row about a topic (times in ms), and until when it was valid."""

    state: tuple[str | None, str | None]  # id and error
    written_at: int
    seen_at: int


class RowMaker:
    """Creates rows of rounds; remembers the rows about topics, to repeat them only after changes."""

    def __init__(self) -> None:
        self._noted: dict[str, _Noted] = {}
        self._written: Mapping[str, _Noted] = {}

    def written(self) -> None:
        """Confirm that the last rows are in the table; otherwise the next round creates them again."""
        self._written = self._noted

    def rows(self, answer: Round) -> pa.Table:
        """Return the rows of a round (schema `LOG_ENDS`), sorted by topic and partition."""
        at = answer.sampled_at
        self._noted = dict(self._written)
        rows = [_sample(answer, topic, number, end) for (topic, number), end in answer.ends.items()]
        for topic in answer.asked:
            rows += self._of_topic(at, topic, answer.topics[topic])
        self._noted = {topic: one for topic, one in self._noted.items() if at - one.seen_at < DAY_MS}
        rows.sort(key=lambda row: (row[1], -1 if row[3] is None else row[3], row[0]))
        return _as_table(rows)

    def _of_topic(self, at: int, topic: str, state: TopicState) -> list[Row]:
        """Return the rows that are due about a whole topic, and remember them.

        After a change of its id, the previous id gets a last row at the time it was last seen.
        """
        now = (state.topic_id, state.error)
        noted = self._written.get(topic)
        is_same = noted is not None and noted.state == now
        if noted is not None and is_same and 0 <= at - noted.written_at < TOPICS_EVERY_MS:
            self._noted[topic] = replace(noted, seen_at=at)
            return []
        self._noted[topic] = _Noted(now, written_at=at, seen_at=at)
        row: Row = (at, topic, state.topic_id, None, None, None, state.error)
        if noted is None or is_same or noted.state[0] is None or noted.seen_at == noted.written_at:
            return [row]
        return [(noted.seen_at, topic, noted.state[0], None, None, None, None), row]


def _sample(answer: Round, topic: str, number: int, end: int | str) -> Row:
    at, topic_id = answer.sampled_at, answer.topics[topic].topic_id
    if isinstance(end, str):
        return (at, topic, topic_id, number, None, None, end)
    start = answer.starts.get((topic, number))
    if start is not None and start > end:  # from before an unclean leader election, which truncated the log
        start = None
    return (at, topic, topic_id, number, start, end, None)


def _as_table(rows: list[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * (len(LOG_ENDS) - 1)
    days = {at: day_of(at) for at in set(columns[0])}
    values = [
        to_timestamps(pa.array(columns[0], pa.int64())),
        *(
            pa.array(column, field.type)
            for column, field in zip(columns[1:], list(LOG_ENDS)[1:], strict=False)
        ),
        pa.array([days[at] for at in columns[0]], pa.date32()),
    ]
    return pa.table(values, schema=LOG_ENDS)
