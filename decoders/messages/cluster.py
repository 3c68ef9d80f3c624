"""Requests about the cluster: its API versions, brokers, topics and configuration.

Source: Kafka 4.4. Versions that differ only in the meaning of errors are not mentioned.
"""

from typing import Final

from construct import Default, Struct

from decoders.formats.java_values import ZERO_UUID
from decoders.formats.wire import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UUID,
    array,
    nullable_struct,
)
from decoders.messages.api import Api
from decoders.messages.fields import (
    AUTHORIZED_OPERATIONS,
    ERROR_CODE,
    ERROR_MESSAGE,
    INCLUDE_AUTHORIZED_OPERATIONS,
    THROTTLE_TIME_MS,
)
from decoders.messages.versions import tagged, versions

# KIP-511 (v3): the client's name; features of the cluster (KIP-584). v4: features from version 0 on. KIP-1242
# (v5): the cluster and the node that the client means to reach, both or neither.
API_VERSIONS: Final = Api(
    key=18,
    name="ApiVersions",
    versions=range(0, 6),
    first_flexible=3,
    request=Struct(
        "clientSoftwareName" / versions("3+", STRING),
        "clientSoftwareVersion" / versions("3+", STRING),
        "clusterId" / versions("5+", NULLABLE_STRING, default=None),
        "nodeId" / versions("5+", INT32, default=-1),
    ),
    response=Struct(
        "errorCode" / ERROR_CODE,
        "apiKeys" / array(Struct("apiKey" / INT16, "minVersion" / INT16, "maxVersion" / INT16)),
        "throttleTimeMs" / versions("1+", THROTTLE_TIME_MS),
        "supportedFeatures"
        / tagged(
            0,
            array(Struct("name" / STRING, "minVersion" / INT16, "maxVersion" / INT16)),
            default=[],
            since=3,
        ),
        "finalizedFeaturesEpoch" / tagged(1, INT64, default=-1, since=3),
        "finalizedFeatures"
        / tagged(
            2,
            array(Struct("name" / STRING, "maxVersionLevel" / INT16, "minVersionLevel" / INT16)),
            default=[],
            since=3,
        ),
        "zkMigrationReady" / tagged(3, BOOL, default=False, since=3),
    ),
    plain_response_header=True,
)

# v0: an empty list of topics means all. Since v1 null means all, and an empty list only brokers. KIP-320
# (v7): leader epochs. KIP-430 (v8): authorized operations; KIP-700 (v11) moves those of the cluster to
# DescribeCluster. KIP-516 (v10, v12): topic ids. v13: an error of the whole request.
METADATA: Final = Api(
    key=3,
    name="Metadata",
    versions=range(0, 14),
    first_flexible=9,
    request=Struct(
        "topics"
        / versions(
            "0+",
            array(
                Struct(
                    "topicId" / versions("10+", UUID, default=ZERO_UUID),
                    "name" / versions("0+", STRING, nullable="10+"),
                )
            ),
            nullable="1+",
        ),
        "allowAutoTopicCreation" / versions("4+", BOOL, default=True),
        "includeClusterAuthorizedOperations" / versions("8-10", INCLUDE_AUTHORIZED_OPERATIONS),
        "includeTopicAuthorizedOperations" / versions("8+", INCLUDE_AUTHORIZED_OPERATIONS),
    ),
    response=Struct(
        "throttleTimeMs" / versions("3+", THROTTLE_TIME_MS),
        "brokers"
        / array(
            Struct(
                "nodeId" / INT32,
                "host" / STRING,
                "port" / INT32,
                "rack" / versions("1+", NULLABLE_STRING, default=None),
            )
        ),
        "clusterId" / versions("2+", NULLABLE_STRING, default=None),
        "controllerId" / versions("1+", INT32, default=-1),
        "topics"
        / array(
            Struct(
                "errorCode" / ERROR_CODE,
                "name" / versions("0+", STRING, nullable="12+"),
                "topicId" / versions("10+", UUID, default=ZERO_UUID),
                "isInternal" / versions("1+", BOOL, default=False),
                "partitions"
                / array(
                    Struct(
                        "errorCode" / ERROR_CODE,
                        "partitionIndex" / INT32,
                        "leaderId" / INT32,
                        "leaderEpoch" / versions("7+", INT32, default=-1),
                        "replicaNodes" / array(INT32),
                        "isrNodes" / array(INT32),
                        "offlineReplicas" / versions("5+", array(INT32), default=[]),
                    )
                ),
                "topicAuthorizedOperations" / versions("8+", AUTHORIZED_OPERATIONS),
            )
        ),
        "clusterAuthorizedOperations" / versions("8-10", AUTHORIZED_OPERATIONS),
        "errorCode" / versions("13+", ERROR_CODE),
    ),
)

# KIP-700. KIP-919 (v1): brokers (1) or controllers (2). KIP-1073 (v2): fenced brokers.
DESCRIBE_CLUSTER: Final = Api(
    key=60,
    name="DescribeCluster",
    versions=range(0, 3),
    first_flexible=0,
    request=Struct(
        "includeClusterAuthorizedOperations" / INCLUDE_AUTHORIZED_OPERATIONS,
        "endpointType" / versions("1+", INT8, default=1),
        "includeFencedBrokers" / versions("2+", BOOL, default=False),
    ),
    response=Struct(
        "throttleTimeMs" / THROTTLE_TIME_MS,
        "errorCode" / ERROR_CODE,
        "errorMessage" / ERROR_MESSAGE,
        "endpointType" / versions("1+", INT8, default=1),
        "clusterId" / STRING,
        "controllerId" / Default(INT32, -1),
        "brokers"
        / array(
            Struct(
                "brokerId" / INT32,
                "host" / STRING,
                "port" / INT32,
                "rack" / Default(NULLABLE_STRING, None),
                "isFenced" / versions("2+", BOOL, default=False),
            )
        ),
        "clusterAuthorizedOperations" / AUTHORIZED_OPERATIONS,
    ),
)

# KIP-966. The position at which to continue: the next topic, and its next partition; null at the end.
_CURSOR: Final = Default(nullable_struct(Struct("topicName" / STRING, "partitionIndex" / INT32)), None)

DESCRIBE_TOPIC_PARTITIONS: Final = Api(
    key=75,
    name="DescribeTopicPartitions",
    versions=range(0, 1),
    first_flexible=0,
    request=Struct(
        "topics" / array(Struct("name" / STRING)),
        "responsePartitionLimit" / Default(INT32, 2_000),
        "cursor" / _CURSOR,
    ),
    response=Struct(
        "throttleTimeMs" / THROTTLE_TIME_MS,
        "topics"
        / array(
            Struct(
                "errorCode" / ERROR_CODE,
                "name" / NULLABLE_STRING,
                "topicId" / Default(UUID, ZERO_UUID),
                "isInternal" / Default(BOOL, False),
                "partitions"
                / array(
                    Struct(
                        "errorCode" / ERROR_CODE,
                        "partitionIndex" / INT32,
                        "leaderId" / INT32,
                        "leaderEpoch" / Default(INT32, -1),
                        "replicaNodes" / array(INT32),
                        "isrNodes" / array(INT32),
                        # May be null, which is also Kafka's default, but Java's Admin 4.3 fails on null.
                        "eligibleLeaderReplicas" / Default(array(INT32, nullable=True), []),
                        "lastKnownElr" / Default(array(INT32, nullable=True), []),
                        "offlineReplicas" / Default(array(INT32), []),
                    )
                ),
                "topicAuthorizedOperations" / AUTHORIZED_OPERATIONS,
            )
        ),
        "nextCursor" / _CURSOR,
    ),
)

# KIP-226 (v1): the source of a value. KIP-569 (v3): type and documentation.
DESCRIBE_CONFIGS: Final = Api(
    key=32,
    name="DescribeConfigs",
    versions=range(1, 5),
    first_flexible=4,
    request=Struct(
        "resources"
        / array(
            Struct(
                "resourceType" / INT8,  # 2 a topic, 4 a broker
                "resourceName" / STRING,
                "configurationKeys" / array(STRING, nullable=True),  # null: all
            )
        ),
        "includeSynonyms" / Default(BOOL, False),
        "includeDocumentation" / versions("3+", BOOL, default=False),
    ),
    response=Struct(
        "throttleTimeMs" / THROTTLE_TIME_MS,
        "results"
        / array(
            Struct(
                "errorCode" / ERROR_CODE,
                "errorMessage" / ERROR_MESSAGE,
                "resourceType" / INT8,
                "resourceName" / STRING,
                "configs"
                / array(
                    Struct(
                        "name" / STRING,
                        "value" / NULLABLE_STRING,
                        "readOnly" / BOOL,
                        "configSource" / Default(INT8, -1),
                        "isSensitive" / Default(BOOL, False),
                        "synonyms"
                        / Default(
                            array(Struct("name" / STRING, "value" / NULLABLE_STRING, "source" / INT8)), []
                        ),
                        "configType" / versions("3+", INT8, default=0),
                        "documentation" / versions("3+", NULLABLE_STRING, default=None),
                    )
                ),
            )
        ),
    ),
)
