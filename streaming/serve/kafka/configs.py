"""Responses to DescribeConfigs: the timestamps and completeness of the data. Settings of brokers are
unknown."""

import re
from collections.abc import Iterator
from typing import Final

from decoders.messages.reader import Message
from streaming.common.times import iso
from streaming.serve.kafka.cluster import is_topic_name
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.view import NODE_ID, RequestContext, short

_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32  # types of resources
_KINDS: Final = {
    _TOPIC: "Topic name",
    _BROKER: "Broker id",
    _BROKER_LOGGER: "Broker id",
    _CLIENT_METRICS: "Client metrics subscription name",
    _GROUP: "Group name",
}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,9}")
_STATIC: Final = 4  # source of a config: static broker config
_STRING: Final = 2  # type of a config

SETTING_BYTES: Final = 300
"""The approximate largest size of a setting with its documentation, or of an error of a resource."""


def answer_configs(request: Message, view: RequestContext) -> Message:
    documents, resources = request.get("includeDocumentation", False), request["resources"]
    if view.refusal is not None:
        return {"results": [_failure(one, view.refused_with, view.refusal) for one in resources]}
    unknown = next((one["resourceType"] for one in resources if one["resourceType"] not in _KINDS), None)
    if unknown is None:
        return {"results": [_result(one, view, documents) for one in resources]}
    why = f"Unexpected type of a resource: {unknown}"
    return {"results": [_failure(one, Error.INVALID_REQUEST, why) for one in resources]}


def _result(asked: Message, view: RequestContext, documents: bool) -> Message:
    kind, name = asked["resourceType"], asked["resourceName"]
    error, why = _error_of(kind, name, view)
    if error or kind != _BROKER or not name:
        return _failure(asked, error, why)
    keys = asked["configurationKeys"]
    entries = (_entry(*one, documents) for one in _as_of(view) if keys is None or one[0] in keys)
    return {**_failure(asked, Error.NONE), "configs": list(entries)}


def _failure(asked: Message, error: Error, why: str = "") -> Message:
    """Return a result without configs, with an error or without."""
    return {
        "resourceType": asked["resourceType"],
        "resourceName": asked["resourceName"],
        "errorCode": error,
        "errorMessage": why,
        "configs": [],
    }


def _error_of(kind: int, name: str, view: RequestContext) -> tuple[Error, str]:
    """Check a resource, with the messages of brokers."""
    if kind == _TOPIC and not view.may_see_topic(name):
        return Error.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."
    if kind == _GROUP and not view.may_see_group(name):
        return Error.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."
    return _error_of_topic(name, view) if kind == _TOPIC else _error_of_name(kind, name)


def _error_of_topic(name: str, view: RequestContext) -> tuple[Error, str]:
    if not is_topic_name(name):
        return Error.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {short(name)}"
    is_known = view.snapshot.topics.names.place(name) is not None
    return Error.NONE if is_known else view.error_of_unknown_topic, ""


def _error_of_name(kind: int, name: str) -> tuple[Error, str]:
    """Check the name of a resource other than a topic."""
    is_of_broker, about = kind in {_BROKER, _BROKER_LOGGER}, _KINDS[kind]
    if not name and kind != _BROKER:
        return Error.INVALID_REQUEST, f"{about} must not be empty"
    if not name or not is_of_broker or name == str(NODE_ID):
        return Error.NONE, ""
    if not _INTEGER.fullmatch(name):
        return Error.INVALID_REQUEST, f"{about} must be an integer, but it is: {short(name)}"
    or_empty = " or empty string, but" if kind == _BROKER else " but"
    return Error.INVALID_REQUEST, f"Unexpected broker id, expected {NODE_ID}{or_empty} received {name}"


def _entry(name: str, value: str, document: str, documents: bool) -> Message:
    return {
        "name": name,
        "value": value,
        "readOnly": True,
        "configSource": _STATIC,
        "configType": _STRING,
        "documentation": document if documents else None,
    }


def _as_of(view: RequestContext) -> Iterator[tuple[str, str, str]]:
    """Yield the names, values and documentation of the settings that describe the age and completeness of
    responses."""
    progress, loading = view.snapshot.progress, sorted(view.snapshot.loading)
    completeness = view.snapshot.completeness(view.now, view.within_ms)
    read_until = completeness.read_until() if progress.partitions else None
    yield (
        "offsetlake.read.until",
        _time(read_until),
        "Everything in the offsets topic up to this time was read, except in loading partitions.",
    )
    yield (
        "offsetlake.heartbeat",
        _time(progress.heartbeat or None),
        "Time of the job's last heartbeat.",
    )
    yield (
        "offsetlake.log.ends.sampled.at",
        _time(view.snapshot.topics.ends.newest_at if len(view.snapshot.topics) else None),
        "Time of the newest sample of log ends.",
    )
    yield (
        "offsetlake.loading.partitions",
        ",".join(map(str, loading)),
        "Offsets partitions that have not been read to their end yet; empty: none.",
    )
    yield (
        "offsetlake.rebuilding.since",
        _time(None if progress.rebuild is None else progress.rebuild.since),
        "Start of the rebuild in progress; until it is done, responses show the state before. Empty: none.",
    )


def _time(moment: int | None) -> str:
    return "" if moment is None or moment <= 0 else iso(moment)
