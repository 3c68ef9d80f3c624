"""Responses to DescribeConfigs: the timestamps and completeness of the data. Settings of brokers are
unknown."""

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from decoders.messages.reader import Message
from streaming.common.times import iso
from streaming.serve.kafka.cluster import is_topic_name, present_topic
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
_OWN_ID: Final = re.compile(rf"\+?0*{NODE_ID}")  # as Java parses integers
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,9}")
_STATIC: Final = 4  # source of a config: static broker config
_STRING: Final = 2  # type of a config

_CONFIG_BYTES: Final = 300  # about, at most: a config with its documentation, or the error of a resource


def answer_configs(request: Message, view: RequestContext) -> Message:
    documents, resources = request.get("includeDocumentation", False), request["resources"]
    if view.refusal is not None:
        return {"results": [_failure(one, view.refused_with, view.refusal) for one in resources]}
    unknown = next((one["resourceType"] for one in resources if one["resourceType"] not in _KINDS), None)
    if unknown is None:
        return {"results": [_result(one, view, documents) for one in resources]}
    why = f"Unexpected type of a resource: {unknown}"
    return {"results": [_failure(one, Error.INVALID_REQUEST, why) for one in resources]}


def configs_weight(request: Message, view: RequestContext) -> int:
    return len(_CONFIGS) * len(request["resources"])


def configs_content(request: Message, view: RequestContext) -> int:
    return _CONFIG_BYTES * configs_weight(request, view)


def _result(asked: Message, view: RequestContext, documents: bool) -> Message:
    kind, name = asked["resourceType"], asked["resourceName"]
    error, why = _error_of(kind, name, view)
    if error or kind != _BROKER or not name:
        return _failure(asked, error, why)
    keys = asked["configurationKeys"]
    wanted = (one for one in _CONFIGS if keys is None or one.name in keys)
    return {**_failure(asked, Error.NONE), "configs": [_entry(one, view, documents) for one in wanted]}


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
    return Error.NONE if present_topic(name, view) is not None else view.error_of_unknown_topic, ""


def _error_of_name(kind: int, name: str) -> tuple[Error, str]:
    """Check the name of a resource other than a topic."""
    is_of_broker, about = kind in {_BROKER, _BROKER_LOGGER}, _KINDS[kind]
    if not name and kind != _BROKER:
        return Error.INVALID_REQUEST, f"{about} must not be empty"
    if not name or not is_of_broker or _OWN_ID.fullmatch(name):
        return Error.NONE, ""
    if not _INTEGER.fullmatch(name):
        return Error.INVALID_REQUEST, f"{about} must be an integer, but it is: {short(name)}"
    or_empty = " or empty string, but" if kind == _BROKER else " but"
    return Error.INVALID_REQUEST, f"Unexpected broker id, expected {NODE_ID}{or_empty} received {name}"


class _Config(NamedTuple):
    """A config of the broker: an age or the completeness of the data in responses."""

    name: str
    value: Callable[[RequestContext], str]
    documentation: str


def _entry(config: _Config, view: RequestContext, documents: bool) -> Message:
    return {
        "name": config.name,
        "value": config.value(view),
        "readOnly": True,
        "configSource": _STATIC,
        "configType": _STRING,
        "documentation": config.documentation if documents else None,
    }


def _read_until(view: RequestContext) -> str:
    completeness = view.snapshot.completeness(view.now, view.within_ms)
    return _time(completeness.read_until() if view.snapshot.progress.partitions else None)


def _sampled_at(view: RequestContext) -> str:
    topics = view.snapshot.topics
    return _time(topics.ends.newest_at if len(topics) else None)


def _rebuilding_since(view: RequestContext) -> str:
    rebuild = view.snapshot.progress.rebuild
    return _time(None if rebuild is None else rebuild.since)


def _time(moment: int | None) -> str:
    return "" if moment is None or moment <= 0 else iso(moment)


_CONFIGS: Final[Sequence[_Config]] = (
    _Config(
        "offsetlake.read.until",
        _read_until,
        "Everything in the offsets topic up to this time was read, except in loading partitions.",
    ),
    _Config(
        "offsetlake.heartbeat",
        lambda view: _time(view.snapshot.progress.heartbeat),
        "Time of the job's last heartbeat.",
    ),
    _Config(
        "offsetlake.log.ends.sampled.at",
        _sampled_at,
        "Time of the newest sample of log ends.",
    ),
    _Config(
        "offsetlake.loading.partitions",
        lambda view: ",".join(map(str, sorted(view.snapshot.loading))),
        "Offsets partitions that have not been read to their end yet; empty: none.",
    ),
    _Config(
        "offsetlake.rebuilding.since",
        _rebuilding_since,
        "Start of the rebuild in progress; until it is done, responses show the state before. Empty: none.",
    ),
)
