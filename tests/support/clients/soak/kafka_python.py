"""Clients of kafka-python, as `asker` tells them. Run with the folder of kafka-python on PYTHONPATH."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from asker import Numbers, ask
from kafka import KafkaAdminClient, TopicPartition  # type: ignore[import-not-found]
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec  # type: ignore[import-not-found]
from kafka.errors import GroupAuthorizationFailedError  # type: ignore[import-not-found]


class KafkaPython:
    """One client."""

    def __init__(self, words: Sequence[str]) -> None:
        settings: dict[str, Any] = {"bootstrap_servers": words[0]}
        if len(words) > 1:
            ca, name, password = words[1:]
            settings |= {"security_protocol": "SASL_SSL", "ssl_cafile": ca, "sasl_mechanism": "SCRAM-SHA-256"}
            settings |= {"sasl_plain_username": name, "sasl_plain_password": password}
        self._admin = KafkaAdminClient(**settings)

    def offsets(self, groups: Sequence[str]) -> Numbers:
        try:
            answers = self._admin.list_group_offsets(list(groups))
        except GroupAuthorizationFailedError:  # of one of them: it does not say which
            if len(groups) > 1:
                raise
            return {groups[0]: None}
        return {name: [one.offset for one in found.values()] for name, found in answers.items()}

    def members(self, groups: Sequence[str]) -> Mapping[str, Iterable[str]]:
        found = self._admin.describe_groups(list(groups))
        return {name: [one["member_id"] for one in group["members"]] for name, group in found.items()}

    def groups(self) -> Iterable[str]:
        return [one["group_id"] for one in self._admin.list_groups()]

    def ends(self, topics: Sequence[str]) -> Numbers:
        asked = [TopicPartition(topic, number) for topic in topics for number in range(10)]
        found: dict[str, list[int]] = {topic: [] for topic in topics}
        for at, end in self._admin.list_partition_offsets(dict.fromkeys(asked, OffsetSpec.LATEST)).items():
            found[at.topic].append(end.offset)
        return found

    def configs(self) -> Mapping[str, str]:
        broker = ConfigResource(ConfigResourceType.BROKER, "1")
        found = self._admin.describe_configs([broker], config_filter="all")["broker"]["1"]
        return {name: entry["value"] or "" for name, entry in found.items()}

    def close(self) -> None:
        self._admin.close()


if __name__ == "__main__":
    ask(KafkaPython)
