"""Kinds of clusters, guessed from host names and the cluster id."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple


class Kind(NamedTuple):
    """The name of a kind, and why clusters of this kind have no offsets topic that can be read (None: they
    have one, or it is not known)."""

    name: str
    lacks_topic: str | None = None


_BY_HOST: Final = tuple(
    (re.compile(rf"(?:^|\.){pattern}$"), kind)
    for pattern, kind in (
        # github.com/redpanda-data/kminion/issues/12: Confluent's answer
        (r"confluent\.cloud", Kind("Confluent Cloud", "it hides this topic from its users")),
        # github.com/Azure/azure-event-hubs-for-kafka/issues/50: Microsoft's answer
        (
            r"servicebus\.(?:windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)",
            Kind("Azure Event Hubs", "it keeps offsets in Azure Storage, not in a topic"),
        ),
        # docs.warpstream.com, Monitoring Consumer Groups
        (r"warpstream\.com", Kind("WarpStream", "it has no topic with the offsets of groups")),
        (r"kafka-serverless\.[\w-]+\.amazonaws\.com(?:\.cn)?", Kind("Amazon MSK Serverless")),
        (r"kafka\.[\w-]+\.amazonaws\.com(?:\.cn)?", Kind("Amazon MSK")),
        (r"aivencloud\.com", Kind("Aiven for Apache Kafka")),
        (r"redpanda\.com", Kind("Redpanda")),
    )
)
_REDPANDA: Final = "redpanda."  # github.com/redpanda-data/redpanda/pull/4457: how its cluster ids begin


def kind_of(hosts: Iterable[str], cluster_id: str | None) -> Kind | None:
    """Return the probable kind of a cluster with a broker on one of these hosts; None: nothing tells.

    >>> kind_of(["pkc-1.eu-west-1.aws.confluent.cloud"], None).name
    'Confluent Cloud'
    """
    if cluster_id is not None and cluster_id.startswith(_REDPANDA):
        return Kind("Redpanda")
    for host in hosts:
        for pattern, kind in _BY_HOST:
            if pattern.search(host.lower().rstrip(".")):
                return kind
    return None


def hosts_of(addresses: Iterable[str]) -> list[str]:
    """Return the hosts of addresses, each `host:port`, `[IPv6]:port` or several with commas.

    >>> hosts_of(["kafka:9092,[::1]:9092"])
    ['kafka', '::1']
    """
    single = [address for several in addresses for address in several.split(",")]
    return [address.strip().rpartition(":")[0].strip("[]").rpartition("://")[2] for address in single]
