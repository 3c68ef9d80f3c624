"""Members of groups in responses. Fields of a member that the log lacks are empty."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from decoders.messages.reader import Message
from streaming.serve.kafka.view import RequestContext, writable

_CLASSIC, _CONSUMER, _UNKNOWN = 0, 1, -1  # types of members

_NOTHING: Final = b""


def classic_member(member: Mapping[str, Any], *, is_stable: bool) -> Message:
    """Return a member of a classic group; its subscription and assignment are valid while the group is
    stable."""
    return {
        **_identity(member, "groupInstanceId"),
        "memberMetadata": (member.get("subscription_bytes") or _NOTHING) if is_stable else _NOTHING,
        "memberAssignment": (member.get("assignment_bytes") or _NOTHING) if is_stable else _NOTHING,
    }


def consumer_member(member: Mapping[str, Any], view: RequestContext) -> Message:
    is_classic = member.get("is_classic")
    return {
        **_identity(member, "instanceId"),
        "rackId": _writable_or_none(member.get("rack_id")),
        "memberEpoch": member.get("member_epoch") or 0,
        "subscribedTopicNames": [writable(name) for name in member.get("subscribed_topics") or ()],
        "subscribedTopicRegex": _writable_or_none(member.get("subscribed_regex")),
        "assignment": _assignment(member.get("assignment"), view),
        "targetAssignment": _assignment(member.get("target_assignment"), view),
        "memberType": _UNKNOWN if is_classic is None else _CLASSIC if is_classic else _CONSUMER,
    }


def share_member(member: Mapping[str, Any], view: RequestContext) -> Message:
    return {
        **_identity(member, "instanceId"),
        "rackId": _writable_or_none(member.get("rack_id")),
        "memberEpoch": member.get("member_epoch") or 0,
        "subscribedTopicNames": [writable(name) for name in member.get("subscribed_topics") or ()],
        "assignment": _assignment(member.get("assignment"), view),
    }


def _identity(member: Mapping[str, Any], instance_id: str) -> Message:
    return {
        "memberId": writable(member["member_id"]),
        instance_id: _writable_or_none(member["group_instance_id"]),
        "clientId": writable(member["client_id"]),
        "clientHost": writable(member["client_host"]),
    }


def _writable_or_none(text: str | None) -> str | None:
    return None if text is None else writable(text)


def _assignment(assigned: Sequence[Mapping[str, Any]] | None, view: RequestContext) -> Message:
    """Return partitions by topic. The log names topics by id; a topic without one is left out, and one with
    an unknown name gets its id as the name (see `AssignedPartitions.named_in`)."""
    topics = view.snapshot.topics
    return {
        "topicPartitions": [
            {
                "topicId": one["topic_id"],
                "topicName": writable(one["topic"] or topics.name_of(one["topic_id"])) or one["topic_id"],
                "partitions": one["partitions"],
            }
            for one in assigned or ()
            if one["topic_id"] is not None
        ]
    }
