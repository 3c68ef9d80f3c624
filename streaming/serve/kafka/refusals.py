"""What is refused: whatever would change offsets or groups.

It is advertised all the same, and refused by an error that all clients take for what it is. Where it is not
advertised, librdkafka aborts the process of its user.
"""

from decoders.messages.reader import Message
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.view import View

_REFUSED = int(Error.GROUP_AUTHORIZATION_FAILED)


def refuse_commit(request: Message, view: View) -> Message:
    """Answer OffsetCommit: every partition is refused."""
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {"partitionIndex": partition["partitionIndex"], "errorCode": _REFUSED}
                    for partition in topic["partitions"]
                ],
            }
            for topic in request["topics"]
        ]
    }


def refuse_deletion(request: Message, view: View) -> Message:
    """Answer DeleteGroups: every group is refused."""
    return {"results": [{"groupId": group, "errorCode": _REFUSED} for group in request["groupsNames"]]}


def refuse_offset_deletion(request: Message, view: View) -> Message:
    """Answer OffsetDelete: the group is refused."""
    return {"errorCode": _REFUSED, "topics": []}
