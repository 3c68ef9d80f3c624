"""What the words in lists mean: marks of rows, and the rules of expiry.

A word is written with `cells.term`; below a list stand the meanings of those that its rows have.
"""

from collections.abc import Mapping
from typing import Final

from streaming.assessment.explained import MARKERS

NOT_COMPLETE: Final = "not complete"
RECREATED: Final = "recreated topic"
NOT_SUBSCRIBED: Final = "not subscribed"
DELETED: Final = "deleted"
RECREATED_AT: Final = "recreated"

_MARKS: Final = {
    NOT_COMPLETE: "Newer commits may not have been read yet.",
    RECREATED: "Committed before the topic was deleted and created again: it points into the former log.",
    DELETED: (
        "The topic did not exist when the job last asked for it, at the time beside the word. Groups still "
        "have offsets of it."
    ),
    RECREATED_AT: (
        "The topic was deleted and created again, at the time beside the word or before. Groups still have "
        "offsets of the former topic."
    ),
    NOT_SUBSCRIBED: "The group no longer subscribes to this topic.",
    MARKERS: (
        "The lag time is unknown: the unread records may be transaction markers, which consumers never get."
    ),
}

_NOT_COMMITTED: Final = "expires if it is not committed for the retention time"
_NEVER: Final = "does not expire"

RULES: Final[Mapping[str, str]] = {
    "explicit": "It was committed with a retention time of its own.",
    "simple": f"No consumer ever joined the group: the offset {_NOT_COMMITTED}.",
    "classic empty": "The group has no members: its offsets expire the retention time after it became empty.",
    "classic empty (since unknown)": (
        f"The group has no members, and it is not known since when: the offset {_NOT_COMMITTED}."
    ),
    "classic not subscribed": f"No member subscribes to the topic: the offset {_NOT_COMMITTED}.",
    "classic subscribed": f"A member subscribes to the topic: the offset {_NEVER}.",
    "classic subscription unreadable": f"The subscription of a member cannot be read: the offset {_NEVER}.",
    "classic other protocol": f"The members are no consumers, such as Kafka Connect: the offset {_NEVER}.",
    "classic rebalancing": f"The group is rebalancing: the offset {_NEVER}.",
    "consumer empty": f"The group has no members: the offset {_NOT_COMMITTED}.",
    "consumer not subscribed": f"No member reads the topic: the offset {_NOT_COMMITTED}.",
    "consumer subscribed": f"A member reads the topic: the offset {_NEVER}.",
    "streams empty": f"The group has no members: the offset {_NOT_COMMITTED}.",
    "streams not subscribed": f"No member reads the topic: the offset {_NOT_COMMITTED}.",
    "streams subscribed": f"A member reads the topic: the offset {_NEVER}.",
    "share": "A share group keeps its positions elsewhere.",
    "no group": "The group does not exist any more.",
    "unknown (unreadable)": "A newer commit could not be read: the expiry is not known.",
    "unknown (stalled)": "An open transaction hides newer commits: the expiry is not known.",
    "unknown (group)": "Too little is known about the group: the expiry is not known.",
}
"""The meaning of each rule of expiry."""

MEANINGS: Final[Mapping[str, str]] = {**_MARKS, **RULES}
