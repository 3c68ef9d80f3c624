"""Why an offset was removed, by the names that tables and answers give it."""

from typing import Final

EXPIRED: Final = "expired (probable)"
DELETED: Final = "deleted"
TOPIC_DELETED: Final = "topic deleted (probable)"
GONE_WHILE_AWAY: Final = "gone while away"
UNKNOWN: Final = "unknown"

CAUSES: Final = (EXPIRED, DELETED, TOPIC_DELETED, GONE_WHILE_AWAY, UNKNOWN)
"""All that `cause` can be. `gone while away` is said by a rebuild, which compares and sees no tombstone, of
what was not due."""
