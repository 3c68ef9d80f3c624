"""The causes of removed offsets, as in the column `cause`."""

from typing import Final

EXPIRED: Final = "expired (probable)"
DELETED: Final = "deleted"
TOPIC_DELETED: Final = "topic deleted (probable)"
GONE_WHILE_AWAY: Final = "gone while away"
UNKNOWN: Final = "unknown"

CAUSES: Final = (EXPIRED, DELETED, TOPIC_DELETED, GONE_WHILE_AWAY, UNKNOWN)
"""All values of `cause`. Only a rebuild writes `gone while away`: it compares offsets and sees no
tombstones. It means an offset that was not due."""
