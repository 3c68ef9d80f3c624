"""Keeps the bodies of scrapes, rebuilt every 15 seconds on a thread while somebody scrapes."""

import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final, NamedTuple

from streaming.common.rate_limits import OnDemand, OngoingProblems
from streaming.common.retries import raise_if_ending
from streaming.serve.metrics.exposition import CONTENT_TYPES, Exposition, Format, Pieces, written, zipped
from streaming.serve.metrics.source import MetricsSource

_log = logging.getLogger(__name__)

EVERY_S: Final = 15.0
"""The interval of builds while somebody scrapes."""

IDLE_S: Final = 300.0
"""After this time without a scrape (of a variant, or at all) nothing is built."""

_OLDEST_S: Final = 60.0
"""Older bodies are not returned: their build hangs."""

_WAIT_S: Final = 60.0


class Variant(NamedTuple):
    """A format, compressed or not."""

    style: Format = "text"
    is_zipped: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Body:
    """A response body, when its build began (monotonic), and its unique ETag."""

    pieces: Pieces
    variant: Variant
    etag: str
    made_at: float

    @property
    def length(self) -> int:
        """The size in bytes."""
        return sum(map(len, self.pieces))

    @property
    def content_type(self) -> str:
        return CONTENT_TYPES[self.variant.style]


class Publisher(OnDemand):
    """Builds bodies from `sources`, one per cluster, within a `with` block; its argument is how long the last
    build took (s; None: there was none)."""

    def __init__(
        self,
        sources: Callable[[float | None], Sequence[MetricsSource]],
        exposition: Exposition,
        *,
        every_s: float = EVERY_S,
    ) -> None:
        super().__init__("offsetlake-metrics")
        self._sources, self._exposition, self._every_s = sources, exposition, every_s
        self._problems = OngoingProblems(_log)
        self._bodies: dict[Variant, Body] = {}
        self._asked: dict[Variant, float] = {}
        self._began_at = -IDLE_S
        self._took_s: float | None = None
        self._nonce = secrets.token_hex(4)
        self._count = 0

    def ready(self, variant: Variant) -> Body | None:
        """Return the newest body of a variant; None: it is being built, ask again soon."""
        now = monotonic()
        with self.changed:
            is_new = now - self._asked.get(variant, -IDLE_S) >= IDLE_S
            self._asked[variant] = now
            body = self._bodies.get(variant)
            if is_new or body is None:
                self.changed.notify_all()
        return body if body is not None and now - body.made_at < _OLDEST_S else None

    def make(self) -> None:
        """Build the bodies of all requested variants, on the thread or without it."""
        with self.changed:
            self._began_at = began = monotonic()
            asked = [variant for variant, at in self._asked.items() if began - at < IDLE_S]
            self._count += 1
        families = self._exposition.families(*self._sources(self._took_s))
        for cluster, lacks in self._exposition.lacks.items():
            self._warn(cluster, lacks)
        plain = {variant.style: written(families, variant.style) for variant in asked}
        bodies = {
            variant: Body(
                pieces=zipped(plain[variant.style]) if variant.is_zipped else plain[variant.style],
                variant=variant,
                etag=f'"{self._nonce}-{self._count}-{variant.style}{"-gzip" if variant.is_zipped else ""}"',
                made_at=began,
            )
            for variant in asked
        }
        with self.changed:
            self._bodies, self._took_s = bodies, monotonic() - began

    def work(self) -> None:
        """Build the bodies; an error is logged."""
        try:
            self.make()
        except BaseException as error:  # the next build may succeed
            raise_if_ending(error)
            kind = type(error).__name__
            self._problems.make("metrics", f"building metrics failed, retrying: {kind}: {error}")
        else:
            self._problems.settle("metrics", "metrics are built again")

    def _warn(self, cluster: str, lacks: str) -> None:
        """Log once what the metrics of a cluster lack, and once that they no longer lack anything."""
        about, where = f"max_series {cluster}", f"cluster {cluster}: " if cluster else ""
        if lacks:
            self._problems.make(about, where + lacks)
        else:
            self._problems.settle(about, f"{where}metrics: no group is withheld any more")

    def wait_s(self) -> float:
        """Return the seconds until the next build is due: less where a variant has no body yet."""
        now = monotonic()
        asked = [variant for variant, at in self._asked.items() if now - at < IDLE_S]
        if not asked:
            self._bodies = {}
            return _WAIT_S
        has_all = all(
            variant in self._bodies and now - self._bodies[variant].made_at < _OLDEST_S for variant in asked
        )
        return self._began_at + (self._every_s if has_all else 1.0) - now
