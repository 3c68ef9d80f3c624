"""The tables in memory: immutable columns with an index by group, advanced as the tables change.

`Follower` keeps the newest `Picture`; doors take it from there, and read no table.
"""

from typing import TYPE_CHECKING

from streaming.common.lazily import lazily

if TYPE_CHECKING:
    from streaming.serve.picture.follower import Follower
    from streaming.serve.picture.picture import Picture

__all__ = ["Follower", "Picture"]

__getattr__ = lazily(
    {"Follower": "streaming.serve.picture.follower", "Picture": "streaming.serve.picture.picture"}
)
