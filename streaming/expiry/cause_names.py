"""The causes of removed offsets, as in the column `cause`."""

from typing import Final

EXPIRED: Final = "expired (probable)"
DELETED: Final = "deleted"
TOPIC_DELETED: Final = "topic deleted (probable)"
GONE_WHILE_AWAY: Final = "gone while away"
UNKNOWN: Final = "unknown"

CAUSES: Final = (EXPIRED, DELETED, TOPIC_DELETED, GONE_WHILE_AWAY, UNKNOWN)
"""All values of `cause`. Only a rebuild, which compares offsets and sees no tombstones, writes `gone while
away`: for offsets that were not known to be due."""
