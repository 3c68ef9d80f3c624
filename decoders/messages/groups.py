"""Requests about groups: coordinators, the list of groups, their members, and deletion.

Source: Kafka 4.4. Versions that differ only in the meaning of errors are not mentioned.
"""

from typing import Final

from construct import Default, Struct

from decoders.formats.wire import (
    BYTES,
    INT8,
    INT16,
    INT32,
    NULLABLE_STRING,
    STRING,
    UUID,
    array,
)
from decoders.messages.api import Api
from decoders.messages.fields import (
    AUTHORIZED_OPERATIONS,
    ERROR_CODE,
    ERROR_MESSAGE,
    INCLUDE_AUTHORIZED_OPERATIONS,
    THROTTLE_TIME_MS,
)
from decoders.messages.versions import versions

# v1: the type of the key, 0 a group, 1 a transactional id, 2 a partition of a share group (KIP-932, v6).
# KIP-699 (v4): many keys at once.
FIND_COORDINATOR: Final = Api(
    key=10,
    name="FindCoordinator",
    versions=range(0, 7),
    first_flexible=3,
    request=Struct(
        "key" / versions("0-3", STRING),
        "keyType" / versions("1+", INT8, default=0),
        "coordinatorKeys" / versions("4+", array(STRING)),
    ),
    response=Struct(
        "throttleTimeMs" / versions("1+", THROTTLE_TIME_MS),
        "errorCode" / versions("0-3", ERROR_CODE),
        "errorMessage" / versions("1-3", ERROR_MESSAGE),
        "nodeId" / versions("0-3", INT32),
        "host" / versions("0-3", STRING),
        "port" / versions("0-3", INT32),
        "coordinators"
        / versions(
            "4+",
            array(
                Struct(
                    "key" / STRING,
                    "nodeId" / INT32,
                    "host" / STRING,
                    "port" / INT32,
                    "errorCode" / ERROR_CODE,
                    "errorMessage" / ERROR_MESSAGE,
                )
            ),
        ),
    ),
)

# KIP-518 (v4): filter by state. KIP-848 (v5): filter by type. Empty: all.
LIST_GROUPS: Final = Api(
    key=16,
    name="ListGroups",
    versions=range(0, 6),
    first_flexible=3,
    request=Struct(
        "statesFilter" / versions("4+", array(STRING), default=[]),
        "typesFilter" / versions("5+", array(STRING), default=[]),
    ),
    response=Struct(
        "throttleTimeMs" / versions("1+", THROTTLE_TIME_MS),
        "errorCode" / ERROR_CODE,
        "groups"
        / array(
            Struct(
                "groupId" / STRING,
                "protocolType" / STRING,
                "groupState" / versions("4+", STRING),
                "groupType" / versions("5+", STRING),
            )
        ),
    ),
)

# Classic groups. KIP-430 (v3): authorized operations. KIP-345 (v4): static members. KIP-1043 (v6): an error
# for a missing group.
DESCRIBE_GROUPS: Final = Api(
    key=15,
    name="DescribeGroups",
    versions=range(0, 7),
    first_flexible=5,
    request=Struct(
        "groups" / array(STRING),
        "includeAuthorizedOperations" / versions("3+", INCLUDE_AUTHORIZED_OPERATIONS),
    ),
    response=Struct(
        "throttleTimeMs" / versions("1+", THROTTLE_TIME_MS),
        "groups"
        / array(
            Struct(
                "errorCode" / ERROR_CODE,
                "errorMessage" / versions("6+", ERROR_MESSAGE),
                "groupId" / STRING,
                "groupState" / STRING,
                "protocolType" / STRING,
                "protocolData" / STRING,
                "members"
                / array(
                    Struct(
                        "memberId" / STRING,
                        "groupInstanceId" / versions("4+", NULLABLE_STRING, default=None),
                        "clientId" / STRING,
                        "clientHost" / STRING,
                        "memberMetadata" / BYTES,
                        "memberAssignment" / BYTES,
                    )
                ),
                "authorizedOperations" / versions("3+", AUTHORIZED_OPERATIONS),
            )
        ),
    ),
)

_ASSIGNMENT: Final = Struct(
    "topicPartitions" / array(Struct("topicId" / UUID, "topicName" / STRING, "partitions" / array(INT32))),
)

_GROUP_IDS: Final = Struct(
    "groupIds" / array(STRING),
    "includeAuthorizedOperations" / INCLUDE_AUTHORIZED_OPERATIONS,
)


def _assigned_groups(member: Struct) -> Struct:
    """Return the response about groups whose coordinator assigns the partitions, with such members."""
    group = Struct(
        "errorCode" / ERROR_CODE,
        "errorMessage" / ERROR_MESSAGE,
        "groupId" / STRING,
        "groupState" / STRING,
        "groupEpoch" / INT32,
        "assignmentEpoch" / INT32,
        "assignorName" / STRING,
        "members" / array(member),
        "authorizedOperations" / AUTHORIZED_OPERATIONS,
    )
    return Struct("throttleTimeMs" / THROTTLE_TIME_MS, "groups" / array(group))


# KIP-848. KIP-1099 (v1): whether a member uses the classic (0) or the consumer (1) protocol.
CONSUMER_GROUP_DESCRIBE: Final = Api(
    key=69,
    name="ConsumerGroupDescribe",
    versions=range(0, 2),
    first_flexible=0,
    request=_GROUP_IDS,
    response=_assigned_groups(
        Struct(
            "memberId" / STRING,
            "instanceId" / Default(NULLABLE_STRING, None),
            "rackId" / Default(NULLABLE_STRING, None),
            "memberEpoch" / INT32,
            "clientId" / STRING,
            "clientHost" / STRING,
            "subscribedTopicNames" / array(STRING),
            "subscribedTopicRegex" / Default(NULLABLE_STRING, None),
            "assignment" / _ASSIGNMENT,
            "targetAssignment" / _ASSIGNMENT,
            "memberType" / versions("1+", INT8, default=-1),
        )
    ),
)

# KIP-932. Version 0 was of the early access in 4.0 only.
SHARE_GROUP_DESCRIBE: Final = Api(
    key=77,
    name="ShareGroupDescribe",
    versions=range(1, 2),
    first_flexible=0,
    request=_GROUP_IDS,
    response=_assigned_groups(
        Struct(
            "memberId" / STRING,
            "rackId" / Default(NULLABLE_STRING, None),
            "memberEpoch" / INT32,
            "clientId" / STRING,
            "clientHost" / STRING,
            "subscribedTopicNames" / array(STRING),
            "assignment" / _ASSIGNMENT,
        )
    ),
)

# v3 (4.4): an error message.
DELETE_GROUPS: Final = Api(
    key=42,
    name="DeleteGroups",
    versions=range(0, 4),
    first_flexible=2,
    request=Struct("groupsNames" / array(STRING)),
    response=Struct(
        "throttleTimeMs" / THROTTLE_TIME_MS,
        "results"
        / array(
            Struct("groupId" / STRING, "errorCode" / INT16, "errorMessage" / versions("3+", ERROR_MESSAGE))
        ),
    ),
)
