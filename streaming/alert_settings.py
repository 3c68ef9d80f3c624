"""The settings of `[alerts]`: when people are warned, about which groups, and where."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GroupAlerts:
    """How groups that match a pattern (`*`, `?`, `[...]` as in a shell) are treated; None = as all are."""

    pattern: str
    treat: str
    warning_ms: int | None
    critical_ms: int | None


@dataclass(frozen=True, kw_only=True)
class WebhookSettings:
    """Where alerts are posted as JSON; an empty `url` is nowhere."""

    url: str
    headers: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class AlertmanagerSettings:
    """Which Prometheus Alertmanager is told of alerts; an empty `url` is none."""

    url: str
    repeat_every_ms: int
    headers: Mapping[str, str]
    labels: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class AlertSettings:
    """When people are warned, about which groups, and where.

    Of `groups` the first whose pattern matches counts.
    """

    evaluate_every_ms: int
    warning_ms: int
    critical_ms: int
    behind_warning_ms: int
    behind_critical_ms: int
    log_start_every_ms: int
    close_after_ms: int
    log: str
    timeout_ms: int
    groups: tuple[GroupAlerts, ...]
    webhook: WebhookSettings
    alertmanager: AlertmanagerSettings
