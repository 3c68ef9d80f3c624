"""Answers addresses with pages: HTML, or the rows of the same page as JSON or CSV."""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final, Literal, cast

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from streaming.common.escapes import json_text
from streaming.common.row_lines import csv_pieces, document_pieces
from streaming.common.times import in_words, iso
from streaming.model.errors import MisuseError, OffsetlakeError
from streaming.queries.as_of import AsOf
from streaming.queries.reset_csv import reset_lines
from streaming.serve.page import cells, charts
from streaming.serve.page.asked import Asked, NotFoundError, PageCluster
from streaming.serve.page.notes import MEANINGS
from streaming.serve.page.view import Document, Page
from streaming.serve.page.views import (
    alerts,
    clusters,
    expiring,
    group,
    group_history,
    groups,
    leftovers,
    offset,
    overview,
    removed,
    status,
    topics,
)
from streaming.tables.progress_rows import HistoryGoneError

Format = Literal["html", "json", "csv", "reset-csv"]

_HERE: Final = Path(__file__).parent

STATIC: Final = _HERE / "static"
"""The files that pages refer to, under `/static/`."""

_TYPES: Final[Mapping[Format, str]] = {
    "html": "text/html; charset=utf-8",
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "reset-csv": "text/csv; charset=utf-8",
}

_AGES_MS: Final = 10_000
"""After this time a page is another one even if nothing has happened: it says how long ago things were."""

_CACHED_BYTES: Final = 16 * 1024 * 1024
_CACHED_AT_MOST: Final = 1024 * 1024


@dataclass(frozen=True)
class View:
    """A page: functions for its content and for its rows, which it has in some formats.

    `is_slow`: its content is read from the tables, not from memory. `is_held`: whether memory has the content
    of a request; if not, it is read from the tables, too. `has_past`: it takes as_of.
    `is_assessed`: it shows the assessment, not newer batches; its rows may be of newer ones.
    """

    page: Callable[[Asked], Page]
    document: Callable[[Asked], Document]
    formats: tuple[str, ...] = ("json", "csv")
    is_slow: bool = False
    is_held: Callable[[Asked], bool] = lambda _: True
    has_past: bool = False
    is_assessed: bool = False


VIEWS: Final[Mapping[str, View]] = {
    "/": View(overview.page, overview.document),
    "/clusters": View(clusters.page, clusters.document),
    "/events": View(overview.events, overview.events_document, is_slow=True),
    "/groups": View(groups.page, groups.document, is_assessed=True),
    "/group": View(group.page, group.document, is_held=group.is_held, has_past=True, is_assessed=True),
    "/group/history": View(group_history.page, group_history.document, is_slow=True, has_past=True),
    "/offset": View(offset.page, offset.document, is_held=offset.is_held, has_past=True, is_assessed=True),
    "/offset/history": View(offset.history, offset.document, is_slow=True, has_past=True),
    "/topics": View(topics.page, topics.document, is_assessed=True),
    "/topic": View(topics.one, topics.one_document, is_assessed=True),
    "/expiring": View(expiring.page, expiring.document, is_assessed=True),
    "/removed": View(removed.page, removed.document, ("json", "csv", "reset-csv"), is_slow=True),
    "/leftovers": View(leftovers.page, leftovers.document, is_assessed=True),
    "/alerts": View(alerts.page, alerts.document, is_slow=True),
    "/status": View(status.page, status.document),
}

_NAVIGATION: Final = (
    ("/", "Overview"),
    ("/groups", "Groups"),
    ("/topics", "Topics"),
    ("/expiring", "Expiring"),
    ("/removed", "Removed"),
    ("/leftovers", "Leftovers"),
    ("/alerts", "Alerts"),
    ("/status", "Status"),
)


@dataclass(frozen=True, kw_only=True)
class Response:
    """A response: its pieces are made as they are sent. `etag` None: it must not be kept."""

    status: int
    content_type: str
    pieces: Iterable[bytes]
    etag: str | None = None
    file_name: str | None = None


@dataclass(eq=False)
class Pages:
    """The pages of some clusters, the first one by default; `has_login`: viewers have signed in."""

    clusters: Sequence[PageCluster]
    has_login: bool = False
    _run: str = field(default_factory=lambda: secrets.token_hex(4))
    _templates: Environment = field(init=False)
    _cache: "_Cache" = field(init=False)

    def __post_init__(self) -> None:
        self._templates = environment()
        self._cache = _Cache()

    def address(self, path: str) -> tuple[View, str, Format] | None:
        """Return the view of a path, the path without `.json` or `.csv`, and the format; None: no page."""
        bare, dot, ending = path.rpartition(".")
        if not dot:
            return (VIEWS[path], path, "html") if path in VIEWS else None
        bare = "/" if bare == "/overview" else bare
        view = VIEWS.get(bare)
        if view is None or ending not in view.formats:
            return None
        return view, bare, cast(Format, ending)

    def is_file(self, path: str) -> bool:
        """Return whether an address is of the rows of a page: these are held until they are sent."""
        found = self.address(path)
        return found is not None and found[2] != "html"

    def tables_read(self, path: str, parameters: Mapping[str, str], now: int) -> str | None:
        """Return the cluster from whose tables an answer is read, so that it may take long; None: it is made
        from memory."""
        found, name = self.address(path), parameters.get("cluster")
        if found is None:
            return None
        view, bare, kind = found
        is_of_past = "as_of" in parameters or any(one.endswith("_sha256") for one in parameters)
        if not (view.is_slow or kind != "html" or is_of_past) and self._is_held(view, bare, parameters, now):
            return None
        return name if name in {cluster.name for cluster in self.clusters} else self.clusters[0].name

    def etag(self, path: str, parameters: Mapping[str, str], now: int) -> str | None:
        """Return what identifies the present content of a page; None: it has none."""
        try:
            asked = self._asked(path, parameters, now)
        except OffsetlakeError:
            return None
        wanted = self.clusters if path.startswith("/clusters") else [asked.cluster]
        found = self.address(path)
        is_assessed = found is not None and found[2] == "html" and found[0].is_assessed
        held = [_state_of(cluster, now, is_assessed=is_assessed) for cluster in wanted]
        return f'"{self._run}-{now // _AGES_MS}-{"-".join(held)}"'

    def respond(self, path: str, parameters: Mapping[str, str], now: int) -> Response:
        """Answer an address; errors are pages too."""
        found = self.address(path)
        if found is None:
            return self._error(404, "There is no such page.", path, parameters, now)
        view, bare, kind = found
        try:
            asked = self._asked(bare, parameters, now)
            if asked.past is not None and not view.has_past:
                raise MisuseError(
                    "as_of: expected for a group or an offset only, found it for another page. Remove it."
                )
            etag = self.etag(path, parameters, now)
            if kind == "html":
                key = (path, tuple(sorted(parameters.items())), etag)
                body = self._cache.get(key, lambda: self._html(view, asked))
                return Response(status=200, content_type=_TYPES["html"], pieces=[body], etag=etag)
            document = view.document(asked)
            return Response(
                status=200,
                content_type=_TYPES[kind],
                pieces=_WRITTEN[kind](document),
                etag=etag,
                file_name=f"{bare.strip('/').replace('/', '-') or 'overview'}.{kind.removeprefix('reset-')}",
            )
        except (NotFoundError, HistoryGoneError) as error:
            return self._error(404, str(error), path, parameters, now, kind)
        except MisuseError as error:
            return self._error(400, str(error), path, parameters, now, kind)
        except OffsetlakeError as error:
            return self._error(503, str(error), path, parameters, now, kind)

    # ---------------------------------------------------------------------------------------------------

    def _asked(self, path: str, parameters: Mapping[str, str], now: int) -> Asked:
        name = parameters.get("cluster")
        known = {cluster.name: cluster for cluster in self.clusters}
        if name is not None and name not in known:
            raise NotFoundError(f"cluster {name!r}: expected one of {', '.join(known)}, found another.")
        cluster = self.clusters[0] if name is None else known[name]
        return Asked(path=path, parameters=parameters, cluster=cluster, now=now, clusters=self.clusters)

    def _is_held(self, view: View, path: str, parameters: Mapping[str, str], now: int) -> bool:
        """Return whether a page is made from memory; so are errors of addresses."""
        try:
            return view.is_held(self._asked(path, parameters, now))
        except OffsetlakeError:
            return True

    def _html(self, view: View, asked: Asked) -> bytes:
        page = view.page(asked)
        frame = self._frame(asked, page)
        text = self._templates.get_template(page.template).render({**frame, **page.context})
        return text.encode("utf-8", "backslashreplace")

    def _frame(self, asked: Asked, page: Page | None) -> dict[str, Any]:
        about = None if page is None else page.about
        is_past = about is not None and about.is_past
        lag_at = None if page is None else page.lag_at
        progress = asked.assessment.snapshot.progress if lag_at else None if about is None else about.progress
        caveats = [] if about is None else [*about.shortcomings(), *about.silence()]
        return {
            "asked": asked,
            "now": about.moment if about is not None and is_past else asked.now,
            "as_of": lag_at or (asked.now if about is None else about.moment),
            "batch": None if progress is None else progress.sequence,
            "title": "" if page is None else page.title,
            "about": about,
            "is_past": is_past,
            "is_live": page is not None and page.is_live,
            "shortcomings": caveats,
            "remarks": [] if page is None else page.remarks,
            "failures": list(asked.cluster.failures()),
            "navigation": [(asked.url(path), text, path == asked.path) for path, text in self._navigation],
            "clusters": [(one.name, one is asked.cluster) for one in self.clusters],
            "has_login": self.has_login,
            "run": self._run,
        }

    @property
    def _navigation(self) -> list[tuple[str, str]]:
        several = [("/clusters", "Clusters")] if len(self.clusters) > 1 else []
        return [*several, *_NAVIGATION]

    def _error(
        self,
        status_code: int,
        message: str,
        path: str,
        parameters: Mapping[str, str],
        now: int,
        kind: Format = "html",
    ) -> Response:
        if kind == "json":
            body = f"{json_text({'error': message})}\n".encode("utf-8", "backslashreplace")
            return Response(status=status_code, content_type=_TYPES["json"], pieces=[body])
        if kind != "html":
            body = f"{message}\n".encode("utf-8", "backslashreplace")
            return Response(status=status_code, content_type="text/plain; charset=utf-8", pieces=[body])
        name = parameters.get("cluster")
        cluster = next((one for one in self.clusters if one.name == name), self.clusters[0])
        asked = Asked(path=path, parameters={}, cluster=cluster, now=now, clusters=self.clusters)
        context = {**self._frame(asked, None), "title": "Error", "message": message, "status": status_code}
        text = self._templates.get_template("error.html").render(context)
        return Response(
            status=status_code, content_type=_TYPES["html"], pieces=[text.encode("utf-8", "backslashreplace")]
        )


def _state_of(cluster: PageCluster, now: int, *, is_assessed: bool) -> str:
    """Return what changes with the content of a cluster's pages, or of those that show its assessment."""
    snapshot, within_ms = cluster.snapshot(), cluster.settings.tables.complete_within_ms
    about = AsOf.of(None, snapshot.progress, now=now, within_ms=within_ms)
    held = [
        cluster.assessment().moment,
        int(about.is_last_known),
        len(about.completeness.outdated),
        len(cluster.failures()),
    ]
    if not is_assessed:  # the snapshot is another one after any change, as of alerts
        held.append(snapshot.number)
    return ".".join(map(str, held))


def environment() -> Environment:
    """Return the templates, in which every value is escaped."""
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"width": charts.WIDTH, "height": charts.HEIGHT, "nothing": cells.NOTHING}
    made.filters |= {
        "name": cells.name,
        "name_text": cells.name_text,
        "count": cells.count,
        "span": cells.span,
        "pill": cells.pill,
        "small": cells.small,
        "sentence": cells.sentence,
        "iso": lambda at: iso(at, "seconds"),
        "in_words": in_words,
        "moment": cells.moment,
        "terms": lambda cell: cells.terms([cell]),
        "meaning": lambda word: MEANINGS.get(word, ""),
        "ago": cells.ago,
        "expiry": cells.expiry,
        "expires": cells.expires,
    }
    return made


def _json(document: Document) -> Iterator[bytes]:
    about = {
        "as_of": document.about.document(),
        "errors": dict(document.errors),
        "remarks": list(document.remarks),
    }
    return (piece.encode("utf-8", "backslashreplace") for piece in document_pieces(about, document.rows))


def _csv(document: Document) -> Iterator[bytes]:
    return (f"{line}\n".encode("utf-8", "backslashreplace") for line in csv_pieces(document.rows))


def _reset_csv(document: Document) -> Iterator[bytes]:
    """Write the offsets that can be put back, for `kafka-consumer-groups --reset-offsets --from-file`."""
    lost = document.lost
    assert lost is not None, "only removed offsets have this format"
    return (line.encode() for line in reset_lines(lost, one_group=False))


_WRITTEN: Final[Mapping[str, Callable[[Document], Iterator[bytes]]]] = {
    "json": _json,
    "csv": _csv,
    "reset-csv": _reset_csv,
}


class _Cache:
    """The bodies of the newest pages, so that many viewers of one page cost as much as one."""

    def __init__(self) -> None:
        self._held: OrderedDict[Any, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()
        self._making: dict[Any, Lock] = {}

    def get(self, key: Any, make: Callable[[], bytes]) -> bytes:
        """Return the body of a key; only one thread makes it."""
        with self._lock:
            own = self._making.setdefault(key, Lock())
        try:
            with own:
                with self._lock:
                    if (held := self._held.get(key)) is not None:
                        self._held.move_to_end(key)
                        return held
                made = make()
                self._keep(key, made)
                return made
        finally:
            with self._lock:
                self._making.pop(key, None)

    def _keep(self, key: Any, body: bytes) -> None:
        if len(body) > _CACHED_AT_MOST:
            return
        with self._lock:
            self._bytes += len(body) - len(self._held.get(key, b""))
            self._held[key] = body
            while self._bytes > _CACHED_BYTES:
                _, dropped = self._held.popitem(last=False)
                self._bytes -= len(dropped)
