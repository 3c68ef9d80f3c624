"""Alerts from the tables: rules find problems, episodes record them, receivers are notified.

`rules` has every rule; `watch` evaluates them and delivers.
"""

from typing import TYPE_CHECKING

from streaming.common.lazily import lazily

if TYPE_CHECKING:
    from streaming.alerts.listing import list_alerts
    from streaming.alerts.watch import AlertWatch

__all__ = ["AlertWatch", "list_alerts"]

__getattr__ = lazily({"AlertWatch": "streaming.alerts.watch", "list_alerts": "streaming.alerts.listing"})
