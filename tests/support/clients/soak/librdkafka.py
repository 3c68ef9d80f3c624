"""Clients of confluent-kafka (librdkafka), as `asker` tells them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from asker import Numbers, ask
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    OffsetSpec,
)

LIMIT_S = 65


class Librdkafka:
    """One client. A principal with an address instead of a password signs in with tokens from there."""

    def __init__(self, words: Sequence[str]) -> None:
        settings: dict[str, Any] = {"bootstrap.servers": words[0], "log_level": 0}
        if len(words) > 1:
            ca, name, secret = words[1:]
            settings |= {"security.protocol": "SASL_SSL", "ssl.ca.location": ca}
            settings |= (
                by_token(ca, name, secret) if secret.startswith("https:") else by_password(name, secret)
            )
        self._admin = AdminClient(settings)

    def offsets(self, groups: Sequence[str]) -> Numbers:
        found: dict[str, Iterable[int] | None] = {}
        for group in groups:  # librdkafka fetches those of one group at a time
            asked = [ConsumerGroupTopicPartitions(group)]
            try:
                answer = self._admin.list_consumer_group_offsets(asked)[group].result(LIMIT_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                    raise
                found[group] = None
            else:
                found[group] = [one.offset for one in answer.topic_partitions]
        return found

    def members(self, groups: Sequence[str]) -> Mapping[str, Iterable[str]]:
        futures = self._admin.describe_consumer_groups(list(groups))
        return {
            name: [one.member_id for one in future.result(LIMIT_S).members]
            for name, future in futures.items()
        }

    def groups(self) -> Iterable[str]:
        found: Any = self._admin.list_consumer_groups().result(LIMIT_S)
        if found.errors:
            raise found.errors[0]
        return [one.group_id for one in found.valid]

    def ends(self, topics: Sequence[str]) -> Numbers:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, number): latest for topic in topics for number in range(10)}
        found: dict[str, list[int]] = {topic: [] for topic in topics}
        for at, future in self._admin.list_offsets(asked).items():
            found[at.topic].append(future.result(LIMIT_S).offset)
        return found

    def configs(self) -> Mapping[str, str]:
        [future] = self._admin.describe_configs([ConfigResource("broker", "1")]).values()
        return {name: entry.value or "" for name, entry in future.result(LIMIT_S).items()}

    def close(self) -> None:
        del self._admin


def by_password(name: str, password: str) -> dict[str, Any]:
    return {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": name, "sasl.password": password}


def by_token(ca: str, name: str, url: str) -> dict[str, Any]:
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": name,
        "sasl.oauthbearer.client.secret": "secret",
        "sasl.oauthbearer.token.endpoint.url": url,
        "https.ca.location": ca,
    }


if __name__ == "__main__":
    ask(Librdkafka)
