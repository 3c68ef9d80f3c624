"""Answers to DescribeConfigs: as of when all other answers are. How brokers are set up is not known."""

from collections.abc import Iterator
from typing import Final

from decoders.messages.reader import Message
from streaming.common.times import iso
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.view import NODE_ID, View, short

_TOPIC, _BROKER = 2, 4  # types of resources
_STATIC: Final = 4  # where a setting comes from: what a broker was started with
_STRING: Final = 2  # the type of a setting

SETTING_BYTES: Final = 300
"""Bytes of a setting with its documentation, or of what is wrong with a resource: at most, about."""


def answer_configs(request: Message, view: View) -> Message:
    """Answer DescribeConfigs."""
    documents = request.get("includeDocumentation", False)
    return {"results": [_result(one, view, documents) for one in request["resources"]]}


def _result(asked: Message, view: View, documents: bool) -> Message:
    kind, name = asked["resourceType"], asked["resourceName"]
    answer: Message = {"resourceType": kind, "resourceName": name, "configs": []}
    if kind == _TOPIC and view.picture.topics.names.place(name) is None:
        return {**answer, "errorCode": Error.UNKNOWN_TOPIC_OR_PARTITION, "errorMessage": None}
    if kind != _BROKER:
        return answer
    if name not in {"", str(NODE_ID)}:
        why = f"Unexpected broker id, expected {NODE_ID} or empty string, but received {short(name)}"
        return {**answer, "errorCode": Error.INVALID_REQUEST, "errorMessage": why}
    keys = asked["configurationKeys"]
    entries = (_entry(*one, documents) for one in _as_of(view) if keys is None or one[0] in keys)
    return {**answer, "configs": list(entries) if name else []}


def _entry(name: str, value: str, document: str, documents: bool) -> Message:
    return {
        "name": name,
        "value": value,
        "readOnly": True,
        "configSource": _STATIC,
        "configType": _STRING,
        "documentation": document if documents else None,
    }


def _as_of(view: View) -> Iterator[tuple[str, str, str]]:
    """Names, values and meanings of what tells how new and how complete answers are."""
    progress, loading = view.picture.progress, sorted(view.picture.loading)
    read_until = view.picture.as_of(None, view.now).read_until if progress.partitions else None
    yield (
        "offsetlake.read.until",
        _time(read_until),
        "What groups had committed until then is in the answers, unless a partition is loading.",
    )
    yield (
        "offsetlake.heartbeat",
        _time(progress.heartbeat or None),
        "When the job last said how far it has read.",
    )
    yield (
        "offsetlake.log.ends.sampled.at",
        _time(view.picture.topics.ends.newest_at if len(view.picture.topics) else None),
        "When the ends of logs were last asked for.",
    )
    yield (
        "offsetlake.loading.partitions",
        ",".join(map(str, loading)),
        "Offsets partitions that have not been read to their end yet; empty: none.",
    )
    yield (
        "offsetlake.rebuilding.since",
        _time(None if progress.rebuild is None else progress.rebuild.since),
        "Since when the topic is read anew; until that is done, answers are as before. Empty: it is not.",
    )


def _time(moment: int | None) -> str:
    return "" if moment is None or moment <= 0 else iso(moment)
