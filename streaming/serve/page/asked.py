"""One request for a page: its parameters, and the snapshot and assessment that answer it."""

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

from streaming.common.times import is_now, parse_moment
from streaming.common.topics import TopicPartitions
from streaming.lag.health_rules import HealthRules
from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.queries.as_of import AsOf
from streaming.queries.bound.lag import SnapshotLagQueries
from streaming.queries.bound.offsets import SnapshotQueries
from streaming.serve.assessment.assessment import Assessment, retention_ms_of
from streaming.serve.assessment.cluster import ServedCluster
from streaming.serve.assessment.counters import Counters
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.serve.page.rate import CommitRate
from streaming.settings.model import Settings
from streaming.tables.handles import TableHandles
from streaming.tables.held import HeldChanges, HeldRewinds
from streaming.tables.snapshot import Snapshot
from streaming.tables.tables import Tables

T = TypeVar("T")
P = ParamSpec("P")

PAGE_ROWS: Final = 100
"""The rows of a list on one page."""

_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")

_LONGEST_IN_ADDRESS: Final = 500
"""A longer name is referred to by its SHA-256: browsers and proxies limit addresses."""

_REMEMBERED: WeakKeyDictionary[Assessment, dict[Any, Any]] = WeakKeyDictionary()


class NotFoundError(OffsetlakeError):
    """The tables hold no such group, topic or offset, or there is no such page."""


class NotAssessedError(OffsetlakeError):
    """There is no assessment of the snapshot yet."""


class HeldAnswers:
    """Answers that took long, such as the history of a group with 10,000 partitions, for repeated requests:
    for `repeated` times as long as each took. So many viewers cost as much as one. Threads may share it."""

    def __init__(self, *, repeated: int = 20, clock: Callable[[], float] = time.monotonic) -> None:
        self._repeated: Final = repeated
        self._clock: Final = clock
        self._held: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()  # until when (s), and the answer
        self._lock: Final = Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the answer of a key, as it was made or repeated."""
        started = self._clock()
        with self._lock:
            until, held = self._held.get(key, (started, None))
        if started < until:
            found: T = held
            return found
        made = make()
        ended = self._clock()
        if (took := ended - started) >= _LONG_S:
            with self._lock:
                self._held[key] = ended + took * self._repeated, made
                self._held.move_to_end(key)
                if len(self._held) > _MOST_ANSWERS:
                    self._held.popitem(last=False)
        return made


_LONG_S: Final = 0.2
_MOST_ANSWERS: Final = 8  # of some MB each, if a group has 10,000 partitions


@dataclass(frozen=True, eq=False, kw_only=True)
class PageCluster:
    """A cluster of the pages, and how many commits a minute it has."""

    served: ServedCluster
    rate: CommitRate
    held: HeldChanges = field(default_factory=HeldChanges)
    rewinds: HeldRewinds = field(default_factory=HeldRewinds)
    answers: HeldAnswers = field(default_factory=HeldAnswers)
    handles: TableHandles = field(default_factory=TableHandles)

    @classmethod
    def of(cls, served: ServedCluster) -> Self:
        return cls(served=served, rate=CommitRate())

    @property
    def name(self) -> str:
        """The name of the cluster; empty if there is only one."""
        return self.served.name

    @property
    def settings(self) -> Settings:
        return self.served.settings

    @property
    def tables(self) -> Tables:
        return replace(self.served.tables, handles=self.handles)

    def snapshot(self) -> MemorySnapshot:
        return self.served.tailer.current

    def assessment(self) -> Assessment:
        return self.served.refresher.current()

    def failures(self) -> list[str]:
        return self.served.failures()

    def commits_per_minute(self, now: int) -> float | None:
        """Return the commits a minute before `now` (ms); None: not known yet."""
        counters = self.served.tailer.newest.counters
        if not isinstance(counters, Counters):
            return None
        return self.rate.per_minute(now, counters.commits_in_all)


@dataclass(frozen=True, eq=False, kw_only=True)
class Asked:
    """A request: the path without `.json` or `.csv`, the parameters of the address, the cluster, the present
    moment (ms), and all clusters."""

    path: str
    parameters: Mapping[str, str]
    cluster: PageCluster
    now: int
    clusters: Sequence[PageCluster] = ()
    _found: dict[str, str] = field(default_factory=dict, init=False)
    """Names by the parameters that have their SHA-256."""

    # --- parameters ------------------------------------------------------------------------------------

    def text(self, name: str, default: str = "") -> str:
        return self.parameters.get(name, default)

    def word(self, name: str, known: Sequence[str], default: str = "") -> str:
        """Return a parameter that is one of some words, or `default` if it is missing or empty."""
        found = self.text(name) or default
        if found != default and found not in known:
            raise MisuseError(f"{name}: expected one of {', '.join(known)}; found {found!r}.")
        return found

    def number(self, name: str, default: int, *, least: int, most: int | None = None) -> int:
        text = self.text(name)
        if not text:
            return default
        if not _NUMBER.fullmatch(text) or int(text) < least or (most is not None and int(text) > most):
            limits = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise MisuseError(f"{name}: expected a whole number {limits}, found {text!r}.")
        return int(text)

    def name(self, parameter: str, known: Callable[[], Sequence[str]]) -> str:
        """Return a name of a group or topic: in full, or by its SHA-256 among the `known` names of the
        present, and all names of the history."""
        if parameter in self.parameters:
            return self.parameters[parameter]
        if parameter not in self._found:
            self._found[parameter] = self._find_name(parameter, known)
        return self._found[parameter]

    def _find_name(self, parameter: str, known: Callable[[], Sequence[str]]) -> str:
        wanted = self.text(f"{parameter}_sha256")
        found = _named(wanted, known()) if wanted else None
        if wanted and found is None:
            found = self._named_in_history(parameter, wanted)
        if found is None:
            raise NotFoundError(f"{self.path}: expected the parameter {parameter}, found none that is known.")
        return found

    def _named_in_history(self, parameter: str, wanted: str) -> str | None:
        """Return the group or topic with a SHA-256 among those that ever changed; None: there is none."""
        return self.ask(
            lambda tables: _named(wanted, tables.at.newest().changed_names(parameter)),
            held_as=("name", parameter, wanted),
        )

    @cached_property
    def as_of(self) -> int | None:
        """The past moment (ms) asked for; None: the present."""
        text = self.text("as_of")
        return parse_moment(text, self.now, name="as_of").ms if text and not is_now(text) else None

    @property
    def past(self) -> str | None:
        """The past moment as it stands in the address, for links; None: the present."""
        return self.text("as_of") or None

    # --- links -----------------------------------------------------------------------------------------

    def url(self, path: str, /, **parameters: object) -> str:
        """Return a link; parameters that are None are left out, and the cluster is kept."""
        given = {"cluster": self.cluster.name} if self.cluster.name else {}
        for name, value in parameters.items():
            if value is not None:
                key, text = _in_address(name, str(value))
                given[key] = text
        return f"{path}?{urlencode(given)}" if given else path

    def hidden(self, name: str, value: str) -> tuple[str, str]:
        """Return the name and value of a hidden field of a form, for a group or topic.

        Browsers change line ends and NUL in fields, so such names are referred to as long ones.
        """
        is_altered = any(char in value for char in "\r\n\0")
        return (f"{name}_sha256", fingerprint(value)) if is_altered else _in_address(name, value)

    def here(self, /, **changed: object) -> str:
        """Return a link to the same page with some parameters changed; None removes one."""
        kept = {name: value for name, value in self.parameters.items() if name != "cluster"}
        return self.url(self.path, **{**kept, **changed})

    def here_as(self, path: str, ending: str) -> str:
        """Return a link to the rows of a page with the parameters of this one."""
        kept = {name: value for name, value in self.parameters.items() if name not in ("cluster", "page")}
        return self.url(f"{path}.{ending}", **kept)

    # --- data ------------------------------------------------------------------------------------------

    @cached_property
    def assessment(self) -> Assessment:
        """The newest assessment as of now; raises `NotAssessedError` if there is none of what was read."""
        return self._newest_assessment.as_of(self.now)

    @cached_property
    def _newest_assessment(self) -> Assessment:
        found = self.cluster.assessment()
        if not found.moment and self.snapshot.progress.partitions:
            raise NotAssessedError(
                "Lag, health and expiry of groups have not been computed yet, or cannot be. Reload in some "
                "seconds; if this lasts, see the log of `offsetlake serve`."
            )
        return found

    @cached_property
    def snapshot(self) -> MemorySnapshot:
        return self.cluster.snapshot()

    @cached_property
    def about(self) -> AsOf:
        """How complete the snapshot in memory is now."""
        within_ms = self.cluster.settings.tables.complete_within_ms
        return AsOf.of(None, self.snapshot.progress, now=self.now, within_ms=within_ms)

    @property
    def retention_ms(self) -> int | None:
        """How long brokers keep offsets (ms); None: unknown."""
        return retention_ms_of(self.snapshot.progress, self.cluster.settings.expiry)

    def remembered(
        self, make: Callable[Concatenate[Assessment, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        """Return what `make` makes of the assessment and some values, once for each assessment, and again
        when more of its samples are too old."""
        newest, current = self._newest_assessment, self.assessment
        known = None if current is newest else current.known_ends
        held, key = _REMEMBERED.setdefault(newest, {}), (make, known, args, tuple(named.items()))
        if key not in held:
            held[key] = make(current, *args, **named)
        found: T = held[key]
        return found

    def ask(
        self,
        question: "Callable[[AskedTables], T]",
        *,
        about: str | None = None,
        topics: Sequence[TopicPartitions] = (),
        held_as: Sequence[Hashable] = (),
    ) -> T:
        """Return the answer of one snapshot of the tables, as of the moment asked for.

        The changes of the group that it is `about` are held in memory, also for later requests; if they are
        too many, only the changes of its offsets of `topics`. An answer with a name (`held_as`) that took
        long is repeated for a while; it must depend only on this name, the cluster and the moment.
        """
        cluster = self.cluster

        def ask(at: Snapshot) -> T:
            if about is not None:
                at.hold(about, cluster.held, topics)
            return question(AskedTables(at, cluster.settings))

        def answer() -> T:
            return cluster.tables.ask(ask, as_of=self.as_of, now=self.now)

        return cluster.answers.get((*held_as, self.past), answer) if held_as else answer()


@dataclass(frozen=True)
class AskedTables:
    """One snapshot of the tables, and the queries of it."""

    at: Snapshot
    settings: Settings

    @cached_property
    def offsets(self) -> SnapshotQueries:
        return SnapshotQueries(self.at)

    def start(self, since: int) -> int:
        """Return a moment (ms), or the start of the kept history if that is later."""
        return min(self.at.moment - 1, max(since, self.at.starts_after(since) or since))

    @cached_property
    def lag(self) -> SnapshotLagQueries:
        return SnapshotLagQueries(self.at, rules=HealthRules.of(self.settings.health))


def fingerprint(name: str) -> str:
    """Return the SHA-256 of a name, in hexadecimal.

    >>> fingerprint("billing")[:8]
    '0c95c7ec'
    """
    return hashlib.sha256(name.encode()).hexdigest()


def _named(wanted: str, names: Iterable[str]) -> str | None:
    return next((name for name in names if fingerprint(name) == wanted), None)


def _in_address(name: str, value: str) -> tuple[str, str]:
    if name in ("group", "topic") and len(value) > _LONGEST_IN_ADDRESS:
        return f"{name}_sha256", fingerprint(value)
    return name, value
