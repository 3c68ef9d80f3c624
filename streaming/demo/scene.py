"""The content of the tables, and the changes of groups and offsets while the demo runs (pure)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple

from streaming.common.escapes import printable
from streaming.common.times import clock
from streaming.demo.broker_offsets import CommittedOffset, OffsetKey, shown_metadata
from streaming.tables.snapshot import LiveRows

Offsets = Mapping[OffsetKey, CommittedOffset]

_OFFSET_COLUMNS: Final = ("group", "topic", "partition", "committed_offset", "leader_epoch", "metadata")


class LiveGroup(NamedTuple):
    type: str
    state: str


@dataclass(frozen=True, kw_only=True)
class Event:
    """A change, in words, and when it was seen (ms)."""

    seen_at: int
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The live groups and offsets as of the last heartbeat (ms), and the events until then.

    `changes` has the difference of each offset from the previous scene; None: it is new. `lags` has the known
    lags, as of the last sample of log ends. `unanswered_since` (ms): since when the broker has not answered
    the job; None: it answers.
    """

    as_of: int = 0
    groups: Mapping[str, LiveGroup] = field(default_factory=dict)
    offsets: Offsets = field(default_factory=dict)
    changes: Mapping[OffsetKey, int | None] = field(default_factory=dict)
    lags: Mapping[OffsetKey, int] = field(default_factory=dict)
    unanswered_since: int | None = None
    events: tuple[Event, ...] = ()

    def after(self, rows: LiveRows, now: int, lags: Mapping[OffsetKey, int] | None = None) -> "Scene":
        """Return the scene after another read of the tables, at `now` (ms)."""
        groups = {
            row["group"]: LiveGroup(row["type"], row["state"])
            for row in rows.groups.select(["group", "type", "state"]).to_pylist()
        }
        offsets = table_offsets(rows)
        silences = [one.unanswered_since for one in rows.progress.partitions.values()]
        silent_since = min((since for since in silences if since is not None), default=None)
        sentences = [
            *_of_groups(self.groups, groups),
            *_of_offsets(self.offsets, offsets),
            *_of_the_broker(self.unanswered_since, silent_since),
        ]
        return Scene(
            as_of=rows.progress.heartbeat,
            groups=groups,
            offsets=offsets,
            changes={key: _change(self.offsets.get(key), committed) for key, committed in offsets.items()},
            lags=lags or {},
            unanswered_since=silent_since,
            events=self.events + tuple(Event(seen_at=now, sentence=sentence) for sentence in sentences),
        )


def table_offsets(rows: LiveRows) -> dict[OffsetKey, CommittedOffset]:
    """Return the offsets of the tables as a client gets them from a broker."""
    return {
        OffsetKey(row["group"], row["topic"], row["partition"]): CommittedOffset(
            row["committed_offset"], row["leader_epoch"], shown_metadata(row["metadata"])
        )
        for row in rows.offsets.select(_OFFSET_COLUMNS).to_pylist()
    }


def _change(before: CommittedOffset | None, after: CommittedOffset) -> int | None:
    return None if before is None else after.offset - before.offset


def _of_the_broker(before: int | None, after: int | None) -> Iterator[str]:
    if before is None and after is not None:
        yield f"the broker does not answer since {clock(after)}: the tables do not change"
    if before is not None and after is None:
        yield "the broker answers again"


def _of_groups(before: Mapping[str, LiveGroup], after: Mapping[str, LiveGroup]) -> Iterator[str]:
    for name in sorted(after.keys() - before.keys()):
        yield f"group {printable(name)} appeared"
    for name in sorted(before.keys() - after.keys()):
        yield f"group {printable(name)} vanished"


def _of_offsets(before: Offsets, after: Offsets) -> Iterator[str]:
    """Yield removed offsets and rewinds, one sentence for each group and topic."""
    for group, topic, keys in _by_topic(before.keys() - after.keys()):
        partitions = ", ".join(str(key.partition) for key in keys)
        yield f"offsets of {printable(group)} removed: {printable(topic)}:{partitions}"
    rewound = {key for key in before.keys() & after.keys() if after[key].offset < before[key].offset}
    for group, topic, (first, *others) in _by_topic(rewound):
        more = f", and {len(others)} more partitions" if len(others) > 1 else ", and 1 more partition"
        yield (
            f"{printable(group)} rewound {printable(topic)}:{first.partition} "
            f"from {before[first].offset} to {after[first].offset}{more if others else ''}"
        )


def _by_topic(keys: set[OffsetKey]) -> Iterator[tuple[str, str, list[OffsetKey]]]:
    for (group, topic), of_topic in groupby(sorted(keys), key=lambda key: (key.group, key.topic)):
        yield group, topic, list(of_topic)
