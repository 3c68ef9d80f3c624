"""Requests that would change offsets or groups: refused. So is signing in where there is no SASL.

The APIs of the former are advertised nevertheless, and refused with an error that all clients understand:
librdkafka aborts its process if they are not advertised.
"""

from typing import Final

from decoders.messages.reader import Message
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.view import RequestContext, once

_REFUSED: Final = int(Error.GROUP_AUTHORIZATION_FAILED)
_WHY: Final = "This listener answers from tables: groups can be deleted only at the brokers."


def refuse_commit(request: Message, view: RequestContext) -> Message:
    """Answer OffsetCommit: every partition is refused."""
    return {
        "topics": [
            {
                "name": topic.get("name"),
                "topicId": topic.get("topicId"),
                "partitions": [
                    {"partitionIndex": partition["partitionIndex"], "errorCode": _REFUSED}
                    for partition in topic["partitions"]
                ],
            }
            for topic in request["topics"]
        ]
    }


def commit_weight(request: Message, view: RequestContext) -> int:
    return sum(1 + len(topic["partitions"]) for topic in request["topics"])


def commit_content(request: Message, view: RequestContext) -> int:
    return sum(len(topic.get("name", "")) for topic in request["topics"])


def refuse_deletion(request: Message, view: RequestContext) -> Message:
    """Answer DeleteGroups: every group is refused."""
    refused = {"errorCode": _REFUSED, "errorMessage": _WHY}
    return {"results": [{"groupId": group, **refused} for group in once(request["groupsNames"])]}


def deletion_content(request: Message, view: RequestContext) -> int:
    return sum(len(group) + len(_WHY) for group in request["groupsNames"])


def refuse_offset_deletion(request: Message, view: RequestContext) -> Message:
    """Answer OffsetDelete: the group is refused."""
    return {"errorCode": _REFUSED, "topics": []}


def refuse_handshake(request: Message, view: RequestContext) -> Message:
    """Answer SaslHandshake at a listener without SASL, as brokers do. (With SASL, the connection does.)"""
    return {"errorCode": Error.ILLEGAL_SASL_STATE, "mechanisms": []}


def refuse_authentication(request: Message, view: RequestContext) -> Message:
    """Answer SaslAuthenticate in the same case."""
    return {
        "errorCode": Error.ILLEGAL_SASL_STATE,
        "errorMessage": "This listener has no SASL: connect without signing in.",
        "authBytes": b"",
    }
