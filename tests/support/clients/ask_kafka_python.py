"""Asks a cluster about its groups with kafka-python, and prints the answers as JSON.

    ask_kafka_python.py HOST:PORT GROUP...

Run with the folder of kafka-python on PYTHONPATH: it is none of the project's packages.
"""

import json
import sys
from typing import Any

from kafka import KafkaAdminClient, TopicPartition  # type: ignore[import-not-found]
from kafka.admin import OffsetSpec  # type: ignore[import-not-found]


def main(bootstrap: str, groups: list[str]) -> dict[str, Any]:
    """Ask for everything."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    topics = [one for one in admin.describe_topics() if not one["name"].startswith("__")]
    partitions = [
        TopicPartition(one["name"], number["partition_index"])
        for one in topics
        for number in one["partitions"]
    ]
    ends = admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    described = admin.describe_groups(groups)
    for group in described.values():
        group["members"].sort(key=lambda one: one["member_id"])
    answers = {
        "listed": sorted(admin.list_groups(), key=lambda one: str(one["group_id"])),
        "described": described,
        "offsets": {
            group: {f"{at.topic}:{at.partition}": list(found) for at, found in offsets.items()}
            for group, offsets in admin.list_group_offsets(groups).items()
        },
        "ends": {f"{at.topic}:{at.partition}": found.offset for at, found in ends.items()},
        "refused": str(admin.delete_groups(["nope"])),
    }
    admin.close()
    return answers


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2:]), default=str))
