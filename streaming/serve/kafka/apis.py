"""The table of supported APIs: each with its versions and the function that computes the response.

Any other request closes the connection, as a broker does. docs/clients.md contains this table.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from decoders.messages import APIS, Columns, Pieces, Request, response_bytes, response_pieces
from decoders.messages.reader import Message
from streaming.serve.kafka import cluster, configs, groups, list_offsets, offsets, refusals
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.limits import BusyError, Size, TooLargeError, UnansweredError
from streaming.serve.kafka.principals import Principal
from streaming.serve.kafka.view import NODE_ID, Address, Client, RequestContext
from streaming.serve.memory.names import NONE
from streaming.serve.memory.snapshot import MemorySnapshot

Answer = Callable[[Message, RequestContext], Message]
Weight = Callable[[Message, RequestContext], int]

MANY: Final = 400
"""A response with more elements takes a millisecond or more to write; it is written on another thread."""

LONGEST: Final = 90_000_000
"""The largest response in bytes: librdkafka rejects those of more than 100,000,000."""

MOST: Final = 5_000_000
"""The most elements of a response that is written from columns: with few bytes each, they fill the largest
one."""

MOST_AS_OBJECTS: Final = 1_000_000
"""The most elements of a response that is written element by element."""

_MEMORY: Final = 600_000_000
"""The most bytes of memory for a response that is written element by element."""

_MEMORY_OF_ELEMENT: Final = 500
_COPIES: Final = 4  # of names, texts and byte strings, from the snapshot to the sent bytes
_ELEMENT_BYTES: Final = 16  # at least, in a response

_SIGNING_IN: Final = "[signing in](#signing-in), at a listener with SASL; elsewhere ILLEGAL_SASL_STATE"
_KEPT_BYTES: Final = 8 * 1024 * 1024
_KEPT_MS: Final = 1_000
_KEPT_BESIDE: Final = 300  # memory of an entry beside the bytes of request and response
_ID: Final = slice(4, 8)  # the correlation id, in requests and in responses as sent
_PIECE_BYTES: Final = 256 * 1024
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_API_VERSIONS: Final = 18
_OFFSET_FETCH: Final = 9
_BY_TOPIC_IDS: Final = 10  # the version of OffsetFetch that names topics by id


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The versions of an API with one implementation.

    `weight` returns the approximate number of elements of the response (None: always few), `content` the
    approximate bytes of its names, texts and byte strings, and `gaps` the number of further elements
    (negative where the weight is too high); the latter two are slower. If the weight exceeds `MANY` and
    `is_of_columns` holds for the request, `answer_many` computes the response as columns. `reads_tables`: the
    response is not in the snapshot, and takes as long as a large one. `can_wait`: the response has an error
    that makes clients retry. `about` describes the response in the documentation.
    """

    api_key: int
    versions: Sequence[int]
    answer: Answer
    weight: Weight | None = None
    content: Weight | None = None
    gaps: Weight | None = None
    is_of_columns: Callable[[Message], bool] = lambda _: False
    answer_many: Answer | None = None
    reads_tables: Callable[[Message], bool] = lambda _: False
    can_wait: bool = False
    about: str


def _answer_versions(request: Message, view: RequestContext) -> Message:
    if error := _error_of_client(request, view):
        return {"errorCode": error, "apiKeys": []}
    return {"apiKeys": _ranges(offered(view))}


def _error_of_client(request: Message, view: RequestContext) -> Error:
    """Check the name of a client, and the cluster and node that it means to reach (KIP-1242)."""
    meant = (request.get("clusterId"), request.get("nodeId", NONE))
    is_odd = not _are_in_form(_named(request))
    if is_odd or (meant[0] is None) != (meant[1] == NONE):
        return Error.INVALID_REQUEST
    is_ours = meant in {(None, NONE), (view.cluster_id, NODE_ID)}
    return Error.NONE if is_ours else Error.REBOOTSTRAP_REQUIRED


def _named(request: Message) -> Sequence[str]:
    """Return the name and version of the client's software; none before version 3 (KIP-511)."""
    is_named = "clientSoftwareName" in request
    return [request["clientSoftwareName"], request["clientSoftwareVersion"]] if is_named else []


def _are_in_form(named: Sequence[str]) -> bool:
    """Return whether name and version are as Kafka's ApiVersionsRequest demands."""
    return all(map(_SOFTWARE.fullmatch, named))


def _ranges(versions: Mapping[int, range]) -> list[Message]:
    return [
        {"apiKey": key, "minVersion": span[0], "maxVersion": span[-1]}
        for key, span in sorted(versions.items())
    ]


def _asked(name: str) -> Weight:
    """Return the weight of a response with one element for each requested one."""
    return lambda request, _: len(request.get(name, ()))


_ROWS: Final = (
    Answered(
        api_key=_API_VERSIONS,
        versions=range(0, 6),
        answer=_answer_versions,
        about="the supported versions; an ApiVersions request of any other version gets "
        "UNSUPPORTED_VERSION in a response of version 0",
    ),
    Answered(
        api_key=3,
        versions=range(0, 1),
        answer=cluster.answer_oldest_metadata,
        weight=cluster.oldest_metadata_weight,
        content=cluster.oldest_metadata_content,
        gaps=cluster.oldest_metadata_gaps,
        about="",
    ),
    Answered(
        api_key=3,
        versions=range(10, 12),
        answer=cluster.answer_metadata_by_names,
        weight=cluster.metadata_weight,
        content=cluster.metadata_content,
        gaps=cluster.metadata_gaps,
        about="",
    ),
    Answered(
        api_key=3,
        versions=[*range(1, 10), 12, 13],
        answer=cluster.answer_metadata,
        weight=cluster.metadata_weight,
        content=cluster.metadata_content,
        gaps=cluster.metadata_gaps,
        about="one node (the listener), and the topics with committed offsets, with partitions assigned to "
        "members, or with samples",
    ),
    Answered(
        api_key=60,
        versions=range(0, 3),
        answer=cluster.answer_cluster,
        about="one node, the listener",
    ),
    Answered(
        api_key=75,
        versions=range(0, 1),
        answer=cluster.answer_topic_partitions,
        weight=cluster.topic_partitions_weight,
        content=cluster.topic_partitions_content,
        about="the same topics as Metadata, up to 2,000 partitions at a time",
    ),
    Answered(
        api_key=10,
        versions=range(0, 7),
        answer=cluster.answer_coordinators,
        weight=_asked("coordinatorKeys"),
        content=cluster.coordinators_content,
        about="the listener for every group; no coordinator for transactions and share partitions",
    ),
    Answered(
        api_key=16,
        versions=range(0, 6),
        answer=groups.answer_groups,
        weight=groups.groups_weight,
        content=groups.groups_content,
        gaps=groups.groups_gaps,
        can_wait=True,
        is_of_columns=lambda _: True,
        about="all groups, or those in some states or of some types",
    ),
    Answered(
        api_key=15,
        versions=range(0, 6),
        answer=groups.answer_old_descriptions,
        weight=lambda request, view: groups.descriptions_weight(request["groups"], view),
        content=lambda request, view: groups.descriptions_content(request["groups"], view),
        can_wait=True,
        about="",
    ),
    Answered(
        api_key=15,
        versions=range(6, 7),
        answer=groups.answer_descriptions,
        weight=lambda request, view: groups.descriptions_weight(request["groups"], view),
        content=lambda request, view: groups.descriptions_content(request["groups"], view),
        can_wait=True,
        about="classic groups and their members; other groups are `Dead`",
    ),
    Answered(
        api_key=69,
        versions=range(0, 2),
        answer=groups.answer_consumer_groups,
        weight=lambda request, view: groups.descriptions_weight(request["groupIds"], view),
        content=lambda request, view: groups.descriptions_content(request["groupIds"], view),
        can_wait=True,
        about="groups of the consumer protocol (KIP-848) and their members",
    ),
    Answered(
        api_key=77,
        versions=range(1, 2),
        answer=groups.answer_share_groups,
        weight=lambda request, view: groups.descriptions_weight(request["groupIds"], view),
        content=lambda request, view: groups.descriptions_content(request["groupIds"], view),
        can_wait=True,
        about="share groups and their members",
    ),
    Answered(
        api_key=9,
        versions=range(1, 2),
        answer=offsets.answer_oldest_offsets,
        weight=offsets.offsets_weight,
        content=offsets.offsets_content,
        can_wait=True,
        about="",
    ),
    Answered(
        api_key=9,
        versions=range(2, 10),
        answer=offsets.answer_offsets,
        weight=offsets.offsets_weight,
        content=offsets.offsets_content,
        can_wait=True,
        is_of_columns=offsets.wants_all,
        answer_many=offsets.answer_many_offsets,
        about="",
    ),
    Answered(
        api_key=_OFFSET_FETCH,
        versions=range(_BY_TOPIC_IDS, _BY_TOPIC_IDS + 1),
        answer=offsets.answer_offsets_by_ids,
        weight=offsets.offsets_weight,
        content=offsets.content_by_ids,
        can_wait=True,
        is_of_columns=offsets.wants_all,
        answer_many=offsets.answer_many_offsets_by_ids,
        about="committed offsets, of one group or of many; version 10 only [while all topic ids are "
        "known](#topic-ids)",
    ),
    Answered(
        api_key=2,
        versions=range(1, 12),
        answer=list_offsets.answer_log_ends,
        weight=list_offsets.log_ends_weight,
        content=list_offsets.log_ends_content,
        reads_tables=list_offsets.reads_tables,
        about="sampled log starts (-2) and log ends (-1), also the log end at a timestamp",
    ),
    Answered(
        api_key=32,
        versions=range(1, 5),
        answer=configs.answer_configs,
        weight=configs.configs_weight,
        content=configs.configs_content,
        about="none, but the configs of broker 1 contain timestamps of the data",
    ),
    Answered(
        api_key=8,
        versions=range(2, 11),
        answer=refusals.refuse_commit,
        weight=refusals.commit_weight,
        content=refusals.commit_content,
        about="refused: GROUP_AUTHORIZATION_FAILED",
    ),
    Answered(
        api_key=42,
        versions=range(0, 4),
        answer=refusals.refuse_deletion,
        weight=_asked("groupsNames"),
        content=refusals.deletion_content,
        about="refused: GROUP_AUTHORIZATION_FAILED",
    ),
    Answered(
        api_key=47,
        versions=range(0, 1),
        answer=refusals.refuse_offset_deletion,
        about="refused: GROUP_AUTHORIZATION_FAILED",
    ),
    Answered(
        api_key=17,
        versions=range(0, 2),
        answer=refusals.refuse_handshake,
        about=_SIGNING_IN,
    ),
    Answered(
        api_key=36,
        versions=range(0, 3),
        answer=refusals.refuse_authentication,
        about=_SIGNING_IN,
    ),
)

_BY_VERSION: Final = {(row.api_key, version): row for row in _ROWS for version in row.versions}

ADVERTISED: Final = {
    key: range(min(versions), max(versions) + 1)
    for key in {row.api_key for row in _ROWS}
    if (versions := [version for one, version in _BY_VERSION if one == key])
}
"""The supported versions of each API, by its key."""

_SASL: Final = (17, 36)


def offered(view: RequestContext) -> Mapping[int, range]:
    """Return the versions of each API that are offered now: OffsetFetch by topic ids only while the id of
    every topic with committed offsets is known, signing in only at a listener with SASL.

    The same before and after signing in: librdkafka asks only before.
    """
    has_topic_ids = bool(view.snapshot.progress.partitions) and view.snapshot.has_topic_ids
    return _OFFERED[view.has_sasl, has_topic_ids]


def _offered(*, has_sasl: bool, has_topic_ids: bool) -> Mapping[int, range]:
    spans = {key: span for key, span in ADVERTISED.items() if has_sasl or key not in _SASL}
    return spans if has_topic_ids else {**spans, _OFFSET_FETCH: range(1, _BY_TOPIC_IDS)}


_OFFERED: Final = {
    (has_sasl, has_topic_ids): _offered(has_sasl=has_sasl, has_topic_ids=has_topic_ids)
    for has_sasl in (False, True)
    for has_topic_ids in (False, True)
}

_ROWS_OF: Final = {
    which: {about: row for about, row in _BY_VERSION.items() if about[1] in spans.get(about[0], row.versions)}
    for which, spans in _OFFERED.items()
}

_NO_ERRORS: Final[Mapping[int, int]] = {}


class Response(NamedTuple):
    """A response: the bytes to send, and the number of errors in it by code, without NONE. `refusal` is that
    of the `RequestContext`."""

    api_key: int
    data: bytes | Pieces
    errors: Mapping[int, int]
    refusal: str | None = None

    @property
    def whole(self) -> bytes:
        """The bytes at once; only one time where they are in pieces."""
        return b"".join(self.data) if isinstance(self.data, Pieces) else self.data


def answer(request: Request, view: RequestContext) -> Response:
    """Return the response to a request; raises `UnansweredError` where there is none."""
    if request.body is None:  # ApiVersions of an unknown version
        body = {"errorCode": Error.UNSUPPORTED_VERSION, "apiKeys": _ranges(_ONLY_VERSIONS)}
        return written(request._replace(api_version=0), body)
    row = _row_of(request, view)
    make = row.answer
    if row.answer_many and weight_of(request, view) > MANY and row.is_of_columns(request.body):
        make = row.answer_many
    response = written(request, make(request.body, view), view.refusal)
    _refuse_longer(response.data.size if isinstance(response.data, Pieces) else len(response.data))
    return response


def written(request: Request, body: Message, refusal: str | None = None) -> Response:
    """Write the body of the response to a request."""
    about, errors = (request.api_key, request.api_version, request.correlation_id, body), dict[int, int]()
    data: bytes | Pieces
    if any(isinstance(value, Columns) for value in body.values()):
        pieces = response_pieces(*about, piece_bytes=_PIECE_BYTES, errors=errors)
        data = b"".join(pieces) if pieces.size <= _PIECE_BYTES else pieces
    else:
        data = response_bytes(*about, errors=errors)
    return Response(request.api_key, data, errors or _NO_ERRORS, refusal)


_ONLY_VERSIONS: Final = {_API_VERSIONS: ADVERTISED[_API_VERSIONS]}


def weight_of(request: Request, view: RequestContext) -> int:
    """Return the approximate number of elements of the response; above `MANY` it takes a while to compute.

    Raises `UnansweredError`, before it computes any, for more elements than the largest response has.
    """
    if request.body is None:
        return 0
    row = _row_of(request, view)
    weight = 0 if row.weight is None else row.weight(request.body, view)
    most = MOST if weight > MOST_AS_OBJECTS and row.is_of_columns(request.body) else MOST_AS_OBJECTS
    if weight > most:
        raise TooLargeError(f"expected at most {most} elements in a response, found {weight}: {_FEWER}")
    return weight


def size_of(request: Request, view: RequestContext) -> Size:
    """Return the approximate size of the response; for many elements this takes a while.

    Raises `UnansweredError` if the response would be too large to send, or take too much memory.
    """
    weight = weight_of(request, view)
    if request.body is None:
        return Size(weight, 0)
    row = _row_of(request, view)
    if row.weight is not None and not weight:
        return Size(0, 0)
    elements = weight if row.gaps is None else weight + row.gaps(request.body, view)
    content = 0 if row.content is None else row.content(request.body, view)
    _refuse_longer(_ELEMENT_BYTES * elements + content)
    memory = _MEMORY_OF_ELEMENT * elements + _COPIES * content
    if memory > _MEMORY and not row.is_of_columns(request.body):
        raise TooLargeError(f"expected a response that takes at most {_MEMORY} bytes to build: {_FEWER}")
    return Size(elements, content)


def reads_tables(request: Request, view: RequestContext) -> bool:
    """Return whether the response has to be read from the tables, which takes a while."""
    return request.body is not None and _row_of(request, view).reads_tables(request.body)


def answer_later(request: Request, view: RequestContext) -> Response:
    """Return the response that makes clients retry, when there is no time for the real one; raises
    `BusyError` for an API without such an error."""
    if not _row_of(request, view).can_wait:
        raise BusyError
    return answer(request, replace(view, is_busy=True))


_FEWER: Final = "ask for fewer at once"


Asker = tuple[Address, Client, Principal | None]
"""Who sends a request: the address under which it reaches us, the client, and its principal, as in a
`RequestContext`."""


class ResponseCache:
    """Small responses from one snapshot by request and principal, because clients repeat their requests.

    Holds responses without the correlation id, up to a total size, and for at most a second: the age of a
    snapshot affects its responses. Those about the past are not kept, and requests with another `client.id`
    are others, so no client gets another moment than it asks for.
    """

    def __init__(self) -> None:
        self._of: tuple[MemorySnapshot | None, int] = (None, 0)
        self._answers: dict[tuple[bytes, Asker], Response] = {}
        self._bytes_left = _KEPT_BYTES

    def answer(self, frame: bytes, asker: Asker, snapshot: MemorySnapshot, now: int) -> Response | None:
        """Return the cached response from a snapshot at a moment (ms) to the same request, if any."""
        second = now // _KEPT_MS
        if self._of[0] is not snapshot or self._of[1] != second:
            self._of, self._bytes_left = (snapshot, second), _KEPT_BYTES
            self._answers = {}
        kept = self._answers.get((_without_id(frame), asker))
        if kept is None:
            return None
        data = kept.whole
        return Response(kept.api_key, data[: _ID.start] + frame[_ID] + data[_ID.stop :], kept.errors)

    def keep(self, frame: bytes, view: RequestContext, response: Response) -> None:
        """Cache a response, which is not in pieces, to the request that `answer` was last called for, if
        there is room."""
        if view.as_of is not None or view.refusal is not None:
            return
        size = len(frame) + len(response.whole) + _KEPT_BESIDE
        if response.api_key != _API_VERSIONS and size <= self._bytes_left:  # ApiVersions changes `client`
            self._bytes_left -= size
            asker = view.address, view.client, view.principal
            self._answers[_without_id(frame), asker] = response


def _without_id(frame: bytes) -> bytes:
    return frame[: _ID.start] + frame[_ID.stop :]


def client_of(request: Request, client: Client) -> Client:
    """Return the client with its software, if this request contains it in Kafka's form."""
    if request.api_key != _API_VERSIONS or request.body is None:
        return client
    named = _named(request.body)
    return client._replace(software=named[0], version=named[1]) if named and _are_in_form(named) else client


def _row_of(request: Request, view: RequestContext) -> Answered:
    rows = _ROWS_OF[view.has_sasl, view.snapshot.has_topic_ids]
    row = rows.get((request.api_key, request.api_version))
    if row is None:
        span = offered(view).get(request.api_key, ADVERTISED[request.api_key])
        raise UnansweredError(
            f"{APIS[request.api_key].name}: expected a version from {span[0]} to {span[-1]}, "
            f"found {request.api_version}"
        )
    return row


def _refuse_longer(size: int) -> None:
    if size > LONGEST:
        raise TooLargeError(f"expected a response of at most {LONGEST} bytes, found {size}: {_FEWER}")


def table() -> str:
    """Return the table of all APIs in Markdown."""
    abouts = {row.api_key: row.about for row in _ROWS if row.about}
    rows = ((APIS[key].name, _span(versions), abouts[key]) for key, versions in ADVERTISED.items())
    lines = [f"| {name} | {span} | {about} |" for name, span, about in sorted(rows)]
    return "\n".join(["| API | versions | response |", "| --- | --- | --- |", *lines])


def _span(versions: range) -> str:
    return str(versions[0]) if len(versions) == 1 else f"{versions[0]}-{versions[-1]}"
